"""A topic: its partitions, their common retention limit, and their durable end offsets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Protocol, overload
from uuid import UUID

from ...actors.records import MarkerRecord
from ...actors.steps import ITEMS_PER_STEP, Steps
from .compaction import Compaction, RunBlocking
from .held_records import HeldRecords, SizeClasses
from .partition_log import PartitionLog
from .policy import CompactionPolicy, TopicPolicy
from .produced_times import InvalidTime

NO_TIMESTAMP = -1
"""The time of a batch whose records have none."""

DROPS_PER_APPEND = 64
"""Batches that an append drops at most for each limit, so that it does not take long."""

TOPIC_DELETED = sys.maxsize
"""The size that waiters are called with when the records are dropped: larger than any size they wait for."""

NOT_LED = -1
"""The leader epoch of a topic that another node leads, or none."""


class EndOffsets(Protocol):
    """The durable end offsets of a topic's partitions."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> int: ...

    def store(self, index: int, offset: int) -> None:
        """Store the end offset of a partition. After a CoordinatorError it is in effect, but not durable."""


class PartitionLogs(Sequence[PartitionLog]):
    """The partitions of a topic. An unused partition has no state but its end offset."""

    __slots__ = ("_count", "_ends", "_first_offset", "_logs", "_message_max_bytes")

    def __init__(self, ends: EndOffsets, message_max_bytes: int, first_offset: int = 0) -> None:
        """``first_offset``: no partition begins below it."""
        self._ends = ends
        self._first_offset = first_offset
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
        """A partition for use; its state is created if it has none."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        log = self._logs.get(index)
        if log is None:
            log = self._logs[index] = self.peek(index)
        return log

    def peek(self, index: int) -> PartitionLog:
        """A partition for reading only: an unused one gets only temporary state. Raises IndexError."""
        log = self._logs.get(index)
        if log is None:
            if not 0 <= index < self._count:
                raise IndexError(f"partition {index}: expected 0 to {self._count - 1}")
            log = PartitionLog(self._message_max_bytes, max(self._ends[index], self._first_offset))
        return log

    def active(self) -> Iterator[PartitionLog]:
        """The partitions that have state."""
        return iter(self._logs.values())

    def limit_messages(self, max_bytes: int) -> None:
        """Accept batches of at most ``max_bytes`` from now on."""
        self._message_max_bytes = max_bytes
        for log in self.active():
            log.message_max_bytes = max_bytes

    def refresh_count(self) -> None:
        """Update the number of partitions after the topic has grown."""
        self._count = len(self._ends)


class Topic:
    """A topic in memory.

    Retention: while the partitions together have more than ``policy.retention_bytes``, a large partition drops its
    oldest batch: one that is at least half as large as the largest. So a busy partition does not displace the records
    of a quiet one, and the newest batch stays, whatever its size. ``records`` limits the records of all topics together
    in the same way. A limit that the topic was given holds for each partition instead.

    An append drops ``DROPS_PER_APPEND`` batches at most. After a limit was lowered, ``expire`` drops the others.

    ``leader_epoch``: of this node's leadership, 0 without a cluster; NOT_LED if this node does not lead the topic.
    """

    __slots__ = (
        *("_records", "_sizes", "ends", "held_bytes", "is_internal", "leader_epoch", "name", "partitions", "policy"),
        "topic_id",
    )

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        ends: EndOffsets,
        policy: TopicPolicy,
        records: HeldRecords,
        is_internal: bool = False,
    ) -> None:
        self._records = records
        self.name = name
        self.topic_id = topic_id
        self.ends = ends
        self.partitions = PartitionLogs(ends, policy.message_max_bytes)
        self.policy = policy
        self.is_internal = is_internal
        self.leader_epoch = 0
        self.held_bytes = 0
        self._sizes = SizeClasses[PartitionLog]()

    def lead(self, epoch: int, first_offset: int) -> None:
        """This node begins to lead the topic. Its partitions are empty, and begin at ``first_offset`` or above."""
        self._begin(epoch, first_offset)

    def give_up(self) -> None:
        """This node does not lead the topic any more. The records are dropped, and all waits end."""
        self._begin(NOT_LED, 0)

    def _begin(self, epoch: int, first_offset: int) -> None:
        dropped = self.partitions
        self._release_records()
        self._sizes = SizeClasses[PartitionLog]()
        self.leader_epoch = epoch
        self.partitions = PartitionLogs(self.ends, self.policy.message_max_bytes, first_offset)
        _end_waits(dropped)

    def use_policy(self, policy: TopicPolicy) -> None:
        """Follow changed settings from now on."""
        self.policy = policy
        self.partitions.limit_messages(policy.message_max_bytes)

    def has_partition(self, index: int) -> bool:
        return 0 <= index < len(self.partitions)

    def partition(self, index: int) -> PartitionLog | None:
        """A partition for use; its state is created if it has none. None if it does not exist."""
        return self.partitions[index] if self.has_partition(index) else None

    def peek(self, index: int) -> PartitionLog | None:
        """A partition for reading only. None if it does not exist."""
        return self.partitions.peek(index) if self.has_partition(index) else None

    def append(
        self,
        index: int,
        records: bytes | None,
        append_time_ms: int | None = None,
        invalid_times: Sequence[InvalidTime] | None = None,
    ) -> int:
        """Append a producer's batch to an existing partition, call its waiters, and return the base offset.

        Raises CoordinatorError as ``PartitionLog.append`` does, and if the new end offset cannot be stored.
        """
        log = self.partitions[index]
        size_before = log.size_bytes
        base_offset = log.append(records, append_time_ms, invalid_times)
        self._after_append(index, log.size_bytes - size_before)
        return base_offset

    def end_transaction(self, index: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Append a transaction marker to an existing partition. Raises CoordinatorError as ``append`` does."""
        log = self.partitions[index]
        size_before = log.size_bytes
        log.end_transaction(marker, timestamp_ms)
        self._after_append(index, log.size_bytes - size_before)

    def _after_append(self, index: int, added: int) -> None:
        """Store the new end offset, enforce retention and call waiters. ``added`` is 0 for a duplicate batch."""
        log = self.partitions[index]
        if added:
            try:
                self.ends.store(index, log.end_offset)
            finally:
                self._enforce_retention(log, added)
                for waiter in tuple(log.waiters):
                    waiter(added)

    def _enforce_retention(self, newest: PartitionLog, added: int) -> None:
        self._count(newest, added, 1)
        for _ in range(DROPS_PER_APPEND):
            if newest.size_bytes <= max(self.policy.partition_retention_bytes, added):
                break
            self._drop_oldest(newest)
        for _ in range(DROPS_PER_APPEND):
            if self.held_bytes <= max(self.policy.retention_bytes, added):
                break
            large = self._sizes.find_large(newest if newest.size_bytes <= added else None)
            if large is None:
                break
            self._drop_oldest(large)
        self._records.enforce_limit(self, added, DROPS_PER_APPEND)

    def drop_oldest(self) -> None:
        """Drop the oldest batch of a large partition. There must be a batch."""
        large = self._sizes.find_large()
        assert large is not None
        self._drop_oldest(large)

    def _drop_oldest(self, log: PartitionLog) -> None:
        self._count(log, -log.drop_oldest(), -1)

    def _count(self, log: PartitionLog, added_bytes: int, added_batches: int) -> None:
        self.held_bytes += added_bytes
        self._sizes.change(log, added_bytes)
        self._records.change(self, added_bytes, added_batches)

    def delete_records(self, index: int, offset: int) -> Steps[None]:
        """Delete the records of a partition before ``offset``. Raises as ``PartitionLog.delete_before`` does."""
        partitions, dropped = self.partitions, ITEMS_PER_STEP
        log = partitions[index]
        while dropped == ITEMS_PER_STEP and self.partitions is partitions:
            batches = log.batch_count
            size_bytes = log.delete_before(offset, ITEMS_PER_STEP)
            dropped = batches - log.batch_count
            self._count(log, -size_bytes, -dropped)
            yield

    def expire(self, now_ms: int) -> Steps[None]:
        """Drop the oldest batches that are older than ``retention_ms``, and those above the limits of bytes."""
        oldest_kept_ms = now_ms - self.policy.retention_ms
        for log in tuple(self.partitions.active()):
            dropped = ITEMS_PER_STEP
            while dropped == ITEMS_PER_STEP:
                dropped = self._drop_before(log, oldest_kept_ms)
                yield
            while log.batch_count > 1 and log.size_bytes > self.policy.partition_retention_bytes:
                self._drop_oldest(log)
                yield
        while self.held_bytes > self.policy.retention_bytes and (large := self._sizes.find_large()) is not None:
            if large.batch_count == 1:
                return
            self._drop_oldest(large)
            yield

    def _drop_before(self, log: PartitionLog, oldest_kept_ms: int) -> int:
        """Drop up to ITEMS_PER_STEP batches, and return how many. A batch without timestamps stays."""
        for number in range(ITEMS_PER_STEP):
            if not log.batches or not NO_TIMESTAMP < log.batches.oldest_ms < oldest_kept_ms:
                return number
            self._drop_oldest(log)
        return ITEMS_PER_STEP

    def compact(
        self, log: PartitionLog, policy: CompactionPolicy, now_ms: int, run_blocking: RunBlocking
    ) -> Steps[None]:
        """Compact a partition. After a pause it must not go on if the topic was deleted."""
        freed = yield from Compaction(log, policy, now_ms, run_blocking).run()
        self._count(log, -freed.size_bytes, -freed.batches)

    def raise_end(self, index: int, offset: int) -> None:
        """Raise the end offset of a partition without records to ``offset``, unless it is higher already.

        If it cannot be stored, raises CoordinatorError; the new end offset is in effect nevertheless.
        """
        if offset > self.partitions.peek(index).end_offset:
            self.partitions.peek(index).raise_end(offset)
            self.ends.store(index, offset)

    def close(self) -> None:
        """End all waits and release the records, because the topic is deleted."""
        self._release_records()
        _end_waits(self.partitions)

    def _release_records(self) -> None:
        self._records.change(self, -self.held_bytes, -sum(log.batch_count for log in self.partitions.active()))
        self.held_bytes = 0


def _end_waits(partitions: PartitionLogs) -> None:
    for log in partitions.active():
        for waiter in tuple(log.waiters):
            waiter(TOPIC_DELETED)
