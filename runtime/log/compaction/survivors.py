"""Selects the records of a chunk to keep; chunks are processed from the newest to the oldest.

A record is kept if no newer record has its key, so the only state is the set of keys seen so far (``seen``). Keys are
compared as raw bytes; record contents and versions do not matter.
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

_MARKER_TYPE = Struct(">h")
_MARKER_TYPE_AT = 2  # in a control record's key, after its version


class OpenTransaction(Exception):
    """A transaction without a marker so far: nothing from its first offset on may be compacted."""

    def __init__(self, offset: int, producer_id: int) -> None:
        super().__init__(f"offset {offset} is in an open transaction of producer {producer_id}")
        self.offset = offset
        self.producer_id = producer_id


class Survivors(NamedTuple):
    """The kept records in order, as columns. ``batch``: the index of the batch; ``start`` and ``end``: the bounds."""

    batch: list[int]
    start: list[int]
    end: list[int]
    is_tombstone: list[bool]
    timestamp_ms: list[int]


_NO_SURVIVORS = Survivors([], [], [], [], [])


class CleaningState:
    """State from newer chunks: the keys, and for each producer whether its latest earlier transaction was committed."""

    def __init__(self, seen: SeenKeys, outcomes: Mapping[int, bool]) -> None:
        """``outcomes``: for transactions whose marker is after the files read: whether committed, by producer id."""
        self.seen = seen
        self.committed = dict(outcomes)


def select_survivors(state: CleaningState, data: bytes, spans: RecordSpans, now_ms: int) -> Survivors:
    """Select the records of a chunk to keep, and update ``state``. Raises OpenTransaction for a batch of one."""
    marker_batches, aborted_batches = _transactions(state, data, spans)
    candidates = state.seen.find_possibly_new(data, spans)
    at, sizes = _values_at(spans.key_at, candidates), _values_at(spans.key_size, candidates)
    keys = [data[first : first + size] for first, size in zip(at, sizes, strict=True)]
    newest = dict(zip(keys, as_list(candidates), strict=True))
    if marker_batches or aborted_batches or b"" in newest:
        entries = zip(keys, as_list(candidates), sizes, _values_at(spans.batch, candidates), strict=True)
        not_data = marker_batches.keys() | aborted_batches
        newest = {key: index for key, index, size, batch in entries if size >= 0 and batch not in not_data}
    selected = state.seen.add(newest)
    if marker_batches:
        selected = sorted(chain(selected, *marker_batches.values()))
    survivors = _take_plain(data, spans, selected) if isinstance(spans.start, list) else _take_numpy(spans, selected)
    return _without_old_tombstones(survivors, spans, marker_batches, now_ms)


def _transactions(state: CleaningState, data: bytes, spans: RecordSpans) -> tuple[dict[int, range], set[int]]:
    """The record ranges of the marker batches, which are always kept, and the batches of aborted transactions."""
    marker_batches: dict[int, range] = {}
    aborted_batches: set[int] = set()
    headers = spans.headers
    attributes = as_list(headers.attributes)
    if not any(bits & TRANSACTIONAL_BIT for bits in attributes):
        return marker_batches, aborted_batches
    producer_ids, offsets, counts = map(as_list, (headers.producer_id, headers.base_offset, headers.record_count))
    first_record = sum(counts)
    for index in range(len(attributes) - 1, -1, -1):
        first_record -= counts[index]
        if attributes[index] & CONTROL_BIT:
            marker_batches[index] = range(first_record, first_record + counts[index])
            if counts[index] and spans.key_size[first_record] >= _MARKER_TYPE_AT + _MARKER_TYPE.size:
                _end_transaction(state, data, int(spans.key_at[first_record]), producer_ids[index])
        elif attributes[index] & TRANSACTIONAL_BIT and counts[index]:
            if producer_ids[index] not in state.committed:
                raise OpenTransaction(offsets[index], producer_ids[index])
            if not state.committed[producer_ids[index]]:
                aborted_batches.add(index)
    return marker_batches, aborted_batches


def _end_transaction(state: CleaningState, data: bytes, key_at: int, producer_id: int) -> None:
    (marker_type,) = _MARKER_TYPE.unpack_from(data, key_at + _MARKER_TYPE_AT)
    if marker_type in (ABORT, COMMIT):
        state.committed[producer_id] = marker_type == COMMIT


def _values_at(column: Column, indexes: Column) -> list[int]:
    """The numbers at these indexes. For a list, ``indexes`` are all indexes."""
    return column if isinstance(column, list) else list(column[indexes].tolist())


def _take_numpy(spans: RecordSpans, selected: list[int]) -> Survivors:
    import numpy as np

    at = np.asarray(selected, dtype=np.int64)
    columns = spans.batch, spans.start, spans.end, spans.value_size < 0, spans.timestamp_ms
    return Survivors(*(column[at].tolist() for column in columns))


def _take_plain(data: bytes, spans: RecordSpans, selected: list[int]) -> Survivors:
    headers = spans.headers
    batch = [spans.batch[index] for index in selected]
    start = [spans.start[index] for index in selected]
    is_tombstone = []
    for index in selected:
        value_length_at = spans.key_at[index] + max(spans.key_size[index], 0)
        is_tombstone.append(decode_signed(data, value_length_at)[0] < 0)
    times = [
        headers.max_timestamp_ms[batch_index]
        if headers.attributes[batch_index] & LOG_APPEND_TIME_BIT
        else headers.base_timestamp_ms[batch_index] + timestamp_delta(data, at)
        for batch_index, at in zip(batch, start, strict=True)
    ]
    return Survivors(batch, start, [spans.end[index] for index in selected], is_tombstone, times)


def _without_old_tombstones(
    survivors: Survivors, spans: RecordSpans, marker_batches: Container[int], now_ms: int
) -> Survivors:
    """Drop tombstones past the delete horizon of their batch. The records they deleted were dropped long before."""
    attributes, base_ms = spans.headers.attributes, spans.headers.base_timestamp_ms
    expired = {
        index
        for index, batch_index in enumerate(survivors.batch)
        if survivors.is_tombstone[index]
        and batch_index not in marker_batches
        and attributes[batch_index] & DELETE_HORIZON_BIT
        and base_ms[batch_index] <= now_ms
    }
    if not expired:
        return survivors
    entries = (row for index, row in enumerate(zip(*survivors, strict=True)) if index not in expired)
    return Survivors(*(map(list, zip(*entries, strict=True)))) if len(expired) < len(survivors.batch) else _NO_SURVIVORS


def as_lists(headers: BatchHeaders) -> BatchHeaders:
    """The headers with lists as columns, for fast access to single values."""
    return BatchHeaders(*map(as_list, headers))
