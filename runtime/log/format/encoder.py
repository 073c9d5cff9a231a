"""Encodes records directly to their bytes in a batch. This is the hottest loop of the log, so it has fast paths.

Nearly every record is an offset of a partition that was committed shortly before, mostly without metadata. So the bytes
of keys are cached in a bounded table, and the rest of such a record is one ``pack``. A test checks that the result is
the same as that of ``records.encode`` and ``batch.frame_record``.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from ....actors.records import (
    MarkerRecord,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    UnknownRecord,
    item_count,
)
from ....actors.steps import Steps
from .batch import frame_record
from .errors import NeedsOwnBatch, UnwritableRecord
from .fields import MAX_STRING_BYTES
from .records import encode, encode_key, encode_state_in_steps
from .transaction_records import encode_marker, encode_transaction, encode_transaction_in_steps
from .varint import SMALL, encode_length

KEY_TABLE_LIMIT = 16384  # about 5 MB; a full table is cleared, which is cheaper than an LRU order

_VALUE_BYTES = 24  # an offset value v3 without metadata
_PLAIN = Struct(">BhqihqB")  # its length (zigzag), the value, no headers
_HEAD = Struct(">hqih")
_TAIL = Struct(">qB")
assert _PLAIN.size == _VALUE_BYTES + 2


class RecordEncoder:
    """Encodes records. Not thread-safe."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, int], bytes] = {}

    def frame(self, record: Record, offset_delta: int) -> bytes:
        """The bytes of a record in a batch, with timestamp delta 0. Raises UnwritableRecord when a field does not fit.

        Raises NeedsOwnBatch for a record of a transaction, see ``frame_in_transaction``.
        """
        if type(record) is not OffsetRecord or (value := record.value) is None or value[4] != -1:
            return frame_record(0, offset_delta, *_encode(record))
        try:
            key = self._keys.get(record[:3]) or self._cache_key(record)
            offset, leader_epoch, metadata, commit_timestamp_ms, _ = value
            if metadata:
                rest = _with_metadata(offset, leader_epoch, metadata.encode(), commit_timestamp_ms)
            else:
                rest = _PLAIN.pack(_VALUE_BYTES * 2, 3, offset, leader_epoch, 0, commit_timestamp_ms, 0)
        except (StructError, UnicodeEncodeError) as error:
            raise UnwritableRecord(f"{record!r}: {error}") from error
        delta = SMALL[offset_delta] if offset_delta < 8192 else encode_length(offset_delta)
        length = 2 + len(delta) + len(key) + len(rest)
        size = SMALL[length] if length < 8192 else encode_length(length)
        return b"%b\0\0%b%b%b" % (size, delta, key, rest)

    def frame_in_steps(self, record: Record, offset_delta: int) -> Steps[bytes]:
        """The same as ``frame`` for a record with many members, partitions or topics, and any other."""
        if not item_count(record):
            return self.frame(record, offset_delta)
        if isinstance(record, TransactionRecord):
            return frame_record(0, offset_delta, *(yield from encode_transaction_in_steps(record)))
        assert not isinstance(record, MarkerRecord | PendingOffsetRecord | OffsetRecord | UnknownRecord)
        return frame_record(0, offset_delta, *(yield from encode_state_in_steps(record)))

    def frame_in_transaction(self, record: PendingOffsetRecord | MarkerRecord, offset_delta: int) -> bytes:
        """The same for records in a batch of their transaction."""
        pair = encode_marker(record) if isinstance(record, MarkerRecord) else encode(record)
        return frame_record(0, offset_delta, *pair)

    def _cache_key(self, record: OffsetRecord) -> bytes:
        """The key with its length before it; adds it to the table."""
        if len(self._keys) >= KEY_TABLE_LIMIT:
            self._keys.clear()
        key = encode_key(record)
        framed = self._keys[record[:3]] = encode_length(len(key)) + key
        return framed


def _encode(record: Record) -> tuple[bytes, bytes | None]:
    if isinstance(record, TransactionRecord):
        return encode_transaction(record)
    if isinstance(record, PendingOffsetRecord | MarkerRecord):
        raise NeedsOwnBatch
    return encode(record)


def _with_metadata(offset: int, leader_epoch: int, metadata: bytes, commit_timestamp_ms: int) -> bytes:
    if len(metadata) > MAX_STRING_BYTES:
        raise UnwritableRecord(f"metadata of {len(metadata)} bytes, expected at most {MAX_STRING_BYTES}")
    head = _HEAD.pack(3, offset, leader_epoch, len(metadata))
    return encode_length(_VALUE_BYTES + len(metadata)) + head + metadata + _TAIL.pack(commit_timestamp_ms, 0)
