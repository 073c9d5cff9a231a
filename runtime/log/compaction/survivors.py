"""Which records of a chunk survive, when chunks are looked at from the newest to the oldest.

A record survives if no newer one has its key, so the keys met so far are all that must be remembered (``seen``). Keys
are raw bytes: whatever a record says, and in which version, is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain
from struct import Struct
from typing import NamedTuple

from ..format.batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from ..format.transaction_records import ABORT, COMMIT
from ..format.varint import decode_signed
from ..reading.columns import BatchHeaders, Column, RecordSpans, as_list
from .rewrite import DELETE_HORIZON_BIT, timestamp_delta
from .seen import SeenKeys

_KIND = Struct(">h")
_KIND_AT = 2  # in a control record's key, behind its version


class OpenTransaction(Exception):
    """A transaction that has no end in what was read: nothing from its first offset on may be compacted."""

    def __init__(self, offset: int, producer_id: int) -> None:
        super().__init__(f"offset {offset} is in an open transaction of producer {producer_id}")
        self.offset = offset
        self.producer_id = producer_id


class Survivors(NamedTuple):
    """The records that stay, in order: which batch they are of, where they lie, when they are from (ms)."""

    batch: list[int]
    start: list[int]
    end: list[int]
    is_tombstone: list[bool]
    timestamp_ms: list[int]


_NONE = Survivors([], [], [], [], [])


class Memory:
    """What is remembered from newer chunks: keys, and how each producer's transaction before them ended."""

    def __init__(self, seen: SeenKeys, outcomes: Mapping[int, bool]) -> None:
        """``outcomes``: of transactions whose end is behind what is read: whether it was committed, by producer id."""
        self.seen = seen
        self.committed = dict(outcomes)


def select(memory: Memory, data: bytes, spans: RecordSpans, now_ms: int) -> Survivors:
    """What of a chunk stays; ``memory`` learns of it. OpenTransaction when a batch belongs to one."""
    passing, dropped = _transactions(memory, data, spans)
    perhaps = memory.seen.perhaps_new(data, spans)
    at, sizes = _rows(spans.key_at, perhaps), _rows(spans.key_size, perhaps)
    keys = [data[first : first + size] for first, size in zip(at, sizes, strict=True)]
    newest = dict(zip(keys, as_list(perhaps), strict=True))
    if passing or dropped or b"" in newest:
        rows = zip(keys, as_list(perhaps), sizes, _rows(spans.batch, perhaps), strict=True)
        not_data = passing.keys() | dropped
        newest = {key: index for key, index, size, batch in rows if size >= 0 and batch not in not_data}
    kept = memory.seen.add(newest)
    if passing:
        kept = sorted(chain(kept, *passing.values()))
    survivors = _plain(data, spans, kept) if isinstance(spans.start, list) else _fast(spans, kept)
    return _without_old_tombstones(survivors, spans, passing, now_ms)


def _transactions(memory: Memory, data: bytes, spans: RecordSpans) -> tuple[dict[int, range], set[int]]:
    """The batches that pass as they are, because they end a transaction, with their records; and those aborted."""
    passing: dict[int, range] = {}
    dropped: set[int] = set()
    headers = spans.headers
    attributes = as_list(headers.attributes)
    if not any(one & TRANSACTIONAL_BIT for one in attributes):
        return passing, dropped
    producers, offsets, counts = map(as_list, (headers.producer_id, headers.base_offset, headers.record_count))
    first_record = sum(counts)
    for index in range(len(attributes) - 1, -1, -1):
        first_record -= counts[index]
        if attributes[index] & CONTROL_BIT:
            passing[index] = range(first_record, first_record + counts[index])
            if counts[index] and spans.key_size[first_record] >= _KIND_AT + _KIND.size:
                _end(memory, data, int(spans.key_at[first_record]), producers[index])
        elif attributes[index] & TRANSACTIONAL_BIT and counts[index]:
            if producers[index] not in memory.committed:
                raise OpenTransaction(offsets[index], producers[index])
            if not memory.committed[producers[index]]:
                dropped.add(index)
    return passing, dropped


def _end(memory: Memory, data: bytes, key_at: int, producer_id: int) -> None:
    (kind,) = _KIND.unpack_from(data, key_at + _KIND_AT)
    if kind in (ABORT, COMMIT):
        memory.committed[producer_id] = kind == COMMIT


def _rows(column: Column, indexes: Column) -> list[int]:
    """The numbers at these indexes, which are all that there are where columns are lists."""
    return column if isinstance(column, list) else list(column[indexes].tolist())


def _fast(spans: RecordSpans, kept: list[int]) -> Survivors:
    import numpy as np

    at = np.asarray(kept, dtype=np.int64)
    columns = spans.batch, spans.start, spans.end, spans.value_size < 0, spans.timestamp_ms
    return Survivors(*(column[at].tolist() for column in columns))


def _plain(data: bytes, spans: RecordSpans, kept: list[int]) -> Survivors:
    headers = spans.headers
    batch = [spans.batch[index] for index in kept]
    start = [spans.start[index] for index in kept]
    is_tombstone = []
    for index in kept:
        behind_key = spans.key_at[index] + max(spans.key_size[index], 0)
        is_tombstone.append(decode_signed(data, behind_key)[0] < 0)
    times = [
        headers.max_timestamp_ms[of]
        if headers.attributes[of] & LOG_APPEND_TIME_BIT
        else headers.base_timestamp_ms[of] + timestamp_delta(data, at)
        for of, at in zip(batch, start, strict=True)
    ]
    return Survivors(batch, start, [spans.end[index] for index in kept], is_tombstone, times)


def _without_old_tombstones(
    survivors: Survivors, spans: RecordSpans, passing: Container[int], now_ms: int
) -> Survivors:
    """Tombstones go when the horizon of their batch has come; what they deleted went long before."""
    attributes, base_ms = spans.headers.attributes, spans.headers.base_timestamp_ms
    expired = {
        index
        for index, of in enumerate(survivors.batch)
        if survivors.is_tombstone[index]
        and of not in passing
        and attributes[of] & DELETE_HORIZON_BIT
        and base_ms[of] <= now_ms
    }
    if not expired:
        return survivors
    rows = (row for index, row in enumerate(zip(*survivors, strict=True)) if index not in expired)
    return Survivors(*(map(list, zip(*rows, strict=True)))) if len(expired) < len(survivors.batch) else _NONE


def as_lists(headers: BatchHeaders) -> BatchHeaders:
    """The same, and quick to look into one by one."""
    return BatchHeaders(*map(as_list, headers))
