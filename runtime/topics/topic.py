"""A topic: its partitions, the bound on what they hold together, and where their ends are kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Protocol, overload
from uuid import UUID

from ...actors.records import MarkerRecord
from .partition_log import PartitionLog

TOPIC_DELETED = sys.maxsize
"""What waiters hear when the topic is deleted: more bytes than anybody waits for."""


class Ends(Protocol):
    """Where the partitions of a topic end, as it outlives the process."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> int: ...

    def keep(self, index: int, offset: int) -> None:
        """Store the end of a partition. Raises CoordinatorError; then the offset counts all the same."""


class Partitions(Sequence[PartitionLog]):
    """The partitions of a topic. One that nobody has used has no state but its end offset."""

    __slots__ = ("_count", "_ends", "_logs", "_message_max_bytes")

    def __init__(self, ends: Ends, message_max_bytes: int) -> None:
        self._ends = ends
        self._message_max_bytes = message_max_bytes
        self._logs: dict[int, PartitionLog] = {}
        self._count = len(ends)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> PartitionLog: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionLog]: ...

    def __getitem__(self, index: int | slice) -> PartitionLog | Sequence[PartitionLog]:
        """A partition to be used; its state is made if it has none."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        log = self._logs.get(index)
        if log is None:
            log = self._logs[index] = self.peek(index)
        return log

    def peek(self, index: int) -> PartitionLog:
        """A partition to be read only: one that nobody has used gets no state that stays. Raises IndexError."""
        log = self._logs.get(index)
        if log is None:
            if not 0 <= index < self._count:
                raise IndexError(f"partition {index}: expected 0 to {self._count - 1}")
            log = PartitionLog(self._message_max_bytes, self._ends[index])
        return log

    def active(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def recount(self) -> None:
        """The topic has more partitions now."""
        self._count = len(self._ends)


class Topic:
    """A topic in memory.

    Retention: when the partitions hold more than ``retention_bytes`` together, the partition that holds most drops its
    oldest batch, until it is enough. So a busy partition does not drive out a quiet one, and the batch that has just
    come stays, however large.
    """

    __slots__ = ("ends", "held_bytes", "is_internal", "name", "partitions", "retention_bytes", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        ends: Ends,
        message_max_bytes: int,
        retention_bytes: int,
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.ends = ends
        self.partitions = Partitions(ends, message_max_bytes)
        self.retention_bytes = retention_bytes
        self.is_internal = is_internal
        self.held_bytes = 0

    def has_partition(self, index: int) -> bool:
        return 0 <= index < len(self.partitions)

    def partition(self, index: int) -> PartitionLog | None:
        """A partition to be used: one that was not gets its state now."""
        return self.partitions[index] if self.has_partition(index) else None

    def peek(self, index: int) -> PartitionLog | None:
        """A partition to be read only."""
        return self.partitions.peek(index) if self.has_partition(index) else None

    def append(self, index: int, records: bytes | None) -> int:
        """Store a producer's batch in an existing partition, wake those who wait for it, return its base offset.

        Raises CoordinatorError as ``PartitionLog.append`` does, and if the new end cannot be stored.
        """
        log = self.partitions[index]
        held = log.size_bytes
        base_offset = log.append(records)
        self._has_grown(index, log.size_bytes - held)
        return base_offset

    def end_transaction(self, index: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Put a marker behind a producer's records in an existing partition. CoordinatorError as for ``append``."""
        log = self.partitions[index]
        held = log.size_bytes
        log.end_transaction(marker, timestamp_ms)
        self._has_grown(index, log.size_bytes - held)

    def _has_grown(self, index: int, added: int) -> None:
        """By so many bytes; by none if what came was known."""
        log = self.partitions[index]
        if added:
            try:
                self.ends.keep(index, log.end_offset)
            finally:
                self._make_room(log, added)
                for waiter in tuple(log.waiters):
                    waiter(added)

    def _make_room(self, newest: PartitionLog, added: int) -> None:
        self.held_bytes += added
        while self.held_bytes > max(self.retention_bytes, added):
            # The new batch does not count for its partition, so the partition that is chosen has an older one.
            biggest = max(self.partitions.active(), key=lambda log: log.size_bytes - (added if log is newest else 0))
            self.held_bytes -= biggest.drop_oldest()

    def delete_records(self, index: int, offset: int) -> None:
        """Let an existing partition begin at ``offset``. Raises CoordinatorError as ``PartitionLog.delete_before``."""
        self.held_bytes -= self.partitions[index].delete_before(offset)

    def raise_end(self, index: int, offset: int) -> None:
        """Let an existing partition without records begin and end at ``offset``, if it ended before.

        Raises CoordinatorError if that cannot be stored; then it counts all the same.
        """
        if offset > self.partitions.peek(index).end_offset:
            self.partitions.peek(index).raise_end(offset)
            self.ends.keep(index, offset)

    def close(self) -> None:
        """The topic is deleted: nobody need wait for it any longer."""
        for log in self.partitions.active():
            for waiter in tuple(log.waiters):
                waiter(TOPIC_DELETED)
