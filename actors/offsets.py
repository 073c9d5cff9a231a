"""One group's committed offsets: what is durable, and what a commit would make of it. Pure."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping

from .errors import ErrorCode
from .messages import Fetched, FetchedOffset, OffsetCommit, OffsetFetch
from .records import GroupRecord, GroupValue, OffsetRecord, OffsetValue, Record

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class Offsets:
    """Durable offsets by topic and partition. ``replay`` is the only way in, when loading and when running."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, OffsetValue]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._topics.values())

    def __iter__(self) -> Iterator[tuple[str, int, OffsetValue]]:
        """Topic, partition and what is committed for it."""
        for topic, partitions in self._topics.items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def topics(self) -> Iterable[tuple[str, Mapping[int, OffsetValue]]]:
        return self._topics.items()

    def restore(self, topic: str, partitions: dict[int, OffsetValue]) -> None:
        """Put back what ``topics`` gave."""
        self._topics[topic] = partitions

    def replay(self, record: OffsetRecord) -> None:
        if record.value is not None:
            self._topics.setdefault(record.topic, {})[record.partition] = record.value
            return
        partitions = self._topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            self._topics.pop(record.topic, None)

    def fetch(self, request: OffsetFetch) -> Fetched:
        """What is asked for, in the order that it was asked in; what was never committed is -1, without an error."""
        topics = request.topics
        if topics is None:
            topics = tuple((topic, tuple(partitions)) for topic, partitions in self._topics.items())
        return Fetched(ErrorCode.NONE, tuple((topic, self._fetch_topic(topic, asked)) for topic, asked in topics))

    def _fetch_topic(self, topic: str, asked: tuple[int, ...]) -> tuple[FetchedOffset, ...]:
        known = self._topics.get(topic, {})
        return tuple(_fetched(partition, known.get(partition)) for partition in asked)

    def tombstones(self, group_id: str) -> tuple[OffsetRecord, ...]:
        """The records that delete everything here."""
        return tuple(
            OffsetRecord(group_id, topic, partition, None)
            for topic, partitions in self._topics.items()
            for partition in partitions
        )


class GroupData:
    """What is durable about one group, made by nothing but its records in the order of the log."""

    __slots__ = ("offsets", "value")

    def __init__(self) -> None:
        self.value: GroupValue | None = None
        self.offsets = Offsets()

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif isinstance(record, GroupRecord):
            self.value = record.value

    def is_gone(self) -> bool:
        """Whether nothing is left: no group record and no offset."""
        return self.value is None and not len(self.offsets)

    def may_sleep(self) -> bool:
        """Whether nobody waits for a session to end: a group with members has deadlines."""
        return self.value is None or not self.value.members

    def pack(self) -> bytes:
        """All of it in a tenth of the memory, for ``unpack`` in the same process. Of groups without members only."""
        value = self.value
        assert value is None or not value.members, "a group with members has deadlines"
        protocol_type = (value.protocol_type if value is not None else "").encode("utf-8", "surrogatepass")
        topics = [
            (topic, [(partition, *offset) for partition, offset in partitions.items()])
            for topic, partitions in self.offsets.topics()
        ]
        data = marshal.dumps((None if value is None else tuple(value), topics))
        return len(protocol_type).to_bytes(4, "big") + protocol_type + data

    @classmethod
    def unpack(cls, packed: bytes) -> GroupData:
        value, topics = marshal.loads(memoryview(packed)[4 + int.from_bytes(packed[:4], "big") :])
        data = cls()
        data.value = None if value is None else GroupValue(*value)
        for topic, offsets in topics:
            data.offsets.restore(topic, {partition: OffsetValue(*rest) for partition, *rest in offsets})
        return data

    def tombstones(self, group_id: str) -> tuple[Record, ...]:
        """What deletes the group: first its offsets, then itself. A simple group gets both too, as in Kafka."""
        return (*self.offsets.tombstones(group_id), GroupRecord(group_id, None))


def packed_protocol_type(packed: bytes) -> str:
    """What a listing shows of a group that ``GroupData.pack`` has packed, without unpacking it."""
    return packed[4 : 4 + int.from_bytes(packed[:4], "big")].decode("utf-8", "surrogatepass")


def commit_records(
    request: OffsetCommit, now_ms: int, metadata_max: int
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetRecord, ...]]:
    """What a commit appends, and what each of its partitions is answered.

    Metadata that is longer than ``metadata_max`` UTF-16 units (Kafka counts characters, whatever the setting's name
    says) is refused for its partition alone.
    """
    expire_ms = now_ms + request.retention_ms if request.retention_ms != -1 else -1
    errors, records = [], []
    for commit in request.commits:
        if len(commit.metadata) > metadata_max // 2 and _utf16_units(commit.metadata) > metadata_max:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(ErrorCode.NONE)
        value = OffsetValue(commit.offset, commit.leader_epoch, commit.metadata, now_ms, expire_ms)
        records.append(OffsetRecord(request.group_id, commit.topic, commit.partition, value))
    return tuple(errors), tuple(records)


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _fetched(partition: int, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition, NO_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.NONE)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE)
