"""Reads the records of a stored batch with their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...actors.steps import ITEMS_PER_STEP
from ..log.format.batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, Batch, inflate, read_batch
from ..log.format.errors import DamagedBatch
from ..log.format.varint import decode_signed

NULL = -1

BYTES_PER_STEP = 256 * 1024
"""Bytes of records that are copied in one step."""


class KeyedRecord(NamedTuple):
    """A record. ``data``: its bytes in the batch, with its headers. A tombstone has no value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    is_tombstone: bool
    data: memoryview


def decompressed(data: bytes, bytes_max: int) -> Batch:
    """A stored batch without compression.

    Raises DamagedBatch, also for compressed records of more than ``bytes_max``, and UnsupportedCompression for an
    unknown codec.
    """
    return inflate(read_batch(memoryview(data)), bytes_max)


def keyed_records(batch: Batch) -> Iterator[KeyedRecord]:
    """The records of a batch without compression. Raises DamagedBatch where they do not fit the batch."""
    data, at = memoryview(batch.data), HEADER_BYTES
    try:
        for _ in range(batch.record_count):
            length, start = decode_signed(data, at)
            end = start + length
            if length < 1 or end > len(data):
                raise ValueError(f"a record of {length} bytes")
            yield _record(batch, data[at:end], start - at)
            at = end
    except ValueError as error:
        raise DamagedBatch(batch.position, str(error), batch.source) from None


def pieces_of(records: Iterable[KeyedRecord]) -> Iterator[Sequence[KeyedRecord]]:
    """Divide the records into pieces that a step can handle: few records, or few bytes."""
    piece: list[KeyedRecord] = []
    size_bytes = 0
    for record in records:
        piece.append(record)
        size_bytes += len(record.data)
        if len(piece) == ITEMS_PER_STEP or size_bytes >= BYTES_PER_STEP:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def _record(batch: Batch, data: memoryview, start: int) -> KeyedRecord:
    """``start``: where the record's attributes are, after its length."""
    timestamp_delta_ms, at = decode_signed(data, start + 1)
    offset_delta, at = decode_signed(data, at)
    key_length, at = decode_signed(data, at)
    key_end = at + max(key_length, 0)
    value_length, value_at = decode_signed(data, key_end)
    if value_at + max(value_length, 0) > len(data):
        raise ValueError(f"a value of {value_length} bytes")
    key = None if key_length == NULL else bytes(data[at:key_end])
    is_append_time = batch.attributes & LOG_APPEND_TIME_BIT
    timestamp_ms = batch.max_timestamp_ms if is_append_time else batch.base_timestamp_ms + timestamp_delta_ms
    return KeyedRecord(batch.base_offset + offset_delta, timestamp_ms, key, value_length == NULL, data)
