"""Kafka's RecordBatch, magic 2: encoding as Kafka's coordinator writes it, and decoding.

::

    at  size  field                       written
     0     8  base offset                 assigned by the log
     8     4  length of the rest
    12     4  partition leader epoch      0: there is only one leader
    16     1  magic                       2
    17     4  CRC-32C from byte 21 on     so offset and epoch can change without it
    21     2  attributes                  bits 0-2 codec (0), 3 log append time (0), 4 transactional, 5 control
    23     4  last offset delta
    27     8  base timestamp              of the first record, create time
    35     8  max timestamp
    43     8  producer id                 -1, or the transaction's
    51     2  producer epoch              -1, or the transaction's
    53     4  base sequence               0, as the coordinator writes it, -1 in a control batch; readers ignore it
    57     4  number of records
    61        records: length, attributes int8, timestamp delta, offset delta, key, value, headers (all varints)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ...disk.crc import crc32c
from .codecs import INFLATED_MAX, decompress
from .errors import DamagedBatch, OffsetTooLarge
from .varint import decode_signed, encode_length, encode_signed

MAGIC = 2
LEADER_EPOCH = 0
HEADER_BYTES = 61
PREFIX_BYTES = 12  # base offset and length: enough to compute the batch's size
CRC_FROM = 21
LOG_OFFSET_MAX = 2**62
"""The largest offset of a record. A file with a larger one is damaged.

