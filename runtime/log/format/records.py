"""Encodes and decodes keys and values of ``__consumer_offsets``, to and from the records of ``actors.records``.

A key is an int16 type and its fields; a value is an int16 version and its fields; both big endian (Kafka's generated
``OffsetCommitKey/Value`` and ``GroupMetadataKey/Value``). ``RECORD_TYPES`` has a row for each type::

    key 0, 1   group string, topic string, partition int32            (1 is written; 0 is read as 1)
    key 2      group string
    offset v0  offset int64, metadata string, commit timestamp int64
           v1  the same, and expire timestamp int64                   (written when there is one)
           v2  as v0
           v3  offset int64, leader epoch int32, metadata string, commit timestamp int64        (written)
           v4  as v3, flexible                                        (read only, as in Kafka)
    group  v0  protocol type string, generation int32, protocol and leader nullable string, members
           v1  members have a rebalance timeout
           v2  current state timestamp int64 before the members
           v3  members have a group instance id (nullable) before the client id                 (written)
           v4  as v3, flexible                                        (read only)

``consumer_records`` has those of groups of the consumer protocol.
Bytes after the last field are ignored, as Kafka ignores them. Strings must be UTF-8.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from ....actors.records import (
    GroupRecord,
    GroupStateRecord,
    GroupValue,
    MemberValue,
    OffsetRecord,
    OffsetsTopicRecord,
    OffsetValue,
    PendingOffsetRecord,
    UnknownRecord,
)
from ....actors.steps import Steps, pieces, run_steps
from .consumer_records import CONSUMER_RECORD_TYPES
from .errors import DamagedRecord, UnwritableRecord
from .fields import I16, I32, I64, Reader, bounded, nullable, string
from .record_type import DecodedRecord, RecordType

NEWEST_VERSION = 4
FLEXIBLE_VERSION = 4
MEMBERS_PER_STEP = 32  # a member of a group takes some 5 us

_OFFSET_HEAD = Struct(">hqih")
_OFFSET_EXPIRING_HEAD = Struct(">hqh")
_TWO_TIMES = Struct(">qq")
_TIMEOUTS = Struct(">ii")
_TYPE_AND_LENGTH = Struct(">hh")
_OFFSET_V3_BYTES = _OFFSET_HEAD.size + I64.size


def encode(record: OffsetsTopicRecord) -> tuple[bytes, bytes | None]:
    """A record's key and value; a value of None is a tombstone. UnwritableRecord when a field does not fit."""
    try:
        return encode_key(record), encode_value(record)
    except (StructError, UnicodeEncodeError) as error:
        raise UnwritableRecord(f"{record!r}: {error}") from error


def encode_state_in_steps(record: GroupStateRecord) -> Steps[tuple[bytes, bytes | None]]:
    """The same for a record with many members, partitions or topics."""
    encode_in_steps = RECORD_TYPES[record.key_type].encode_value_in_steps
    if record.value is None or encode_in_steps is None:
        return encode(record)
    try:
        return encode_key(record), (yield from encode_in_steps(record.value))
    except (StructError, UnicodeEncodeError) as error:
        raise UnwritableRecord(f"the record of group {record.group_id!r}: {error}") from error


def decode(key: bytes | None, value: bytes | None) -> DecodedRecord:
    """The record of a key and a value. DamagedRecord tells which of the two is malformed, where and why."""
    if key is None:
        raise DamagedRecord("key", 0, "it is null, expected a key")
    return _decode_usual_offset(key, value) or _decode_any(key, value)


def _decode_usual_offset(key: bytes, value: bytes | None) -> OffsetRecord | None:
    """The record of an offset in exactly the form that this version writes; None for everything else.

    Three times as fast as ``_decode_any``, and nearly every record of a log has this form.
    """
    if value is None or len(key) < 10 or len(value) < _OFFSET_V3_BYTES:
        return None
    key_type, group_bytes = _TYPE_AND_LENGTH.unpack_from(key)
    version, offset, leader_epoch, metadata_bytes = _OFFSET_HEAD.unpack_from(value)
    topic_at = 6 + group_bytes
    plain = key_type == 1 and version == 3 and len(value) == _OFFSET_V3_BYTES + metadata_bytes
    if not plain or not 6 <= topic_at <= len(key) - 4:
        return None
    if I16.unpack_from(key, topic_at - 2)[0] != len(key) - 4 - topic_at:
        return None
    try:
        topic, metadata = key[topic_at:-4].decode(), value[_OFFSET_HEAD.size : -8].decode()
        group_id = key[4 : topic_at - 2].decode()
    except UnicodeDecodeError:
        return None
    (commit_timestamp_ms,) = I64.unpack_from(value, len(value) - 8)
    (partition,) = I32.unpack_from(key, len(key) - 4)
    return OffsetRecord(
        group_id, topic, partition, OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, -1)
    )


