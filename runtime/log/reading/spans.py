"""The positions of all records, keys and values in a buffer of whole batches, as columns: nothing is decoded or copied.

Loading and compaction visit every record of a log and keep few, so they read positions first and then only the bytes
that they need. A buffer is a chunk of about 8 MiB: its columns fit into the processor's caches, and memory is bounded.

With numpy the columns are arrays of int64 (``spans_fast``), without it lists of int, with the same numbers. Columns
that only some readers need (offsets, timestamps, values) are computed on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct

from ...disk.crc import crc32c
from ..format.batch import (
    CODEC_BITS,
    CRC_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OFFSET_MAX,
    MAGIC,
    PREFIX_BYTES,
    read_batch,
)
from ..format.codecs import CODECS
from ..format.errors import UnsupportedCompression
from ..format.varint import decode_signed
from .columns import BatchHeaders, LazyColumns, RecordSpans, has_numpy

Columns = tuple[list[int], list[int], list[int], list[int], list[int]]

_HEADER = Struct(">qiibIhiqqqhii")


def read_spans(
    data: bytes, starts: Sequence[int], *, fast: bool | None = None, source: str = "buffer", position: int = 0
) -> RecordSpans:
    """The columns of the batches that begin at ``starts``, all of them whole, checked and in order.

    ``fast``: whether to use numpy; None: if it is installed. ``source`` and ``position``, the origin of the buffer, are
    for error texts. Raises UnsupportedCompression for a compressed batch, and DamagedBatch if the records do not fit
    their batch although its checksum is right.
    """
    if has_numpy() if fast is None else fast:
        from .spans_fast import read_fast

        spans = read_fast(data, starts)
        if spans is not None:
            return spans  # None: a batch is unusual
    headers = read_headers(data, starts)
    _refuse_compressed(headers, source, position)
    try:
        columns = _read_plain(data, headers)
    except (IndexError, ValueError):
        return _read_carefully(data, headers, source, position)
    return RecordSpans(headers, *columns, partial(_lazy_columns, data, headers, columns, source, position))


def whole_batches(data: bytes | memoryview) -> tuple[list[int], int]:
    """The positions of the valid batches of a buffer, up to the first invalid or incomplete one, and its position."""
    view = memoryview(data)
    at, all_bytes = 0, len(view)
    starts: list[int] = []
    while at + HEADER_BYTES <= all_bytes:
        base_offset, length, _, magic, crc, _, last_delta, *_, count = _HEADER.unpack_from(view, at)
        end = at + PREFIX_BYTES + length
        if magic != MAGIC or not 0 <= base_offset <= LOG_OFFSET_MAX - last_delta or last_delta < 0 or count < 0:
            break
        if not at + HEADER_BYTES <= end <= all_bytes or crc32c(view[at + CRC_FROM : end]) != crc:
            break
        starts.append(at)
        at = end
    return starts, at


def read_headers(data: bytes | memoryview, starts: Sequence[int]) -> BatchHeaders:
    """The header columns of the batches, as lists."""
    rows = [_header(at, *_HEADER.unpack_from(data, at)) for at in starts]
    return (
        BatchHeaders(*map(list, zip(*rows, strict=True))) if rows else BatchHeaders(*([] for _ in BatchHeaders._fields))
    )


def _header(at: int, base: int, length: int, *fields: int) -> tuple[int, ...]:
    _epoch, _magic, _crc, attributes, last_delta, base_ms, max_ms, producer, epoch, _sequence, count = fields
    end = at + PREFIX_BYTES + length
    return at, end, base, base + last_delta, attributes, base_ms, max_ms, producer, epoch, count


def _refuse_compressed(headers: BatchHeaders, source: str, position: int) -> None:
    for at, attributes in zip(headers.at, headers.attributes, strict=True):
        if attributes & CODEC_BITS:
            raise UnsupportedCompression(CODECS[attributes & CODEC_BITS], position + at, source)


# Without numpy -------------------------------------------------------------------------------------------------------


def _read_plain(data: bytes, headers: BatchHeaders) -> Columns:
    """The hottest loop of loading without numpy. Raises IndexError or ValueError for an unusual record."""
    start: list[int] = []
    end: list[int] = []
    key_at: list[int] = []
    key_size: list[int] = []
    add_start, add_end, add_key_at, add_key_size = start.append, end.append, key_at.append, key_size.append
    for batch_at, batch_end, count in zip(headers.at, headers.end, headers.record_count, strict=True):
        at = batch_at + HEADER_BYTES
        for _ in range(count):
            add_start(at)
            low = data[at]
            if low < 0x80:
                at += 1
                length = low
            elif (high := data[at + 1]) < 0x80:
                at += 2
                length = low & 0x7F | high << 7
            else:
                signed, at = decode_signed(data, at)
                length = signed * 2
            stop = at + (length >> 1)
            add_end(stop)
            at += 1
            while data[at] >= 0x80:  # the timestamp's delta
                at += 1
            at += 1
            while data[at] >= 0x80:  # the offset's delta
                at += 1
            at += 1
            low = data[at]
            if low < 0x80:
                at += 1
                size = low >> 1 if not low & 1 else -1
                is_unusual = low & 1 and low != 1
            else:
                size, at = decode_signed(data, at)
                is_unusual = size < -1
            if is_unusual or length & 1 or at + size >= stop or stop > batch_end:
                raise ValueError("unusual")
            add_key_at(at)
            add_key_size(size)
            at = stop
    batch = [index for index, count in enumerate(headers.record_count) for _ in range(count)]
    return start, end, key_at, key_size, batch


def _lazy_columns(data: bytes, headers: BatchHeaders, columns: Columns, source: str, position: int) -> LazyColumns:
    try:
        return _read_lazy_columns(data, headers, columns)
    except ValueError:
        return _read_carefully(data, headers, source, position).lazy


def _read_lazy_columns(data: bytes, headers: BatchHeaders, columns: Columns) -> LazyColumns:
    """Raises ValueError if a value does not fit its record."""
    base_offset, base_ms, max_ms = headers.base_offset, headers.base_timestamp_ms, headers.max_timestamp_ms
    appended = [attributes & LOG_APPEND_TIME_BIT for attributes in headers.attributes]
    lazy = LazyColumns([], [], [], [])
    for start, end, key_at, key_size, batch in zip(*columns, strict=True):
        _length, at = decode_signed(data, start)
        timestamp_delta_ms, at = decode_signed(data, at + 1)
        lazy.offset.append(base_offset[batch] + decode_signed(data, at)[0])
        lazy.timestamp_ms.append(max_ms[batch] if appended[batch] else base_ms[batch] + timestamp_delta_ms)
        value_size, value_at = decode_signed(data, key_at + key_size if key_size > 0 else key_at)
        if value_size < -1 or value_at + value_size > end:
            raise ValueError("unusual")
        lazy.value_at.append(value_at)
        lazy.value_size.append(value_size)
    return lazy


# Carefully -----------------------------------------------------------------------------------------------------------


def _read_carefully(data: bytes, headers: BatchHeaders, source: str, position: int) -> RecordSpans:
    """Read field by field, as ``Batch.records`` does. Raises its DamagedBatch."""
    columns: Columns = [], [], [], [], []
    lazy = LazyColumns([], [], [], [])
    for index, at in enumerate(headers.at):
        batch = read_batch(memoryview(data), at, position + at, source)
        list(batch.records())  # raises DamagedBatch with the reason
        for *positions, value_at, value_size in _record_positions(data, at, batch.record_count):
            for column, number in zip(columns, (*positions, index), strict=True):
                column.append(number)
            lazy.value_at.append(value_at)
            lazy.value_size.append(value_size)
        for offset, timestamp_ms, _key, _value in batch.records():
            lazy.offset.append(offset)
            lazy.timestamp_ms.append(timestamp_ms)
    return RecordSpans(headers, *columns, lambda: lazy)


def _record_positions(data: bytes, batch_at: int, count: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Start, end, key position, key size, value position and value size of records that fit their batch."""
    end = batch_at + HEADER_BYTES
    for _ in range(count):
        start = end
        length, at = decode_signed(data, start)
        end = at + length
        _timestamp, at = decode_signed(data, at + 1)
        _offset, at = decode_signed(data, at)
        key_size, key_at = decode_signed(data, at)
        value_size, value_at = decode_signed(data, key_at + max(key_size, 0))
        yield start, end, key_at, key_size, value_at, value_size
