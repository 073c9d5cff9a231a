"""What the node needs from a store of the log, and from whoever decides which partitions this node owns.

The local files (``runtime/loading/local_store.py``) are one implementation. A store that several nodes share is
another one: it gains and loses partitions while it serves.

Partitions are numbered consecutively: first those of ``__consumer_offsets``, then those of ``__transaction_state``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ...actors.ports import Log
from .format.errors import Damage
from .partition_counts import PartitionCounts
from .pieces import LoadJob, PieceHandler
from .stats import LogStats


class LogStore(Log, Protocol):
    """The records of all partitions. All methods except ``open``, ``close`` and ``halt`` are called on the node's loop.

    ``append``: see ``actors.ports.Log``. What was acknowledged with one epoch of a partition is part of what ``load``
    returns with any later epoch; afterwards nothing is acknowledged with the earlier one.
    """

    @property
    def counts(self) -> PartitionCounts:
        """The number of partitions of each topic."""

    @property
    def has_local_files(self) -> bool:
        """Whether the records are in the data folder, where the log cleaner compacts them."""

    def open(self) -> None:
        """Recover what is there. Called once, before anything else. Blocks. Raises StartError if that fails."""

    def jobs(self, epochs: Mapping[int, int]) -> Sequence[LoadJob]:
        """The partitions with records, of those in ``epochs``: epochs by partition. The others are empty."""

    def loads_in_background(self, jobs: Sequence[LoadJob]) -> bool:
        """Whether the server should listen while these partitions are loaded, because that takes long."""

    async def load(self, jobs: Sequence[LoadJob], take: PieceHandler) -> None:
        """Read partitions and pass all their pieces to ``take``, the report of each partition last.

        Pieces of different partitions may come in any order. Cancelling stops it.
        """

    def unload(self, partition: int) -> None:
        """The coordinator has stopped everything that belongs to the partition."""

    def stats(self) -> LogStats:
        """Counts and state, from any thread."""

    def may_write_folder(self) -> bool:
        """Whether the data folder is still at its path, and no other process can be writing to it."""

    def add_damage(self, damage: Damage) -> None:
        """Register damage that was found while a partition was loaded."""

    def damages(self) -> list[Damage]:
        """The damage found since the store was opened. From any thread."""

    def close(self) -> None:
        """Finish all appends and make them durable. A second call does nothing. Blocks."""

    def halt(self) -> None:
        """Stop as if the process died now."""


class OwnershipListener(Protocol):
    """Gets the changes of ownership, on the node's loop."""

    def gained(self, epochs: Mapping[int, int]) -> None:
        """This node owns partitions from now on. ``epochs``: by partition, higher than in any earlier period.

        A partition that it owned already was lost in between, and is loaded again.
        """

    def lost(self, partitions: Collection[int]) -> None:
        """This node does not own these partitions any more."""

    def fenced(self) -> None:
        """The store accepts nothing from this node any more: all partitions are lost."""


class Ownership(Protocol):
    """Decides which partitions this node owns. Each period of ownership of a partition has a higher epoch."""

    def start(self, listener: OwnershipListener) -> None:
        """Report the partitions that are owned now, before this returns, and all changes from now on."""

    def refused(self, partition: int, epoch: int) -> None:
        """The store has refused an append of this epoch.

        If the partition was not reported as lost or gained since the epoch began, it has to be reported as lost.
        """

    def stop(self) -> None:
        """Report nothing any more. The node stops."""


class OwnsAll:
    """``Ownership`` of local files: all partitions are gained once, and never lost."""

    def __init__(self, counts: PartitionCounts) -> None:
        self._partitions = range(sum(counts))

    def start(self, listener: OwnershipListener) -> None:
        listener.gained(dict.fromkeys(self._partitions, 0))

    def refused(self, partition: int, epoch: int) -> None:
        """Not called: local files refuse no epoch."""

    def stop(self) -> None:
        """Nothing to do."""
