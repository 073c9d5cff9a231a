"""The content of a partition in pieces, as a store of the log hands it to the coordinator.

The pieces are small, because the server handles each of them between two requests. The local files are loaded by
subprocesses, which get jobs and return pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...actors.group.offsets import GroupData
from ...actors.messages import QuarantinedGroup
from ...actors.records import TransactionValue
from .format.errors import Damage


class LoadJob(NamedTuple):
    """A partition to load in a period of ownership (``epoch``). ``folder``: where it is, for log lines.

    ``fast``: use numpy if it is installed; its import pays only for large logs.

    ``topic_partitions``: the number of partitions of its topic, to check that each name belongs to this partition; 0 if
    it is unknown, then nothing is checked. ``sampled``: some names are enough, because each writer knew that number.
    """

    partition: int
    folder: str
    is_transactions: bool
    log_bytes: int
    fast: bool = False
    topic_partitions: int = 0
    epoch: int = 0
    sampled: bool = False


class PackedGroups(NamedTuple):
    """Some groups of a partition, packed."""

    groups: dict[str, bytes]


class UnpackedGroups(NamedTuple):
    """Some groups that cannot be passivated."""

    groups: dict[str, GroupData]


class CommittedEnds(NamedTuple):
    """The largest committed offsets of some topic partitions."""

    offsets: dict[tuple[str, int], int]


class TransactionalIds(NamedTuple):
    """Some transactional ids."""

    values: dict[str, TransactionValue]


class LoadReport(NamedTuple):
    """The last piece of a job. ``failure``: why the partition could not be read; then it is the only piece.

    ``misplaced``: a group or transactional id that belongs to another partition; then it is the only piece too.
    """

    records: int = 0
    unknown_keys: int = 0
    quarantined: dict[str, QuarantinedGroup] = {}
    damages: tuple[Damage, ...] = ()
    problems: tuple[str, ...] = ()
    failure: str = ""
    misplaced: str = ""


PieceHandler = Callable[[LoadJob, "LoadPiece"], None]
"""Called on the node's loop with each piece of a job. Raises MisplacedError if the log must not be served at all."""

LoadPiece = PackedGroups | UnpackedGroups | CommittedEnds | TransactionalIds | LoadReport
