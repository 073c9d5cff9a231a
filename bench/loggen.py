"""Generates realistic offsets logs of any size from a seed, for benchmarks and tests of reading and compaction.

Few groups commit often and many seldom (Zipf's law). A group commits all its partitions at once, sometimes in every
batch for a while (a burst) or in transactions, of which some abort. There are some group records, and tombstones of
deleted groups.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from callboard.actors.javahash import offsets_partition
from callboard.actors.records import GroupRecord, GroupValue, MemberValue
from callboard.runtime.log.format.batch import Producer, encode_batch
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.format.transaction_records import ABORT, COMMIT
from callboard.runtime.log.format.varint import encode_length
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading.segment import segment_name

START_MS = 1_700_000_000_000
MEAN_BATCH_RECORDS = 80
BURST_BATCHES = 20  # at most

_VALUE = Struct(">hqih7sq")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class LogShape(NamedTuple):
    """Parameters of a log. ``records`` and ``groups`` are totals over all partitions.

    ``death_rate``, ``transaction_rate``, ``group_record_rate`` and ``burst_rate`` are fractions of the commits,
    ``abort_rate`` of the transactions. ``tick_ms``: the time between two batches.
    """

    records: int
    partitions: int = 1
    groups: int = 1000
    batch_records: int = MEAN_BATCH_RECORDS
    segment_bytes: int = 104857600
    death_rate: float = 0.001
    transaction_rate: float = 0.0
    abort_rate: float = 0.1
    group_record_rate: float = 0.003
    tick_ms: int = 10
    burst_rate: float = 0.0


class WrittenCounts(NamedTuple):
    """Totals of a generated log."""

    records: int
    bytes: int
    files: int


def write_log(root: Path, shape: LogShape, seed: int = 1) -> WrittenCounts:
    """Write the partition folders of a data folder, which must not contain any."""
    groups_of: list[list[int]] = [[] for _ in range(shape.partitions)]
    for group in range(shape.groups):
        groups_of[offsets_partition(group_name(group), shape.partitions)].append(group)
    weight_of = [sum(1 / (group + 1) for group in groups) for groups in groups_of]
    total = sum(weight_of) or 1.0
    written = WrittenCounts(0, 0, 0)
    for number, groups in enumerate(groups_of):
        if groups:
            share = round(shape.records * weight_of[number] / total)
            rng = random.Random(f"{seed} {number}")
            next_parts = _write_partition(root / folder_name(number), _batches(groups, share, shape, rng), shape)
            written = WrittenCounts(*map(sum, zip(written, next_parts, strict=True)))
    return written


def group_name(group: int) -> str:
    return f"service-{group:05d}-consumers"


def _write_partition(folder: Path, batches: Iterator[tuple[int, bytes]], shape: LogShape) -> WrittenCounts:
    folder.mkdir(parents=True)
    records = size = files = 0
    parts: list[bytes] = []
    part_bytes = base = next_offset = 0

    def close() -> None:
        nonlocal files
        (folder / segment_name(base)).write_bytes(b"".join(parts))
        files += 1

    for count, batch in batches:
        if parts and part_bytes + len(batch) > shape.segment_bytes:
            close()
            parts, part_bytes, base = [], 0, next_offset
        parts.append(batch)
        part_bytes += len(batch)
        size += len(batch)
        records += count
        next_offset += count
    close()
    return WrittenCounts(records, size, files)


def _batches(groups: list[int], records: int, shape: LogShape, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """The batches of one partition with their numbers of records."""
    partition = _Partition(groups, shape, rng)
    while partition.offset < records:
        yield from partition.next_batches()


class _Partition:
    """The state of one partition while it is generated."""

    def __init__(self, groups: list[int], shape: LogShape, rng: random.Random) -> None:
        self.offset = 0
        self._groups = groups
        self._weights = list(accumulate(1 / (group + 1) for group in groups))
        self._keys = {group: _keys(group, random.Random(group)) for group in groups}
        self._shape = shape
        self._rng = rng
        self._now_ms = START_MS
        self._open: list[tuple[int, int]] = []  # (end time, producer id) of open transactions
        self._bursts: dict[int, int] = {}  # by group: the number of batches left in its burst

    def next_batches(self) -> Iterator[tuple[int, bytes]]:
        """The next batch, and before it any due end or beginning of a transaction."""
        self._now_ms += self._shape.tick_ms
        while self._open and self._open[0][0] <= self._now_ms:
            yield 1, self._marker(self._open.pop(0)[1])
        if self._rng.random() < self._shape.transaction_rate:
            group = self._pick(1)[0]
            producer = 1000 + group
            if all(producer != other_producer for _, other_producer in self._open):
                self._open.append((self._now_ms + 5 * self._shape.tick_ms, producer))
                yield self._batch(self._commit(group), Producer(producer, 0))
        yield self._batch(self._records(), None)

    def _records(self) -> list[bytes]:
        """Encoded keys and values of some commits, as they follow a record's deltas."""
        record_count = 1 + int(self._rng.expovariate(1 / self._shape.batch_records))
        records = [record for group in self._bursting() for record in self._commit(group)]
        shape = self._shape
        alive_from = shape.death_rate + shape.group_record_rate
        for group in self._pick(record_count):
            if len(records) >= record_count:
                break
            draw = self._rng.random()
            if draw < shape.death_rate:
                records += [key + b"\x01\0" for key in self._keys[group]]
            elif draw < alive_from:
                records.append(self._group_record(group))
            else:
                records += self._commit(group)
                if draw < alive_from + shape.burst_rate:
                    self._bursts[group] = self._rng.randint(1, BURST_BATCHES)
        return records

    def _bursting(self) -> list[int]:
        groups = list(self._bursts)
        self._bursts = {group: remaining - 1 for group, remaining in self._bursts.items() if remaining > 1}
        return groups

    def _pick(self, count: int) -> list[int]:
        return self._rng.choices(self._groups, cum_weights=self._weights, k=count)

    def _commit(self, group: int) -> list[bytes]:
        value = _VALUE.pack(3, self.offset, 1, 7, b"node-01", self._now_ms)
        tail = encode_length(len(value)) + value + b"\0"
        return [key + tail for key in self._keys[group]]

    def _group_record(self, group: int) -> bytes:
        name = group_name(group)
        members = tuple(self._member(name) for _ in range(self._rng.randint(1, 8)))
        leader = members[0].member_id
        value = GroupValue("consumer", self.offset, "range", leader, self._now_ms, members)
        key, data = encode(GroupRecord(name, value))
        assert data is not None
        return encode_length(len(key)) + key + encode_length(len(data)) + data + b"\0"

    def _member(self, group: str) -> MemberValue:
        member_id = f"{group}-{self._rng.getrandbits(128):032x}"
        subscription, assignment = self._rng.randbytes(40), self._rng.randbytes(80)
        return MemberValue(member_id, None, group, "/10.0.0.7", 300_000, 45_000, subscription, assignment)

    def _batch(self, bodies: list[bytes], producer: Producer | None) -> tuple[int, bytes]:
        records = []
        for delta, body in enumerate(bodies):
            content = b"\0\0" + encode_length(delta) + body
            records.append(encode_length(len(content)) + content)
        batch = encode_batch(self.offset, self._now_ms, self._now_ms, records, producer)
        self.offset += len(records)
        return len(records), batch

    def _marker(self, producer: int) -> bytes:
        kind = ABORT if self._rng.random() < self._shape.abort_rate else COMMIT
        key, value = _MARKER_KEY.pack(0, kind), _MARKER_VALUE.pack(0, 0)
        body = encode_length(len(key)) + key + encode_length(len(value)) + value + b"\0"
        return self._batch([body], Producer(producer, 0, is_control=True))[1]


def _keys(group: int, rng: random.Random) -> list[bytes]:
    """The encoded keys that a group commits, each with its length prefix."""
    name, records = group_name(group).encode(), []
    head = b"\0\1" + len(name).to_bytes(2, "big") + name
    topic = f"events-{rng.randrange(200):03d}".encode()
    for partition in range(1 + int(rng.expovariate(1 / 12))):
        key = head + len(topic).to_bytes(2, "big") + topic + partition.to_bytes(4, "big")
        records.append(encode_length(len(key)) + key)
    return records
