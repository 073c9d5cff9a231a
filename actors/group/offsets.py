"""One group's committed offsets: what is durable, and what a commit would make of it. Pure."""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterable, Iterator, Mapping

from ..errors import NO_ERROR, ErrorCode
from ..messages import Fetched, FetchedOffset, OffsetCommit, OffsetFetch, TxnOffsetCommit
from ..records import GroupRecord, GroupValue, MarkerRecord, OffsetRecord, OffsetValue, PendingOffsetRecord, Record
from .pending_offsets import PendingOffsets

NO_OFFSET = -1
NO_LEADER_EPOCH = -1

_HEAD = struct.Struct(">qqI")
"""Before what is packed: when the oldest offset's age began, when the first with a time of its own goes, and the length
of the protocol type, which follows."""

_NEVER = 2**63 - 1


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

    def has(self, topic: str, partition: int) -> bool:
        return partition in self._topics.get(topic, {})

    def partitions(self, topic: str) -> Iterable[int]:
        """Those of a topic that have an offset."""
        return self._topics.get(topic, {})

    def tombstones(self, group_id: str) -> Iterator[OffsetRecord]:
        """The records that delete everything here."""
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield OffsetRecord(group_id, topic, partition, None)


class GroupData:
    """What is durable about one group, made by nothing but its records in the order of the log."""

    __slots__ = ("offsets", "pending", "value")

    def __init__(self) -> None:
        self.value: GroupValue | None = None
        self.offsets = Offsets()
        self.pending = PendingOffsets()

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
            if self.pending.places:
                self._overtake(record)
        elif isinstance(record, GroupRecord):
            self.value = record.value
        elif isinstance(record, PendingOffsetRecord):
            self._replay_pending(record)
        elif isinstance(record, MarkerRecord):
            for (topic, partition), value in self.pending.end(record.producer_id, record.committed):
                self.offsets.replay(OffsetRecord("", topic, partition, value))

    def _overtake(self, record: OffsetRecord) -> None:
        if record.value is None:
            self.pending.forget(record.topic, record.partition)
        else:
            self.pending.overtake(record.topic, record.partition)

    def _replay_pending(self, record: PendingOffsetRecord) -> None:
        """A tombstone is one at once, in a transaction or not."""
        if record.value is None:
            self.replay(OffsetRecord(*record[:4]))
        else:
            self.pending.add(record)

    def fetch(self, request: OffsetFetch) -> Fetched:
        fetched = self.offsets.fetch(request)
        return self.pending.hide(fetched) if request.require_stable and self.pending else fetched

    def has(self, topic: str, partition: int) -> bool:
        """Whether there is something to delete: an offset, or one that a transaction is about to commit."""
        return self.offsets.has(topic, partition) or (topic, partition) in self.pending.places

    def topic_tombstones(self, group_id: str, topics: Iterable[str]) -> tuple[OffsetRecord, ...]:
        """The records that delete what is committed of some topics, and what transactions are about to commit."""
        places = dict.fromkeys((topic, partition) for topic in topics for partition in self.offsets.partitions(topic))
        places |= dict.fromkeys(place for place in self.pending.places if place[0] in topics)
        return tuple(OffsetRecord(group_id, topic, partition, None) for topic, partition in places)

    def is_gone(self) -> bool:
        """Whether nothing is left: no group record and no offset, not even one of an open transaction."""
        return self.value is None and not len(self.offsets) and not self.pending

    def may_sleep(self) -> bool:
        """Whether nobody waits for a session or a transaction to end."""
        return (self.value is None or not self.value.members) and not self.pending

    def pack(self) -> bytes:
        """All of it in a tenth of the memory, for ``unpack`` in the same process. Of groups that ``may_sleep`` only."""
        assert self.may_sleep(), "a group with members has deadlines, and an open transaction will end"
        topics = [
            (topic, [(partition, *offset) for partition, offset in partitions.items()])
            for topic, partitions in self.offsets.topics()
        ]
        return pack(self.value, topics)

    @classmethod
    def unpack(cls, packed: bytes) -> GroupData:
        value, topics = marshal.loads(memoryview(packed)[_HEAD.size + _HEAD.unpack_from(packed)[2] :])
        data = cls()
        data.value = None if value is None else GroupValue(*value)
        for topic, offsets in topics:
            data.offsets.restore(topic, {partition: OffsetValue(*rest) for partition, *rest in offsets})
        return data

    def tombstones(self, group_id: str) -> Iterator[Record]:
        """What deletes the group: first its offsets, then itself. A simple group gets both too, as in Kafka."""
        yield from self.offsets.tombstones(group_id)
        for topic, partition in self.pending.places:
            if not self.offsets.has(topic, partition):
                yield OffsetRecord(group_id, topic, partition, None)
        yield GroupRecord(group_id, None)


