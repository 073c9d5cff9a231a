"""Validates record batches (magic 2) from producers before they are appended.

Records are stored as they were sent and never decompressed. So the record count is that of the header; the content of
a compressed batch is not checked.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ..disk.crc import crc32c
from ..log.format.batch import CRC_FROM, HEADER_BYTES, LEADER_EPOCH, LOG_APPEND_TIME_BIT, MAGIC, PREFIX_BYTES
from ..log.format.codecs import CODECS

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key length, value length, headers: a byte each
BATCH_LENGTH_MIN = 14  # Kafka's LegacyRecord.RECORD_OVERHEAD_V0, the minimum that it checks
KNOWN_CODECS = 5  # none, gzip, snappy, lz4, zstd; CODECS has a name for each of the eight values

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET_LENGTH_EPOCH = Struct(">qii")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_FROM = 35
_CODEC_BITS = 0x07
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20


class ProducerBatch(NamedTuple):
    """A checked batch: ``data`` as it was sent, and the header fields that the log needs. Times in ms."""

    data: bytes
    attributes: int
    record_count: int
    producer_id: int  # -1: the producer is not idempotent
    producer_epoch: int
    base_sequence: int
    max_timestamp_ms: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    def with_append_time(self, now_ms: int) -> ProducerBatch:
        """The batch whose records all have the time of the append, as readers learn from its header."""
        checked = bytearray(self.data[CRC_FROM:])
        _ATTRIBUTES.pack_into(checked, 0, self.attributes | LOG_APPEND_TIME_BIT)
        _MAX_TIMESTAMP.pack_into(checked, _MAX_TIMESTAMP_FROM - CRC_FROM, now_ms)
        data = b"".join((self.data[: CRC_FROM - _CRC.size], _CRC.pack(crc32c(checked)), checked))
        return self._replace(data=data, attributes=self.attributes | LOG_APPEND_TIME_BIT, max_timestamp_ms=now_ms)

    def with_base_offset(self, base_offset: int) -> bytes:
        """The batch as stored in the log. Offset and leader epoch are not covered by the checksum."""
        head = _OFFSET_LENGTH_EPOCH.pack(base_offset, len(self.data) - PREFIX_BYTES, LEADER_EPOCH)
        return b"".join((head, memoryview(self.data)[_OFFSET_LENGTH_EPOCH.size :]))


class BatchInfo(NamedTuple):
    """The header fields of a stored batch that searches by time need. Times in ms."""

    base_offset: int
    record_count: int
    is_compressed: bool
    base_timestamp_ms: int
    max_timestamp_ms: int


def check_batch(records: bytes | None, max_bytes: int) -> ProducerBatch:
    """Accept exactly one whole batch of at most ``max_bytes``, or raise CoordinatorError with Kafka's error code."""
    if records is None or len(records) < HEADER_BYTES:
        raise _invalid(f"{len(records or b'')} bytes of records: expected one batch of at least {HEADER_BYTES}")
    _, length, _, magic, crc, attributes, last_delta, _, max_ms, producer_id, epoch, sequence, count = (
        _HEADER.unpack_from(records)
    )
    _check_magic(magic)
    _check_size(len(records), PREFIX_BYTES + length, max_bytes)
    checksum = crc32c(memoryview(records)[CRC_FROM:])
    if checksum != crc:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"checksum {checksum:#010x}: expected {crc:#010x}")
    _check_attributes(attributes)
    _check_count(count, last_delta, None if attributes & _CODEC_BITS else len(records))
    if int.from_bytes(records[:8], "big"):
        raise _invalid("a base offset other than 0: the log gives the offsets")
    if producer_id >= 0 and sequence < 0:
        raise _invalid(f"sequence {sequence} of producer {producer_id}: expected 0 or more")
    return ProducerBatch(records, attributes, count, producer_id, epoch, sequence, max_ms)


def transactional_producer(records: bytes | None) -> tuple[int, int] | None:
    """Producer id and epoch of an unchecked batch; None if it is not transactional."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    _, _, _, _, _, attributes, _, _, _, producer_id, epoch, _, _ = _HEADER.unpack_from(records)
    return (producer_id, epoch) if attributes & _TRANSACTIONAL_BIT else None


def read_batch_info(batch: bytes) -> BatchInfo:
    """Read the header of a batch that ``check_batch`` has accepted."""
    base, _, _, _, _, attributes, _, base_ms, max_ms, _, _, _, count = _HEADER.unpack_from(batch)
    first_ms = max_ms if attributes & LOG_APPEND_TIME_BIT else base_ms
    return BatchInfo(base, count, bool(attributes & _CODEC_BITS), first_ms, max_ms)


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_RECORD, message)


def _check_magic(magic: int) -> None:
    if magic in (0, 1):
        raise _invalid(f"message format {magic}: expected {MAGIC}; Kafka 4 accepts no older one; use a newer producer")
    if magic != MAGIC:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic}: expected {MAGIC}")


def _check_size(sent: int, claimed: int, max_bytes: int) -> None:
    if claimed < PREFIX_BYTES + BATCH_LENGTH_MIN:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"a batch with a length field of {claimed} bytes")
    if claimed != sent:
        raise _invalid(f"a batch of {claimed} bytes in {sent}: expected exactly one batch for a partition")
    if sent > max_bytes:
        raise CoordinatorError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {sent} bytes: expected at most max.message.bytes={max_bytes}"
        )


def _check_attributes(attributes: int) -> None:
    codec = attributes & _CODEC_BITS
    if codec >= KNOWN_CODECS:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{CODECS[codec]}: expected one of {', '.join(CODECS[:KNOWN_CODECS])}",
        )
    if attributes & _CONTROL_BIT:
        raise _invalid("a control batch: only the broker writes those")


def _check_count(count: int, last_delta: int, plain_bytes: int | None) -> None:
    if count < 1 or last_delta != count - 1:
        raise _invalid(f"{count} records up to delta {last_delta}: expected at least one, and deltas 0 to count - 1")
    if plain_bytes is not None and plain_bytes - HEADER_BYTES < count * RECORD_BYTES_MIN:
        raise _invalid(f"{count} records in {plain_bytes} bytes: a record takes {RECORD_BYTES_MIN} or more")
