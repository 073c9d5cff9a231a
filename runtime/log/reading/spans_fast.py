"""The columns of ``spans`` with numpy: the same numbers, several times as fast.

Where a record begins is known only when the one before it was read, so that much is done one by one: in lock-step, the
k-th record of all batches at once, where batches are many and short; in a plain loop otherwise. All else is arithmetic
on whole columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..format.batch import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME_BIT, PREFIX_BYTES
from ..format.varint import decode_signed
from .columns import BatchHeaders, LazyColumns, RecordSpans

Array = Any  # numpy's; its own type says nothing of what is in it

_LOCK_STEP_PAYS = 100  # records for each step; a step costs some 20 us however few batches take part in it
_USUAL_MS = 1 << 61  # what is larger could leave the 64 bits when it is added to
_VARINT_BITS = 56  # of the eight bytes that are looked at


class _Unusual(Exception):
    """Something that the careful reader has to look at."""


def read_fast(data: bytes, starts: Any) -> RecordSpans | None:
    """As ``read_spans``; None when a batch is compressed, damaged or otherwise unusual."""
    try:
        return _read(data, np.asarray(starts, dtype=np.int64))
    except (_Unusual, IndexError, ValueError):
        return None


def _read(data: bytes, at: Array) -> RecordSpans:
    headers = _headers(data, at)
    start = _starts(data, headers)
    batch = np.repeat(np.arange(len(at)), headers.record_count)
    octets = np.frombuffer(data, dtype=np.uint8)
    length, body = _varints(octets, start)
    end = body + length
    timestamp_delta_ms, place = _varints(octets, body + 1)
    offset_delta, place = _varints(octets, place)
    key_size, key_at = _varints(octets, place)
    value_size, value_at = _varints(octets, key_at + np.maximum(key_size, 0))
    _check(headers, batch, (length, end, key_size, value_size, value_at))

    def rest() -> LazyColumns:
        timestamp_ms = headers.base_timestamp_ms[batch] + timestamp_delta_ms
        appended = headers.attributes[batch] & LOG_APPEND_TIME_BIT != 0
        return LazyColumns(
            headers.base_offset[batch] + offset_delta,
            np.where(appended, headers.max_timestamp_ms[batch], timestamp_ms),
            value_at,
            value_size,
        )

    return RecordSpans(headers, start, end, key_at, key_size, batch, rest)


def _check(headers: BatchHeaders, batch: Array, columns: tuple[Array, ...]) -> None:
    """As strict as the plain reader or stricter; what is refused here is read with care."""
    length, end, key_size, value_size, value_at = columns
    odd = (length < 0) | (key_size < -1) | (value_size < -1) | (end > headers.end[batch])
    if np.any(odd) or np.any(value_at + value_size > end):
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
    far = np.maximum(np.abs(base_ms), base) > _USUAL_MS
    if np.any(attributes & CODEC_BITS) or np.any(far) or np.any(count < 0):
        raise _Unusual
    producer_id, epoch = gather(data, at + 43, ">i8"), gather(data, at + 51, ">i2")
    return BatchHeaders(at, end, base, last, attributes, base_ms, max_ms, producer_id, epoch, count)


def gather(data: bytes, at: Array, form: str) -> Array:
    """Numbers at any places. Not with ``take``, which would first copy the overlapping view as a whole."""
    size = np.dtype(form).itemsize
    return np.ndarray((len(data) - size + 1,), form, data, 0, (1,))[at].astype(np.int64)


def _varints(octets: Array, at: Array) -> tuple[Array, Array]:
    """The signed numbers at some places, and the places behind them."""
    low = octets[at].astype(np.int64)
    value, behind, shift = low & 0x7F, at + 1, 7
    more = np.flatnonzero(low >= 0x80)
    while len(more):
        if shift >= _VARINT_BITS:
            raise _Unusual
        byte = octets[behind[more]].astype(np.int64)
        value[more] |= (byte & 0x7F) << shift
        behind[more] += 1
        more, shift = more[byte >= 0x80], shift + 7
    return (value >> 1) ^ -(value & 1), behind


def _starts(data: bytes, headers: BatchHeaders) -> Array:
    counts = headers.record_count
    total = int(counts.sum())
    if total > len(data):
        raise _Unusual
    most = int(counts.max(initial=0))
    if total > _LOCK_STEP_PAYS * most:
        return _starts_in_lock_step(data, headers.at + HEADER_BYTES, counts, total)
    return np.asarray(_starts_one_by_one(data, headers), dtype=np.int64)


def _starts_in_lock_step(data: bytes, first: Array, counts: Array, total: int) -> Array:
    octets = np.frombuffer(data, dtype=np.uint8)
    order = np.argsort(-counts, kind="stable")  # the longest first: those that go on are always a beginning
    places, slots = first[order], (np.cumsum(counts) - counts)[order]
    going = np.searchsorted(-counts[order], -np.arange(int(counts.max(initial=0))), side="left")
    found = np.empty(total, dtype=np.int64)
    for step, active in enumerate(going.tolist()):
        here = places[:active]
        found[slots[:active] + step] = here
        length, behind = _varints(octets, here)
        places[:active] = behind + length
    return found


def _starts_one_by_one(data: bytes, headers: BatchHeaders) -> list[int]:
    found: list[int] = []
    add = found.append
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
    return found
