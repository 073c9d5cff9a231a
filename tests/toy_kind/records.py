"""The records of a queue: one for its epoch, one for each member."""

from __future__ import annotations

from typing import NamedTuple

from callboard.actors.records import GroupType
from callboard.runtime.log.format.fields import I32, Reader, string
from callboard.runtime.log.format.record_type import RecordType

QUEUE = GroupType("queue")
EPOCH_KEY_TYPE = 1001
MEMBER_KEY_TYPE = 1002


class EpochValue(NamedTuple):
    epoch: int


class EpochRecord(NamedTuple):
    group_id: str
    value: EpochValue | None

    @property
    def key_type(self) -> int:
        return EPOCH_KEY_TYPE

    @property
    def group_type(self) -> GroupType:
        return QUEUE

    @property
    def item_count(self) -> int:
        return 0


class QueueMember(NamedTuple):
    session_timeout_ms: int
    topics: tuple[str, ...]


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: QueueMember | None

    @property
    def key_type(self) -> int:
        return MEMBER_KEY_TYPE

    @property
    def group_type(self) -> GroupType:
        return QUEUE

    @property
    def item_count(self) -> int:
        return 0


def _decode_epoch(key: Reader, value: bytes | None) -> EpochRecord:
    return EpochRecord(key.string(), None if value is None else EpochValue(Reader("value", value).number(I32)))


def _decode_member(key: Reader, value: bytes | None) -> MemberRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    reader = Reader("value", value)
    session_timeout_ms = reader.number(I32)
    topics = tuple(reader.string() for _ in range(reader.number(I32)))
    return MemberRecord(group_id, member_id, QueueMember(session_timeout_ms, topics))


def _encode_member(value: QueueMember) -> bytes:
    return I32.pack(value.session_timeout_ms) + I32.pack(len(value.topics)) + b"".join(map(string, value.topics))


RECORD_ROWS = {
    EPOCH_KEY_TYPE: RecordType(
        "queue epoch", _decode_epoch, lambda record: string(record.group_id), lambda value: I32.pack(value.epoch)
    ),
    MEMBER_KEY_TYPE: RecordType(
        "queue member",
        _decode_member,
        lambda record: string(record.group_id) + string(record.member_id),
        _encode_member,
    ),
}
