"""The columns of ``spans`` with numpy: the same numbers, several times as fast.

The start of a record depends on the length of the record before it, so the starts are found step by step: for many
short batches in lock-step, the k-th record of all batches at once, otherwise in a plain loop. The rest is arithmetic on
whole columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..format.batch import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME_BIT, PREFIX_BYTES
from ..format.varint import decode_signed
from .columns import BatchHeaders, LazyColumns, RecordSpans

Array = Any  # numpy.ndarray, whose own type does not tell the element type either

_LOCK_STEP_MIN_RECORDS_PER_STEP = 100  # a step costs some 20 us, however few batches it covers
_MAX_ABSOLUTE = 1 << 61  # sums with larger numbers could overflow 64 bits
_VARINT_BITS = 56  # in the eight bytes that are read at most


class _Unusual(Exception):
    """Something that only the careful reader of ``spans`` handles."""


def read_fast(data: bytes, starts: Any) -> RecordSpans | None:
    """As ``read_spans``; None if a batch is compressed, damaged or otherwise unusual."""
    try:
        return _read(data, np.asarray(starts, dtype=np.int64))
    except (_Unusual, IndexError, ValueError):
        return None


def _read(data: bytes, at: Array) -> RecordSpans:
    headers = _headers(data, at)
    start = _starts(data, headers)
    batch = np.repeat(np.arange(len(at)), headers.record_count)
    bytes_array = np.frombuffer(data, dtype=np.uint8)
    length, body = _varints(bytes_array, start)
    end = body + length
    timestamp_delta_ms, at_next = _varints(bytes_array, body + 1)
    offset_delta, at_next = _varints(bytes_array, at_next)
    key_size, key_at = _varints(bytes_array, at_next)
    value_size, value_at = _varints(bytes_array, key_at + np.maximum(key_size, 0))
    _check(headers, batch, (length, end, key_size, value_size, value_at))

    def lazy_columns() -> LazyColumns:
        timestamp_ms = headers.base_timestamp_ms[batch] + timestamp_delta_ms
        appended = headers.attributes[batch] & LOG_APPEND_TIME_BIT != 0
        return LazyColumns(
            headers.base_offset[batch] + offset_delta,
            np.where(appended, headers.max_timestamp_ms[batch], timestamp_ms),
            value_at,
            value_size,
        )

    return RecordSpans(headers, start, end, key_at, key_size, batch, lazy_columns)


def _check(headers: BatchHeaders, batch: Array, columns: tuple[Array, ...]) -> None:
    """Raise _Unusual unless the columns are consistent; at least as strict as the plain reader."""
    length, end, key_size, value_size, value_at = columns
    is_unusual = (length < 0) | (key_size < -1) | (value_size < -1) | (end > headers.end[batch])
    if np.any(is_unusual) or np.any(value_at + value_size > end):
        raise _Unusual


def _headers(data: bytes, at: Array) -> BatchHeaders:
    if not len(at):
        return BatchHeaders(*(at for _ in BatchHeaders._fields))
    base = gather(data, at, ">i8")
    attributes = gather(data, at + 21, ">i2")
    base_ms, max_ms = gather(data, at + 27, ">i8"), gather(data, at + 35, ">i8")
    last = base + gather(data, at + 23, ">i4")
    end = at + PREFIX_BYTES + gather(data, at + 8, ">i4")
    count = gather(data, at + 57, ">i4")
    is_too_large = np.maximum(np.abs(base_ms), base) > _MAX_ABSOLUTE
    if np.any(attributes & CODEC_BITS) or np.any(is_too_large) or np.any(count < 0):
        raise _Unusual
    producer_id, epoch = gather(data, at + 43, ">i8"), gather(data, at + 51, ">i2")
    return BatchHeaders(at, end, base, last, attributes, base_ms, max_ms, producer_id, epoch, count)


def gather(data: bytes, at: Array, dtype: str) -> Array:
    """The numbers at any positions. ``take`` would first copy the whole overlapping view."""
    size = np.dtype(dtype).itemsize
    return np.ndarray((len(data) - size + 1,), dtype, data, 0, (1,))[at].astype(np.int64)


def _varints(bytes_array: Array, at: Array) -> tuple[Array, Array]:
    """The signed numbers at some positions, and the positions after them."""
    low = bytes_array[at].astype(np.int64)
    value, end_at, shift = low & 0x7F, at + 1, 7
    unfinished = np.flatnonzero(low >= 0x80)
    while len(unfinished):
        if shift >= _VARINT_BITS:
            raise _Unusual
        byte = bytes_array[end_at[unfinished]].astype(np.int64)
        value[unfinished] |= (byte & 0x7F) << shift
        end_at[unfinished] += 1
        unfinished, shift = unfinished[byte >= 0x80], shift + 7
    return (value >> 1) ^ -(value & 1), end_at


def _starts(data: bytes, headers: BatchHeaders) -> Array:
    counts = headers.record_count
    total = int(counts.sum())
    if total > len(data):
        raise _Unusual
    longest = int(counts.max(initial=0))
    if total > _LOCK_STEP_MIN_RECORDS_PER_STEP * longest:
        return _starts_in_lock_step(data, headers.at + HEADER_BYTES, counts, total)
    return np.asarray(_starts_one_by_one(data, headers), dtype=np.int64)


def _starts_in_lock_step(data: bytes, first: Array, counts: Array, total: int) -> Array:
    bytes_array = np.frombuffer(data, dtype=np.uint8)
    order = np.argsort(-counts, kind="stable")  # longest first, so the batches still active are a prefix
    positions, slots = first[order], (np.cumsum(counts) - counts)[order]
    active_counts = np.searchsorted(-counts[order], -np.arange(int(counts.max(initial=0))), side="left")
    starts = np.empty(total, dtype=np.int64)
    for step, active in enumerate(active_counts.tolist()):
        active_positions = positions[:active]
        starts[slots[:active] + step] = active_positions
        length, end_at = _varints(bytes_array, active_positions)
        positions[:active] = end_at + length
    return starts


def _starts_one_by_one(data: bytes, headers: BatchHeaders) -> list[int]:
    starts: list[int] = []
    add = starts.append
    for at, count in zip((headers.at + HEADER_BYTES).tolist(), headers.record_count.tolist(), strict=True):
        for _ in range(count):
            add(at)
            low = data[at]
            if low < 0x80:
                at += 1 + (low >> 1)
            elif (high := data[at + 1]) < 0x80:
                at += 2 + ((low & 0x7F | high << 7) >> 1)
            else:
                length, at = decode_signed(data, at)
                at += length
    return starts
