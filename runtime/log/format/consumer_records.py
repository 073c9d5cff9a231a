"""Encodes and decodes the records of groups of the consumer protocol (KIP-848).

Kafka's generated ``ConsumerGroup...Key`` and ``ConsumerGroup...Value``. Keys are not flexible, values are version 0 and
flexible; ``[]`` is an array, a tag has the number of its field::

    key 3       group                  epoch int32; tag 0: metadata hash int64, missing if it is 0
    key 4       group                  [topic id uuid, name, partitions int32, [partition int32, [rack]]]    (read only)
    key 5       group, member          instance id and rack id nullable, client id, client host, [topic],
                                       regex nullable, rebalance timeout int32 (ms), server assignor nullable;
                                       tag 0: see below
    key 6       group                  assignment epoch int32; tag 0: timestamp int64 (ms), missing if it is 0
    key 7       group, member          [topic id uuid, [partition int32]]
    key 8       group, member          member epoch int32, previous epoch int32, state int8, two arrays of assigned and
                                       pending partitions: [topic id uuid, [partition int32]; tag 0: [epoch int32]]
    key 16      group, regex           [topic], version int64, timestamp int64 (ms)

Tag 0 of key 5 is a nullable structure: session timeout int32 (ms), [protocol name, metadata bytes]. It is null (and
written) for a member of the consumer protocol, and missing if both fields have their defaults. Tag 0 of the partitions
of key 8 has the epoch of each; where it is missing or null, as before Kafka 4.2, the member's epoch counts.

A null regex is read as "", as Kafka treats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct

from ....actors.consumer_group.records import (
    CONSUMER,
    ClassicMember,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberState,
    MemberValue,
    Partition,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopicMetadata,
    TopicMetadataRecord,
)
from ....actors.steps import Steps, pieces, run_steps
from .fields import (
    I8,
    I16,
    I32,
    I64,
    Reader,
    compact_array,
    compact_bytes,
    compact_nullable,
    compact_string,
    string,
    tag_section,
)
from .record_type import RecordType
from .varint import encode_unsigned

__all__ = [
    "CONSUMER",
    "CONSUMER_RECORD_TYPES",
    "CurrentRecord",
    "GroupEpochRecord",
    "MemberRecord",
    "Partition",
    "RegexRecord",
    "TargetEpochRecord",
    "TargetRecord",
    "TopicMetadataRecord",
]

VERSION = 0
TOPIC_ID_BYTES = 16

_TAG = 0  # the only one of each structure
_NO_TAGS = b"\0"
_NULL, _PRESENT = b"\0", b"\1"
_CURRENT_HEAD = Struct(">hiib")


def _group_key(record: GroupEpochRecord | TopicMetadataRecord | TargetEpochRecord) -> bytes:
    return string(record.group_id)


def _member_key(record: MemberRecord | TargetRecord | CurrentRecord) -> bytes:
    return string(record.group_id) + string(record.member_id)


def _value_reader(data: bytes) -> Reader:
    reader = Reader("value", data)
    reader.version(VERSION, VERSION)
    return reader


def _head(*parts: bytes) -> bytes:
    return b"".join((I16.pack(VERSION), *parts))


def _strings(texts: Iterable[str]) -> bytes:
    return compact_array([compact_string(text) for text in texts])


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.string() for _ in range(reader.count()))


# 3 and 6: epochs -----------------------------------------------------------------------------------------------------


def _encode_epoch(value: GroupEpochValue | TargetEpochValue) -> bytes:
    epoch, tagged = value
    tags = ((_TAG, I64.pack(tagged)),) if tagged else ()
    return _head(I32.pack(epoch), tag_section(*tags))


def _read_epoch(data: bytes) -> tuple[int, int]:
    reader = _value_reader(data)
    epoch = reader.number(I32)
    tagged = reader.tags().get(_TAG)
    return epoch, 0 if tagged is None else reader.part(tagged).number(I64)


def _decode_group_epoch(key: Reader, value: bytes | None) -> GroupEpochRecord:
    return GroupEpochRecord(key.string(), None if value is None else GroupEpochValue(*_read_epoch(value)))


def _decode_target_epoch(key: Reader, value: bytes | None) -> TargetEpochRecord:
    return TargetEpochRecord(key.string(), None if value is None else TargetEpochValue(*_read_epoch(value)))


# 4: topic metadata ---------------------------------------------------------------------------------------------------


def _encode_topic_metadata(topics: Sequence[TopicMetadata]) -> bytes:
    return _head(compact_array([_encode_topic(topic) for topic in topics]), _NO_TAGS)


def _encode_topic(topic: TopicMetadata) -> bytes:
    racks = [I32.pack(partition) + _strings(names) + _NO_TAGS for partition, names in topic.racks]
    head = topic.topic_id + compact_string(topic.name) + I32.pack(topic.partition_count)
    return head + compact_array(racks) + _NO_TAGS


def _decode_topic_metadata(key: Reader, value: bytes | None) -> TopicMetadataRecord:
    group_id = key.string()
    if value is None:
        return TopicMetadataRecord(group_id, None)
    reader = _value_reader(value)
    topics = tuple(_read_topic(reader) for _ in range(reader.count()))
    reader.tags()
    return TopicMetadataRecord(group_id, topics)


def _read_topic(reader: Reader) -> TopicMetadata:
    topic_id, name, partition_count = reader.fixed(TOPIC_ID_BYTES), reader.string(), reader.number(I32)
    racks = tuple(_read_racks(reader) for _ in range(reader.count()))
    reader.tags()
    return TopicMetadata(topic_id, name, partition_count, racks)


def _read_racks(reader: Reader) -> tuple[int, tuple[str, ...]]:
    partition, names = reader.number(I32), _read_strings(reader)
    reader.tags()
    return partition, names


# 5: members ----------------------------------------------------------------------------------------------------------


def _encode_member(value: MemberValue) -> bytes:
    return run_steps(_encode_member_in_steps(value))


def _encode_member_in_steps(value: MemberValue) -> Steps[bytes]:
    topics = yield from _strings_in_steps(value.topics)
    classic = value.classic
    tags = () if classic == ClassicMember() else ((_TAG, _NULL if classic is None else _encode_classic(classic)),)
    return _head(
        *(compact_nullable(value.instance_id), compact_nullable(value.rack_id)),
        *(compact_string(value.client_id), compact_string(value.client_host)),
        *(topics, compact_string(value.regex), I32.pack(value.rebalance_timeout_ms)),
        *(compact_nullable(value.server_assignor), tag_section(*tags)),
    )


def _strings_in_steps(texts: Sequence[str]) -> Steps[bytes]:
    parts = [encode_unsigned(len(texts) + 1)]
    for piece in pieces(texts):
        parts += map(compact_string, piece)
        yield
    return b"".join(parts)


def _encode_classic(classic: ClassicMember) -> bytes:
    protocols = [compact_string(name) + compact_bytes(metadata) + _NO_TAGS for name, metadata in classic.protocols]
    return _PRESENT + I32.pack(classic.session_timeout_ms) + compact_array(protocols) + _NO_TAGS


def _decode_member(key: Reader, value: bytes | None) -> MemberRecord:
    group_id, member_id = key.string(), key.string()
    return MemberRecord(group_id, member_id, None if value is None else _read_member(_value_reader(value)))


def _read_member(reader: Reader) -> MemberValue:
    return MemberValue(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=_read_strings(reader),
        regex=reader.nullable_string() or "",
        rebalance_timeout_ms=reader.number(I32),
        server_assignor=reader.nullable_string(),
        classic=_read_classic(reader),
    )


def _read_classic(reader: Reader) -> ClassicMember | None:
    tagged = reader.tags().get(_TAG)
    if tagged is None:
        return ClassicMember()
    part = reader.part(tagged)
    if not part.number(I8):
        return None
    return ClassicMember(part.number(I32), tuple(_read_protocol(part) for _ in range(part.count())))


def _read_protocol(reader: Reader) -> tuple[str, bytes]:
    protocol = reader.string(), reader.raw()
    reader.tags()
    return protocol


# 7 and 8: assignments ------------------------------------------------------------------------------------------------


def _encode_target(value: Sequence[Partition]) -> bytes:
    return run_steps(_encode_target_in_steps(value))


def _encode_target_in_steps(value: Sequence[Partition]) -> Steps[bytes]:
    topics = yield from _encode_partitions(value, lambda _topic_id, _numbers: _NO_TAGS)
    return _head(topics, _NO_TAGS)


def _encode_current(value: CurrentValue) -> bytes:
    return run_steps(_encode_current_in_steps(value))


def _encode_current_in_steps(value: CurrentValue) -> Steps[bytes]:
    assigned = yield from _encode_with_epochs(value.assigned)
    pending = yield from _encode_with_epochs(value.pending_revocation)
    head = _CURRENT_HEAD.pack(VERSION, value.member_epoch, value.previous_member_epoch, value.state)
    return head + assigned + pending + _NO_TAGS


def _encode_with_epochs(epochs: Mapping[Partition, int]) -> Steps[bytes]:
    def encode_tags(topic_id: bytes, numbers: Sequence[int]) -> bytes:
        return tag_section((_TAG, _numbers([epochs[topic_id, number] for number in numbers])))

    return (yield from _encode_partitions(epochs, encode_tags))


def _encode_partitions(
    partitions: Iterable[Partition], encode_tags: Callable[[bytes, Sequence[int]], bytes]
) -> Steps[bytes]:
    """Partitions by topic, in the given order."""
    numbers_by_topic: dict[bytes, list[int]] = {}
    for piece in pieces(partitions):
        for topic_id, number in piece:
            numbers_by_topic.setdefault(topic_id, []).append(number)
        yield
    parts = [encode_unsigned(len(numbers_by_topic) + 1)]
    for topics in pieces(numbers_by_topic.items()):
        parts += [topic_id + _numbers(numbers) + encode_tags(topic_id, numbers) for topic_id, numbers in topics]
        yield
    return b"".join(parts)


def _numbers(numbers: Sequence[int]) -> bytes:
    return encode_unsigned(len(numbers) + 1) + Struct(f">{len(numbers)}i").pack(*numbers)


def _read_numbers(reader: Reader) -> list[int]:
    return [reader.number(I32) for _ in range(reader.count())]


def _decode_target(key: Reader, value: bytes | None) -> TargetRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return TargetRecord(group_id, member_id, None)
    return TargetRecord(group_id, member_id, tuple(_read_target(_value_reader(value))))


def _read_target(reader: Reader) -> Iterator[Partition]:
    for _ in range(reader.count()):
        topic_id, numbers = reader.fixed(TOPIC_ID_BYTES), _read_numbers(reader)
        reader.tags()
        yield from ((topic_id, number) for number in numbers)
    reader.tags()


def _decode_current(key: Reader, value: bytes | None) -> CurrentRecord:
    group_id, member_id = key.string(), key.string()
    return CurrentRecord(group_id, member_id, None if value is None else _read_current(_value_reader(value)))


def _read_current(reader: Reader) -> CurrentValue:
    epoch, previous_epoch, state = reader.number(I32), reader.number(I32), reader.number(I8)
    epoch_of_old_records = max(epoch, 0)  # a static member that has left for a while has a negative one
    assigned = dict(_read_with_epochs(reader, epoch_of_old_records))
    pending = dict(_read_with_epochs(reader, epoch_of_old_records))
    reader.tags()
    known_state = MemberState(state) if state in _KNOWN_STATES else MemberState.UNKNOWN
    return CurrentValue(epoch, previous_epoch, known_state, assigned, pending)


_KNOWN_STATES = frozenset(MemberState)


def _read_with_epochs(reader: Reader, default_epoch: int) -> Iterator[tuple[Partition, int]]:
    for _ in range(reader.count()):
        topic_id, numbers = reader.fixed(TOPIC_ID_BYTES), _read_numbers(reader)
        tagged = reader.tags().get(_TAG, _NULL)
        part = reader.part(tagged)
        epochs = [part.number(I32) for _ in range(part.nullable_count() or 0)]
        if len(epochs) != len(numbers):
            epochs = [default_epoch] * len(numbers)
        yield from (((topic_id, number), epoch) for number, epoch in zip(numbers, epochs, strict=True))


# 16: regular expressions ---------------------------------------------------------------------------------------------


def _regex_key(record: RegexRecord) -> bytes:
    return string(record.group_id) + string(record.regex)


def _encode_regex(value: RegexValue) -> bytes:
    return run_steps(_encode_regex_in_steps(value))


def _encode_regex_in_steps(value: RegexValue) -> Steps[bytes]:
    topics = yield from _strings_in_steps(value.topics)
    return _head(topics, I64.pack(value.topics_version), I64.pack(value.timestamp_ms), _NO_TAGS)


def _decode_regex(key: Reader, value: bytes | None) -> RegexRecord:
    group_id, regex = key.string(), key.string()
    if value is None:
        return RegexRecord(group_id, regex, None)
    reader = _value_reader(value)
    resolved = RegexValue(_read_strings(reader), reader.number(I64), reader.number(I64))
    reader.tags()
    return RegexRecord(group_id, regex, resolved)


CONSUMER_RECORD_TYPES: dict[int, RecordType] = {
    3: RecordType("group epoch", _decode_group_epoch, _group_key, _encode_epoch),
    4: RecordType("topic metadata", _decode_topic_metadata, _group_key, _encode_topic_metadata),
    5: RecordType("member", _decode_member, _member_key, _encode_member, _encode_member_in_steps),
    6: RecordType("target epoch", _decode_target_epoch, _group_key, _encode_epoch),
    7: RecordType("target", _decode_target, _member_key, _encode_target, _encode_target_in_steps),
    8: RecordType("assignment", _decode_current, _member_key, _encode_current, _encode_current_in_steps),
    16: RecordType("regex", _decode_regex, _regex_key, _encode_regex, _encode_regex_in_steps),
}