PackedOffset = tuple[int, int, int, str, int, int]
"""A partition, and what an ``OffsetValue`` has."""


def pack(value: GroupValue | None, topics: list[tuple[str, list[PackedOffset]]]) -> bytes:
    """What ``GroupData.unpack`` makes a group of, straight from its parts: a start packs a million of them."""
    if value is None:
        since_ms, protocol_type, fields = -1, b"", None
    else:
        protocol_type, fields = value.protocol_type.encode("utf-8", "surrogatepass"), tuple(value)
        since_ms = value.current_state_timestamp_ms if protocol_type else -1
    head = _HEAD.pack(*_oldest_ms(topics, since_ms), len(protocol_type))
    return b"%b%b%b" % (head, protocol_type, marshal.dumps((fields, topics)))


def _oldest_ms(topics: list[tuple[str, list[PackedOffset]]], since_ms: int) -> tuple[int, int]:
    """What ``packed_is_due`` needs; the rules are those of ``expiry.expired`` for a group without members."""
    if not topics:
        return -1, -1  # the group itself is to go
    oldest_ms = expire_ms = _NEVER
    for _topic, offsets in topics:
        for offset in offsets:
            commit_ms, expires_ms = offset[4:]
            if expires_ms != -1:
                expire_ms = min(expire_ms, expires_ms)
            elif (begin_ms := commit_ms if since_ms == -1 else since_ms) < oldest_ms:
                oldest_ms = begin_ms
    return oldest_ms, expire_ms


def packed_protocol_type(packed: bytes) -> str:
    """What a listing shows of a group that ``GroupData.pack`` has packed, without unpacking it."""
    size: int = _HEAD.unpack_from(packed)[2]
    return packed[_HEAD.size : _HEAD.size + size].decode("utf-8", "surrogatepass")


def packed_is_due(packed: bytes, now_ms: int, retention_ms: int) -> bool:
    """Whether something of a group that ``GroupData.pack`` has packed could be old, without unpacking it."""
    oldest_ms, expire_ms, _ = _HEAD.unpack_from(packed)
    return bool(now_ms - oldest_ms >= retention_ms or now_ms >= expire_ms)


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
        errors.append(NO_ERROR)
        value = OffsetValue(commit.offset, commit.leader_epoch, commit.metadata, now_ms, expire_ms)
        records.append(OffsetRecord(request.group_id, commit.topic, commit.partition, value))
    return tuple(errors), tuple(records)


def txn_commit_records(
    request: TxnOffsetCommit, now_ms: int, metadata_max: int
) -> tuple[tuple[ErrorCode, ...], tuple[PendingOffsetRecord, ...]]:
    """The same for a commit in a transaction."""
    plain = OffsetCommit(request.group_id, request.member_id, None, -1, request.commits)
    errors, records = commit_records(plain, now_ms, metadata_max)
    producer = (request.producer_id, request.producer_epoch)
    return errors, tuple(PendingOffsetRecord(*record, *producer) for record in records)


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _fetched(partition: int, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition, NO_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.NONE)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE)
