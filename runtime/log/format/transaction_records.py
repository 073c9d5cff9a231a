"""Encodes and decodes ``__transaction_state`` and the records of transactions in ``__consumer_offsets``.

Kafka's generated ``TransactionLogKey`` and ``TransactionLogValue``::

    key v0     transactional id string
    value v0   producer id int64, epoch int16, timeout int32 (ms), state int8, partitions: topic and partition ids,
               last update int64, start int64 (both ms); the array is null while the state is Empty
          v1   the same, flexible; tag 0: previous producer id int64, 1: next producer id int64,
               2: client's transaction version int16; each only if it is not -1, -1 and 0      (written)

A control batch has one record (``EndTransactionMarker``)::

    key        version int16 0, type int16: 0 abort, 1 commit; others are skipped
    value      version int16 0, coordinator epoch int32
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError

from ....actors.records import (
    MarkerRecord,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
    item_count,
    partitions_by_topic,
)
from ....actors.steps import ITEMS_PER_STEP, Steps, pieces, run_steps
from .batch import Batch
from .errors import DamagedRecord, UnwritableRecord
from .fields import I8, I16, I32, I64, Reader, bounded, string
from .records import decode
from .varint import encode_unsigned

KEY_VERSION = 0
NEWEST_VERSION = 1
FLEXIBLE_VERSION = 1
ABORT, COMMIT = 0, 1

_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_EMPTY = 0  # the state in which Kafka writes no array


def encode_transaction(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The key and value of a record; UnwritableRecord when a field does not fit."""
    return run_steps(encode_transaction_in_steps(record))


def encode_transaction_in_steps(record: TransactionRecord) -> Steps[tuple[bytes, bytes | None]]:
    """The same for a transaction of many partitions."""
    try:
        key = I16.pack(KEY_VERSION) + string(record.transactional_id)
        return key, None if record.value is None else (yield from _encode_value(record.value))
    except (StructError, UnicodeEncodeError) as error:
        shown = record if item_count(record) <= ITEMS_PER_STEP else record.transactional_id
        raise UnwritableRecord(f"{shown!r}: {error}") from error


def decode_transaction(key: bytes | None, value: bytes | None) -> TransactionRecord | UnknownRecord:
    """The record of a key and a value; DamagedRecord for malformed bytes. Unknown versions are skipped, as in Kafka."""
    if key is None:
        raise DamagedRecord("key", 0, "it is null, expected a key")
    reader = Reader("key", key)
    version = reader.number(I16)
    if version != KEY_VERSION or (value is not None and value[:2] not in (b"\0\0", b"\0\1")):
        return UnknownRecord(version, key, value)
    return TransactionRecord(reader.string(), None if value is None else _decode_value(value))


def encode_marker(marker: MarkerRecord) -> tuple[bytes, bytes]:
    key = _MARKER_KEY.pack(0, COMMIT if marker.committed else ABORT)
    return key, _MARKER_VALUE.pack(0, marker.coordinator_epoch)


def decode_batch(batch: Batch) -> Iterator[tuple[int, int, Record]]:
    """Offset, timestamp in ms and record of each record in a batch of ``__consumer_offsets``, pending or not."""
    for offset, timestamp_ms, key, value in batch.records():
        record = decode_record(batch, key, value)
        if record is not None:
            yield offset, timestamp_ms, record


def decode_record(batch: Batch, key: bytes | None, value: bytes | None) -> Record | None:
    """One record of such a batch; None for a control record that does not end a transaction. DamagedRecord."""
    if batch.is_control:
        return _decode_marker(batch, key, value)
    record = decode(key, value)
    if batch.is_transactional and isinstance(record, OffsetRecord):
        return PendingOffsetRecord(*record, batch.producer_id, batch.producer_epoch)
    return record


def decode_transactions(batch: Batch) -> Iterator[tuple[int, int, Record]]:
    """The same for a batch of ``__transaction_state``."""
    for offset, timestamp_ms, key, value in batch.records():
        yield offset, timestamp_ms, decode_transaction(key, value)


def _encode_value(value: TransactionValue) -> Steps[bytes]:
    head = _HEAD.pack(NEWEST_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    partitions = b"\0" if value.state == _EMPTY else (yield from _encode_partitions(value.partitions))
    times = _TIMES.pack(value.last_update_timestamp_ms, value.start_timestamp_ms)
    return head + partitions + times + _encode_tags(value)


def _encode_partitions(partitions: Iterable[tuple[str, int]]) -> Steps[bytes]:
    topics = yield from partitions_by_topic(partitions)
    parts = [encode_unsigned(len(topics) + 1)]
    for piece in pieces(topics):
        parts += [_encode_topic(bounded(topic), numbers) for topic, numbers in piece]
        yield
    return b"".join(parts)


def _encode_topic(name: bytes, numbers: Sequence[int]) -> bytes:
    ids = Struct(f">{len(numbers)}i").pack(*numbers)
    return b"".join((encode_unsigned(len(name) + 1), name, encode_unsigned(len(numbers) + 1), ids, b"\0"))


def _encode_tags(value: TransactionValue) -> bytes:
    tags = []
    if value.previous_producer_id != -1:
        tags.append((_PREVIOUS_ID, I64.pack(value.previous_producer_id)))
    if value.next_producer_id != -1:
        tags.append((_NEXT_ID, I64.pack(value.next_producer_id)))
    if value.client_version:
        tags.append((_CLIENT_VERSION, I16.pack(value.client_version)))
    return encode_unsigned(len(tags)) + b"".join(bytes((tag, len(data))) + data for tag, data in tags)


def _decode_value(data: bytes) -> TransactionValue:
    reader = Reader("value", data)
    reader.version(NEWEST_VERSION, FLEXIBLE_VERSION)
    producer_id, epoch = reader.number(I64), reader.number(I16)
    timeout_ms, state = reader.number(I32), reader.number(I8)
    partitions = frozenset(_decode_partitions(reader))
    last_update_ms, start_ms = reader.number(I64), reader.number(I64)
    tags = reader.tags()
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        last_update_timestamp_ms=last_update_ms,
        start_timestamp_ms=start_ms,
        previous_producer_id=_decode_tag(tags, _PREVIOUS_ID, I64, -1),
        next_producer_id=_decode_tag(tags, _NEXT_ID, I64, -1),
        client_version=_decode_tag(tags, _CLIENT_VERSION, I16, 0),
    )


def _decode_partitions(reader: Reader) -> Iterator[tuple[str, int]]:
    for _ in range(reader.nullable_count() or 0):
        topic = reader.string()
        for _ in range(reader.count()):
            yield topic, reader.number(I32)
        reader.tags()


def _decode_tag(tags: dict[int, bytes], tag: int, form: Struct, default: int) -> int:
    return Reader("value", tags[tag]).number(form) if tag in tags else default


def _decode_marker(batch: Batch, key: bytes | None, value: bytes | None) -> MarkerRecord | None:
    reader = Reader("key", key or b"")
    reader.number(I16)
    kind = reader.number(I16)
    if kind not in (ABORT, COMMIT):
        return None
    reader = Reader("value", value or b"")
    reader.number(I16)
    return MarkerRecord(batch.producer_id, batch.producer_epoch, kind == COMMIT, reader.number(I32))
