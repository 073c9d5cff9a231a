"""A topic: its partitions, the bound on what they hold together, and where their ends are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from uuid import UUID

from ....actors.records import MarkerRecord
from .partition_log import PartitionLog

KeepEnd = Callable[[int, int], None]
"""Called with a partition and its new end offset; returns when the number outlives the process."""

GONE = sys.maxsize
"""What waiters hear when the topic is deleted: more bytes than anybody waits for."""


class Topic:
    """A topic in memory.

    Retention: when the partitions hold more than ``retention_bytes`` together, the partition that holds most drops its
    oldest batch, until it is enough. So a busy partition does not drive out a quiet one, and the batch that has just
    come stays, however large.
    """

    __slots__ = ("_keep_end", "held_bytes", "is_internal", "name", "partitions", "retention_bytes", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        partitions: list[PartitionLog],
        retention_bytes: int,
        keep_end: KeepEnd,
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.retention_bytes = retention_bytes
        self.is_internal = is_internal
        self.held_bytes = 0
        self._keep_end = keep_end

    def partition(self, index: int) -> PartitionLog | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def append(self, index: int, records: bytes | None) -> int:
        """Store a producer's batch in an existing partition, wake those who wait for it, return its base offset.

        Raises CoordinatorError as ``PartitionLog.append`` does.
        """
        log = self.partitions[index]
        held = log.size_bytes
        base_offset = log.append(records)
        self._has_grown(index, log.size_bytes - held)
        return base_offset

    def end_transaction(self, index: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Put a marker behind a producer's records in an existing partition."""
        log = self.partitions[index]
        held = log.size_bytes
        log.end_transaction(marker, timestamp_ms)
        self._has_grown(index, log.size_bytes - held)

    def _has_grown(self, index: int, added: int) -> None:
        """By so many bytes; by none if what came was known."""
        log = self.partitions[index]
        if added:
            self._keep_end(index, log.end_offset)
            self._make_room(log, added)
            for waiter in tuple(log.waiters):
                waiter(added)

    def _make_room(self, newest: PartitionLog, added: int) -> None:
        self.held_bytes += added
        while self.held_bytes > max(self.retention_bytes, added):
            # The new batch does not count for its partition, so the partition that is chosen has an older one.
            biggest = max(self.partitions, key=lambda log: log.size_bytes - (added if log is newest else 0))
            self.held_bytes -= biggest.drop_oldest()

    def delete_records(self, index: int, offset: int) -> None:
        """Let an existing partition begin at ``offset``. Raises CoordinatorError as ``PartitionLog.delete_before``."""
        self.held_bytes -= self.partitions[index].delete_before(offset)

    def grow(self, added: Sequence[PartitionLog], keep_end: KeepEnd) -> None:
        """Take more partitions, behind those that are there; from now on all their ends are kept by ``keep_end``."""
        self.partitions.extend(added)
        self._keep_end = keep_end

    def raise_end(self, index: int, offset: int) -> None:
        """Let an existing partition without records begin and end at ``offset``, if it ended before."""
        log = self.partitions[index]
        if offset > log.end_offset:
            log.raise_end(offset)
            self._keep_end(index, offset)

    def close(self) -> None:
        """The topic is deleted: nobody need wait for it any longer."""
        for log in self.partitions:
            for waiter in tuple(log.waiters):
                waiter(GONE)
