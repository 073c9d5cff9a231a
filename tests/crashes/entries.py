"""Generates entries of all record types by a seed. There are few keys, so that records are superseded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from callboard.actors.ports import Entry
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
)

GROUPS = 3
TOPIC_PARTITIONS = 3
PRODUCERS = 3
RECORDS_MAX = 4
TOMBSTONE_SHARE = 0.2
METADATA_CHARS_MAX = 120
MEMBER_BYTES_MAX = 200
LARGE_SHARE = 0.02
LARGE_CHARS = 2000
HOSTILE_SHARE = 0.15


class EntryGenerator:
    """``offsets`` and ``transactions``: the partitions of each topic; those of the offsets topic are numbered first.

    ``hostile`` returns bytes that look like the log's own.
    """

    def __init__(self, random: Random, offsets: int, transactions: int, hostile: Callable[[], bytes]) -> None:
        self._random = random
        self._hostile = hostile
        self._offsets = offsets
        self._partitions = offsets + transactions
        self._numbers = count(1)
        self._kinds: list[Callable[[str], Record]] = [self._offset, self._offset, self._offset, self._group]

    def next(self) -> Entry:
        partition = self._random.randrange(self._partitions)
        if partition >= self._offsets:
            return Entry(partition, (self._transaction(f"tx{self._random.randrange(GROUPS)}"),))
        return Entry(partition, self._of_offsets())

    def _of_offsets(self) -> tuple[Record, ...]:
        group, size = f"g{self._random.randrange(GROUPS)}", self._random.randint(1, RECORDS_MAX)
        roll = self._random.random()
        if roll < 0.15:
            producer = self._random.randrange(PRODUCERS)
            return tuple(self._pending(group, producer) for _ in range(size))
        if roll < 0.25:
            return (MarkerRecord(self._random.randrange(PRODUCERS), 0, self._random.random() < 0.7),)
        if roll < 0.25 + HOSTILE_SHARE:
            return (self._group_of(group, self._hostile()),)
        return tuple(self._random.choice(self._kinds)(group) for _ in range(size))

    def _value(self) -> OffsetValue:
        chars = LARGE_CHARS if self._random.random() < LARGE_SHARE else self._random.randrange(METADATA_CHARS_MAX)
        return OffsetValue(next(self._numbers), -1, "m" * chars, 5)

    def _is_tombstone(self) -> bool:
        return self._random.random() < TOMBSTONE_SHARE

    def _offset(self, group: str) -> Record:
        partition = self._random.randrange(TOPIC_PARTITIONS)
        return OffsetRecord(group, "t", partition, None if self._is_tombstone() else self._value())

    def _pending(self, group: str, producer: int) -> Record:
        return PendingOffsetRecord(group, "t", self._random.randrange(TOPIC_PARTITIONS), self._value(), producer, 0)

    def _group(self, group: str) -> Record:
        if self._is_tombstone():
            return GroupRecord(group, None)
        return self._group_of(group, bytes(self._random.randrange(MEMBER_BYTES_MAX)))

    def _group_of(self, group: str, assignment: bytes) -> Record:
        member = MemberValue("m", None, "c", "h", 1, 1, b"s", assignment)
        return GroupRecord(group, GroupValue("consumer", next(self._numbers), "range", "m", 5, (member,)))

    def _transaction(self, name: str) -> Record:
        if self._is_tombstone():
            return TransactionRecord(name, None)
        return TransactionRecord(name, TransactionValue(next(self._numbers), 0, 60000, 0))
