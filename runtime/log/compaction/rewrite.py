"""Builds batches with fewer records, as Kafka's ``MemoryRecords.filterTo`` does.

Base offset, last offset, leader epoch and producer of the batch stay, so the offsets of its records and the next
expected offset do not change. The bytes of a record stay too, unless a delete horizon is set: then its timestamp delta
is relative to the horizon.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ...disk.crc import crc32c
from ..format.batch import CODEC_BITS, CRC_FROM, HEADER_BYTES, LEADER_EPOCH, LOG_APPEND_TIME_BIT, MAGIC, PREFIX_BYTES
from ..format.varint import decode_signed, encode_length, encode_signed

DELETE_HORIZON_BIT = 0x40
"""Of the attributes: the base timestamp is the time after which tombstones and markers may be removed (KIP-534)."""

_HEADER = Struct(">qiibIhiqqqhii")
_CRC_AT = 17
_CRC = Struct(">I")


def filter_batch(data: bytes, at: int, records: bytes, count: int, max_timestamp_ms: int) -> bytes:
    """The batch at ``at`` with a part of its records, which keep their bytes; ``max_timestamp_ms`` is the newest."""
    base, _, epoch, magic, _, attributes, last, base_ms, max_ms, *rest = _HEADER.unpack_from(data, at)
    if not attributes & LOG_APPEND_TIME_BIT:
        max_ms = max_timestamp_ms
    return _batch((base, epoch, magic, attributes, last, base_ms, max_ms, *rest[:-1]), count, records)


def empty_batch(data: bytes, at: int) -> bytes:
    """The batch at ``at`` without records: it keeps only the next offset of the log."""
    base, _, epoch, magic, _, attributes, last, _, max_ms, *rest = _HEADER.unpack_from(data, at)
    remaining = attributes & ~(DELETE_HORIZON_BIT | CODEC_BITS)
    return _batch((base, epoch, magic, remaining, last, max_ms, max_ms, *rest[:-1]), 0, b"")


def set_delete_horizon(
    data: bytes, at: int, spans: Iterable[tuple[int, int]], timestamps_ms: list[int], horizon_ms: int
) -> bytes:
    """The batch at ``at`` with the records at ``spans``, which have these timestamps, and with a delete horizon."""
    base, _, epoch, magic, _, attributes, last, _, max_ms, *rest = _HEADER.unpack_from(data, at)
    if not attributes & LOG_APPEND_TIME_BIT:
        max_ms = max(timestamps_ms)
    records = [
        _with_delta(data, start, end, timestamp - horizon_ms)
        for (start, end), timestamp in zip(spans, timestamps_ms, strict=True)
    ]
    fields = base, epoch, magic, attributes | DELETE_HORIZON_BIT, last, horizon_ms, max_ms, *rest[:-1]
    return _batch(fields, len(records), b"".join(records))


def timestamp_delta(data: bytes, start: int) -> int:
    """The timestamp of the record at ``start`` relative to its batch's base timestamp, in ms."""
    _, body = decode_signed(data, start)
    return decode_signed(data, body + 1)[0]


def _with_delta(data: bytes, start: int, end: int, delta_ms: int) -> bytes:
    _, body = decode_signed(data, start)
    _, delta_end = decode_signed(data, body + 1)
    content = data[body : body + 1] + encode_signed(delta_ms) + data[delta_end:end]
    return encode_length(len(content)) + content


def _batch(fields: tuple[int, ...], count: int, records: bytes) -> bytes:
    base, epoch, magic, *inside = fields
    size = HEADER_BYTES + len(records)
    batch = bytearray(size)
    _HEADER.pack_into(batch, 0, base, size - PREFIX_BYTES, epoch, magic, 0, *inside, count)
    batch[HEADER_BYTES:] = records
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def filler_batch(base_offset: int, last_offset: int, timestamp_ms: int) -> bytes:
    """A batch without records that covers a range of offsets, to replace unreadable bytes."""
    inside = 0, last_offset - base_offset, timestamp_ms, timestamp_ms, -1, -1, -1
    return _batch((base_offset, LEADER_EPOCH, MAGIC, *inside), 0, b"")