def _decode_any(key: bytes, value: bytes | None) -> DecodedRecord:
    reader = Reader("key", key)
    key_type = reader.number(I16)
    record_type = RECORD_TYPES.get(key_type)
    return UnknownRecord(key_type, key, value) if record_type is None else record_type.decode(reader, value)


def _decode_offset_record(key: Reader, value: bytes | None) -> OffsetRecord:
    group, topic, partition = key.string(), key.string(), key.number(I32)
    return OffsetRecord(group, topic, partition, None if value is None else _decode_offset(value))


def _decode_group_record(key: Reader, value: bytes | None) -> GroupRecord:
    return GroupRecord(key.string(), None if value is None else _decode_group(value))


def encode_key(record: OffsetsTopicRecord) -> bytes:
    """The key's bytes; errors of fields that do not fit are turned into UnwritableRecord by ``encode``."""
    if isinstance(record, UnknownRecord):
        return record.key
    return I16.pack(record.key_type) + RECORD_TYPES[record.key_type].encode_key(record)


def encode_value(record: OffsetsTopicRecord) -> bytes | None:
    """The value's bytes, None for a tombstone; errors as in ``encode_key``."""
    if isinstance(record, UnknownRecord):
        return record.value
    if record.value is None:
        return None
    return RECORD_TYPES[record.key_type].encode_value(record.value)


def _offset_key(record: OffsetRecord | PendingOffsetRecord) -> bytes:
    return string(record.group_id) + string(record.topic) + I32.pack(record.partition)


def _group_key(record: GroupRecord) -> bytes:
    return string(record.group_id)


def _encode_offset(value: OffsetValue) -> bytes:
    metadata = bounded(value.metadata)
    if value.expire_timestamp_ms != -1:
        times = _TWO_TIMES.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        return _OFFSET_EXPIRING_HEAD.pack(1, value.offset, len(metadata)) + metadata + times
    head = _OFFSET_HEAD.pack(3, value.offset, value.leader_epoch, len(metadata))
    return head + metadata + I64.pack(value.commit_timestamp_ms)


def _encode_group(value: GroupValue) -> bytes:
    return run_steps(_encode_group_in_steps(value))


def _encode_group_in_steps(value: GroupValue) -> Steps[bytes]:
    parts = [
        b"\0\3",
        string(value.protocol_type),
        I32.pack(value.generation),
        nullable(value.protocol),
        nullable(value.leader),
        I64.pack(value.current_state_timestamp_ms),
        I32.pack(len(value.members)),
    ]
    for piece in pieces(value.members, MEMBERS_PER_STEP):
        parts.extend(map(_encode_member, piece))
        yield
    return b"".join(parts)


def _encode_member(member: MemberValue) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            nullable(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            I32.pack(len(member.subscription)),
            member.subscription,
            I32.pack(len(member.assignment)),
            member.assignment,
        )
    )


def _decode_offset(data: bytes) -> OffsetValue:
    reader = Reader("value", data)
    version = reader.version(NEWEST_VERSION, FLEXIBLE_VERSION)
    offset = reader.number(I64)
    leader_epoch = reader.number(I32) if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.number(I64)
    expire_timestamp_ms = reader.number(I64) if version == 1 else -1
    reader.tags()
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _decode_group(data: bytes) -> GroupValue:
    reader = Reader("value", data)
    version = reader.version(NEWEST_VERSION, FLEXIBLE_VERSION)
    protocol_type, generation = reader.string(), reader.number(I32)
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.number(I64) if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupValue(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _decode_member(reader: Reader, version: int) -> MemberValue:
    member = MemberValue(
        member_id=reader.string(),
        group_instance_id=reader.nullable_string() if version >= 3 else None,
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.number(I32) if version >= 1 else -1,
        session_timeout_ms=reader.number(I32),
        subscription=reader.raw(),
        assignment=reader.raw(),
    )
    reader.tags()
    return member


_OFFSET = RecordType("offset", _decode_offset_record, _offset_key, _encode_offset)

RECORD_TYPES: dict[int, RecordType] = {
    0: _OFFSET,  # an old version of 1
    1: _OFFSET,
    2: RecordType("group", _decode_group_record, _group_key, _encode_group, _encode_group_in_steps),
    **CONSUMER_RECORD_TYPES,
}
"""By key type. Records of all other types are ``UnknownRecord``: they stay in the log, and loading skips them."""