A million records per second reach it in 146,000 years. Sums of offsets near 2^63 would not fit 64 bits.
"""

CODEC_BITS = 0x07  # of the attributes
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

_CONTROL = TRANSACTIONAL_BIT | CONTROL_BIT

_PREFIX = Struct(">qi")
_OUTSIDE_CRC = Struct(">qiibI")
_INSIDE_CRC = Struct(">hiqqqhii")
_HEADER = Struct(">qiibIhiqqqhii")
_LAST_OFFSET_DELTA = Struct(">i")
_TIMESTAMP = Struct(">q")
assert _OUTSIDE_CRC.size == CRC_FROM
assert _HEADER.size == HEADER_BYTES == CRC_FROM + _INSIDE_CRC.size


def frame_record(timestamp_delta_ms: int, offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """The bytes of one record in a batch, without headers; a value of None is a tombstone."""
    body = b"".join(
        (
            b"\0",
            encode_signed(timestamp_delta_ms),
            encode_length(offset_delta),
            b"\1" if key is None else encode_length(len(key)) + key,
            b"\1" if value is None else encode_length(len(value)) + value,
            b"\0",
        )
    )
    return encode_length(len(body)) + body


class Producer(NamedTuple):
    """The producer of the transaction that a batch belongs to; a control batch ends the transaction."""

    producer_id: int
    epoch: int
    is_control: bool = False


def encode_batch(
    base_offset: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    records: Sequence[bytes],
    producer: Producer | None = None,
) -> bytes:
    """The bytes of a batch of framed records. Their offset deltas must be 0, 1, 2, ..."""
    count = len(records)
    if producer is None:
        inside = _INSIDE_CRC.pack(0, count - 1, base_timestamp_ms, max_timestamp_ms, -1, -1, 0, count)
    else:
        attributes, sequence = (_CONTROL, -1) if producer.is_control else (TRANSACTIONAL_BIT, 0)
        producer_fields = producer.producer_id, producer.epoch, sequence
        inside = _INSIDE_CRC.pack(attributes, count - 1, base_timestamp_ms, max_timestamp_ms, *producer_fields, count)
    checked = inside + b"".join(records)
    length = len(checked) + CRC_FROM - PREFIX_BYTES
    return _OUTSIDE_CRC.pack(base_offset, length, LEADER_EPOCH, MAGIC, crc32c(checked)) + checked


def with_records(batch: Batch, attributes: int, records: bytes, record_count: int | None = None) -> bytes:
    """The bytes of ``batch`` with other attributes and records, by default as many as before."""
    fields = _INSIDE_CRC.unpack_from(batch.data, CRC_FROM)[1:-1]
    checked = _INSIDE_CRC.pack(attributes, *fields, batch.record_count if record_count is None else record_count)
    checked += records
    base_offset, _, leader_epoch, magic, _ = _OUTSIDE_CRC.unpack_from(batch.data)
    length = len(checked) + CRC_FROM - PREFIX_BYTES
    return _OUTSIDE_CRC.pack(base_offset, length, leader_epoch, magic, crc32c(checked)) + checked


def timestamp_of(batch: bytes | memoryview) -> int:
    """The newest timestamp in a complete batch, in ms since 1970."""
    return int(_TIMESTAMP.unpack_from(batch, 35)[0])


def offsets_of(batch: bytes | memoryview) -> tuple[int, int]:
    """First and last offset of a complete batch."""
    base, _ = _PREFIX.unpack_from(batch)
    return base, base + int(_LAST_OFFSET_DELTA.unpack_from(batch, 23)[0])


def attributes_of(batch: bytes | memoryview) -> int:
    """The attributes of a complete batch."""
    return int.from_bytes(batch[CRC_FROM : CRC_FROM + 2])


class Batch(NamedTuple):
    """A complete batch with a correct checksum. ``position``: its first byte in ``source``. ``size``: in bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    data: bytes | memoryview
    source: str
    producer_id: int
    producer_epoch: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it ends a transaction and has no data."""
        return bool(self.attributes & CONTROL_BIT)

    def records(
        self, is_read: Callable[[int, int], bool] | None = None
    ) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """Offset, timestamp in ms, key and value of each record, decoded lazily.

        ``is_read`` gets the positions in ``data`` where a record begins, after its length, and where it ends. Records
        for which it returns True are left out. It is not called for compressed batches.

        Raises UnsupportedCompression for an unsupported codec, DamagedBatch where records do not match the batch.
        """
        if self.attributes & CODEC_BITS:
            yield from inflate(self).records()
            return
        at = HEADER_BYTES
        for index in range(self.record_count):
            try:
                length, start = decode_signed(self.data, at)
                at = start + length
                if length < 0 or at > self.size:
                    raise ValueError(f"it claims {length} bytes")
                if is_read is None or not is_read(start, at):
                    yield self._record(start, at)
            except ValueError as error:
                reason = f"record {index} of {self.record_count}: {error}"
                raise DamagedBatch(self.position, reason, self.source) from None

    def _record(self, start: int, stop: int) -> tuple[int, int, bytes | None, bytes | None]:
        data = self.data
        timestamp_delta_ms, at = decode_signed(data, start + 1)
        offset_delta, at = decode_signed(data, at)
        key, at = _field(data, at, stop)
        value, at = _field(data, at, stop)
        if self.attributes & LOG_APPEND_TIME_BIT:
            return self.base_offset + offset_delta, self.max_timestamp_ms, key, value
        return self.base_offset + offset_delta, self.base_timestamp_ms + timestamp_delta_ms, key, value


def _field(data: bytes | memoryview, at: int, stop: int) -> tuple[bytes | None, int]:
    length, at = decode_signed(data, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > stop:
        raise ValueError(f"a field of {length} bytes, {stop - at} left")
    return bytes(data[at : at + length]), at + length


def read_size(data: bytes | memoryview, at: int) -> int | None:
    """The size in bytes that the batch at ``at`` states; None when too few bytes are left."""
    if at + PREFIX_BYTES > len(data):
        return None
    _, length = _PREFIX.unpack_from(data, at)
    return PREFIX_BYTES + int(length)


def read_batch(data: memoryview, at: int = 0, position: int | None = None, source: str = "buffer") -> Batch:
    """The batch at ``at``, with size, magic, CRC, counts and offsets checked.

    Raises DamagedBatch with ``position`` (default ``at``), OffsetTooLarge when only the offsets are wrong.
    """
    position = at if position is None else position
    size = read_size(data, at)
    left = len(data) - at
    if size is None or size > left:
        raise DamagedBatch(position, f"cut off: {left} bytes are left of {size or 'a header'}", source)
    if size < HEADER_BYTES:
        raise DamagedBatch(position, f"its length says {size} bytes, expected at least {HEADER_BYTES}", source)
    base, _, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer, epoch, _, count = _HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        raise DamagedBatch(position, f"magic {magic}, expected {MAGIC}", source)
    checksum = crc32c(data[at + CRC_FROM : at + size])
    if checksum != crc:
        raise DamagedBatch(position, f"checksum {checksum:#010x}, expected {crc:#010x}", source)
    if base < 0 or last_delta < 0 or count < 0:
        raise DamagedBatch(
            position, f"base offset {base}, last offset delta {last_delta}, record count {count}", source
        )
    body = data[at : at + size]
    last = base + last_delta
    if last > LOG_OFFSET_MAX:
        raise OffsetTooLarge(position, f"offsets {base} to {last}, expected at most {LOG_OFFSET_MAX}", source)
    return Batch(position, size, base, last, attributes, base_ms, max_ms, count, body, source, producer, epoch)


def inflate(batch: Batch, bytes_max: int = INFLATED_MAX) -> Batch:
    """The same batch with uncompressed records, of at most ``bytes_max``; the argument itself if it is not compressed.

    UnsupportedCompression and DamagedBatch as in ``codecs.decompress``.
    """
    codec = batch.attributes & CODEC_BITS
    if not codec:
        return batch
    records = decompress(codec, bytes(batch.data[HEADER_BYTES:]), batch.position, batch.source, bytes_max)
    data = with_records(batch, batch.attributes & ~CODEC_BITS, records)
    return read_batch(memoryview(data), 0, batch.position, batch.source)


def inflate_buffer(data: bytes, starts: Sequence[int], source: str, position: int = 0) -> tuple[bytes, list[int]]:
    """A buffer of whole batches without compression, and where they begin there. Errors as in ``inflate``."""
    view = memoryview(data)
    batches = [inflate(read_batch(view, start, position + start, source)) for start in starts]
    inflated_starts, size = [], 0
    for batch in batches:
        inflated_starts.append(size)
        size += batch.size
    return b"".join(batch.data for batch in batches), inflated_starts


def read_batches(data: bytes | memoryview, source: str = "buffer") -> Iterator[Batch]:
    """All batches of a buffer, in order; DamagedBatch at the first that is truncated or invalid."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        batch = read_batch(view, at, source=source)
        yield batch
        at += batch.size
