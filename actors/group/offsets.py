"""One group's durable data, and the records of commits. Pure."""

from __future__ import annotations

import marshal
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import NO_ERROR, ErrorCode
from ..memory import OFFSET_BYTES, TOPIC_OFFSETS_BYTES
from ..messages import Fetched, FetchedOffset, OffsetCommit, OffsetFetch, TxnOffsetCommit, no_offset
from ..new_tuple import new_tuple
from ..records import (
    CLASSIC,
    GroupStateRecord,
    GroupType,
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    UnknownRecord,
)
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .kind import GroupKind
from .kinds import KINDS
from .pending_offsets import PendingOffsets

_HEAD = struct.Struct(">qqHH")
TYPE_LENGTH_AT, PROTOCOL_LENGTH_AT = 17, 18  # in the head; types are short, so the lower byte of their length is enough
"""Header of packed data: start of the oldest offset's age (ms), earliest explicit expiry time (ms), and the lengths of
the group's type and the protocol type, which follow the header."""

_NEVER = 2**63 - 1

_TYPE = CLASSIC.encode()
_ONE_OFFSET = struct.Struct(f">qqHH{len(_TYPE)}sBiqqq")
_OFFSET = struct.Struct(">xiqqq")
_OFFSET_MARK = 1
"""Packed data of a group that is one plain offset: the header, the mark, which no marshalled tuple begins with,
partition, offset, leader epoch and time of the commit (ms), and the topic."""

CHUNK_OFFSETS = 512
"""Packed data of more offsets is in chunks of so many, which are unpacked in steps. A chunk takes a millisecond."""

STAYS_ACTIVE_BYTES = 512 * 1024
"""A group with more offsets than this is not packed again while the server runs: that would take milliseconds."""


class Offsets:
    """Durable offsets by topic and partition. Changed only by ``replay``, both at loading and at run time."""

    __slots__ = ("_count", "_topics", "size_bytes")

    def __init__(self) -> None:
        self._count = 0
        self._topics: dict[str, dict[int, OffsetValue]] = {}
        self.size_bytes = 0
        """About the memory of all offsets."""

    def __len__(self) -> int:
        """Counted at each change, because each commit compares it with a limit."""
        return self._count

    def __iter__(self) -> Iterator[tuple[str, int, OffsetValue]]:
        """Topic, partition and committed offset."""
        for topic, partitions in self._topics.items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def topics(self) -> Iterable[tuple[str, Mapping[int, OffsetValue]]]:
        return self._topics.items()

    def restore(self, topic: str, partitions: dict[int, OffsetValue]) -> None:
        """Add offsets of a topic, which it does not have yet, as returned by ``topics``."""
        present = self._topics.get(topic)
        if present is None:
            self._topics[topic] = partitions
            self.size_bytes += TOPIC_OFFSETS_BYTES + len(topic)
        else:
            present.update(partitions)
        self._count += len(partitions)
        self.size_bytes += sum(OFFSET_BYTES + len(value.metadata) for value in partitions.values())

    def replay(self, record: OffsetRecord) -> None:
        value = record.value
        if value is None:
            self._remove(record.topic, record.partition)
            return
        partitions = self._topics.setdefault(record.topic, {})
        replaced = partitions.get(record.partition)
        partitions[record.partition] = value
        if replaced is None:
            self._count += 1
            self.size_bytes += OFFSET_BYTES + len(value.metadata)
            if len(partitions) == 1:
                self.size_bytes += TOPIC_OFFSETS_BYTES + len(record.topic)
        elif replaced.metadata is not value.metadata:
            self.size_bytes += len(value.metadata) - len(replaced.metadata)

    def _remove(self, topic: str, partition: int) -> None:
        partitions = self._topics.get(topic, {})
        removed = partitions.pop(partition, None)
        if removed is not None:
            self._count -= 1
            self.size_bytes -= OFFSET_BYTES + len(removed.metadata)
            if not partitions:
                del self._topics[topic]
                self.size_bytes -= TOPIC_OFFSETS_BYTES + len(topic)

    def fetch(self, request: OffsetFetch) -> Fetched:
        """The requested offsets, in the order of the request. Without a commit the offset is -1, without an error."""
        topics = tuple((topic, self._fetch_topic(topic, ids)) for topic, ids in self.requested(request))
        return Fetched(ErrorCode.NONE, topics)

    def requested(self, request: OffsetFetch) -> Iterable[tuple[str, Sequence[int]]]:
        """The requested topics and partitions; all of them that have an offset, if the request names none."""
        if request.topics is not None:
            return request.topics
        return [(topic, tuple(partitions)) for topic, partitions in self._topics.items()]

    def _fetch_topic(self, topic: str, partitions: Sequence[int]) -> tuple[FetchedOffset, ...]:
        values = self._topics.get(topic, {})
        return tuple(_fetched(partition, values.get(partition)) for partition in partitions)

    def has(self, topic: str, partition: int) -> bool:
        return partition in self._topics.get(topic, {})

    def find(self, topic: str, partition: int) -> OffsetValue | None:
        return self._topics.get(topic, {}).get(partition)

    def partitions(self, topic: str) -> Mapping[int, OffsetValue]:
        """The committed offsets of a topic, by partition."""
        return self._topics.get(topic, {})

    def tombstones(self, group_id: str) -> Iterator[OffsetRecord]:
        """The records that delete all offsets."""
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield OffsetRecord(group_id, topic, partition, None)


class GroupData:
    """The durable data of one group, built only from its records in the order of the log."""

    __slots__ = ("offsets", "packed_chunks", "pending", "type", "value")

    def __init__(self, group_type: GroupType = CLASSIC) -> None:
        self.type = group_type  # a group that has only offsets is a classic one
        self.value: Any = None  # of this kind of group, see ``GroupKind``
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self.packed_chunks: list[bytes] = []
        """Offsets that are not in ``offsets`` yet. ``unpack_in_steps`` moves them there, before any other use."""

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
            if self.pending.by_partition:
                self._supersede(record)
        elif isinstance(record, PendingOffsetRecord):
            self._replay_pending(record)
        elif isinstance(record, MarkerRecord):
            for (topic, partition), value in self.pending.end_transaction(record.producer_id, record.committed):
                self.offsets.replay(OffsetRecord("", topic, partition, value))
        elif not isinstance(record, TransactionRecord | UnknownRecord):
            self._replay_state(record)

    @property
    def size_bytes(self) -> int:
        """About the memory of all offsets, pending ones included."""
        return self.offsets.size_bytes + len(self.pending.by_partition) * OFFSET_BYTES

    @property
    def kind(self) -> GroupKind:
        return KINDS[self.type]

    def _replay_state(self, record: GroupStateRecord) -> None:
        """A record of another kind of group replaces the group; a tombstone of another kind has no effect."""
        if record.group_type == self.type:
            self.value = self.kind.replay(self.value, record)
        elif record.value is not None:
            self.type = record.group_type
            self.value = self.kind.replay(None, record)
        if self.value is None:
            self.type = CLASSIC

    def _supersede(self, record: OffsetRecord) -> None:
        if record.value is None:
            self.pending.remove(record.topic, record.partition)
        else:
            self.pending.supersede(record.topic, record.partition)

    def _replay_pending(self, record: PendingOffsetRecord) -> None:
        """A tombstone takes effect at once, even in a transaction."""
        if record.value is None:
            self.replay(OffsetRecord(*record[:4]))
        else:
            self.pending.add(record)

    def fetch(self, request: OffsetFetch) -> Fetched:
        fetched = self.offsets.fetch(request)
        return self.pending.mask_unstable(fetched) if request.require_stable and self.pending else fetched

    def fetch_in_steps(self, request: OffsetFetch) -> Steps[Fetched]:
        """The same for many partitions."""
        topics = []
        for topic, partitions in self.offsets.requested(request):
            offsets: list[FetchedOffset] = []
            for piece in pieces(partitions):
                [(_, fetched)] = self.fetch(request._replace(topics=((topic, tuple(piece)),))).topics
                offsets += fetched
                yield
            topics.append((topic, tuple(offsets)))
        return Fetched(ErrorCode.NONE, tuple(topics))

    def is_long(self, request: OffsetFetch) -> bool:
        """Whether so many partitions are requested that they should be fetched in steps."""
        return sum(len(partitions) for _, partitions in self.offsets.requested(request)) > SHORT_WORK_ITEMS

    def has(self, topic: str, partition: int) -> bool:
        """Whether there is a committed or pending offset."""
        return self.offsets.has(topic, partition) or (topic, partition) in self.pending.by_partition

    def partition_count(self) -> int:
        """Partitions with a committed or pending offset."""
        return len(self.offsets) + sum(not self.offsets.has(*partition) for partition in self.pending.by_partition)

    def topic_tombstones(self, group_id: str, topics: Collection[str]) -> Iterator[OffsetRecord]:
        """The records that delete the committed and pending offsets of topics."""
        for topic in topics:
            for partition in self.offsets.partitions(topic):
                yield OffsetRecord(group_id, topic, partition, None)
        for topic, partition in self.pending.by_partition:
            if topic in topics and not self.offsets.has(topic, partition):
                yield OffsetRecord(group_id, topic, partition, None)

    def is_empty(self) -> bool:
        """Whether there is no group record, no offset and no pending offset."""
        return self.value is None and not len(self.offsets) and not self.pending and not self.packed_chunks

    def is_packable(self) -> bool:
        """Whether ``pack`` may be called: the group has no members and no open transactions."""
        has_members = self.value is not None and self.kind.has_members(self.value)
        return not (has_members or self.pending or self.packed_chunks)

    def may_be_passivated(self) -> bool:
        """Whether the group can be packed, in a short time."""
        return self.offsets.size_bytes <= STAYS_ACTIVE_BYTES and self.is_packable()

    def pack(self) -> bytes:
        """Serialize to a tenth of the memory, for ``unpack`` in the same process. The group must be packable."""
        assert self.is_packable(), "a group with members or open transactions has to stay active"
        topics = [
            (topic, [(partition, *offset) for partition, offset in partitions.items()])
            for topic, partitions in self.offsets.topics()
        ]
        return pack(self.kind, self.value, topics)

    @classmethod
    def unpack(cls, packed: bytes) -> GroupData:
        """The whole data of a packed group."""
        data = cls.unpack_head(packed)
        run_steps(data.unpack_in_steps())
        return data

    @classmethod
    def unpack_head(cls, packed: bytes) -> GroupData:
        """The data of a packed group. If they are many, the offsets are still in ``packed_chunks``."""
        value, topics, chunks = _content(packed)
        data = cls(packed_types(packed)[0])
        data.value = None if value is None else data.kind.unpack(value)
        data._restore(topics)
        data.packed_chunks = chunks
        return data

    def unpack_in_steps(self) -> Steps[None]:
        """Unpack the chunks. It can be called again after an interruption."""
        while self.packed_chunks:
            self._restore(marshal.loads(self.packed_chunks[-1]))  # nosec B302 # packed by this process
            self.packed_chunks.pop()
            yield

    def _restore(self, topics: Iterable[tuple[str, Iterable[PackedOffset]]]) -> None:
        for topic, offsets in topics:
            self.offsets.restore(topic, {offset[0]: OffsetValue(*offset[1:]) for offset in offsets})

    def tombstones(self, group_id: str) -> Iterator[Record]:
        """The records that delete the offsets and then the group, even if it is a simple group (as in Kafka)."""
        yield from self.offsets.tombstones(group_id)
        for topic, partition in self.pending.by_partition:
            if not self.offsets.has(topic, partition):
                yield OffsetRecord(group_id, topic, partition, None)
        yield from self.kind.tombstones(group_id, self.value)


PackedOffset = tuple[int, int, int, str, int, int]
"""A partition and the fields of its ``OffsetValue``."""


PackedTopics = list[tuple[str, list[PackedOffset]]]


def pack(kind: GroupKind, value: Any, topics: PackedTopics) -> bytes:
    """The input of ``GroupData.unpack``, made without a ``GroupData``: a start packs up to a million groups."""
    if value is None and len(topics) == 1 and len(topics[0][1]) == 1 and is_plain(topics[0][1][0]):
        return pack_offset(topics[0][0], topics[0][1][0])
    group_type = kind.type.encode()
    if value is None:
        since_ms, protocol_type, fields = -1, b"", None
    else:
        protocol_type, fields = kind.protocol_type(value).encode("utf-8", "surrogatepass"), kind.pack(value)
        since_ms = kind.offsets_age_from_ms(value)
    oldest_ms, expire_ms, count = _times_and_count(topics, since_ms)
    head = _HEAD.pack(oldest_ms, expire_ms, len(group_type), len(protocol_type))
    content = (fields, [], _chunks(topics)) if count > CHUNK_OFFSETS else (fields, topics, [])
    return head + group_type + protocol_type + marshal.dumps(content)


def is_plain(offset: PackedOffset) -> bool:
    """Whether an offset has neither metadata nor an explicit expiry time."""
    return not offset[3] and offset[5] == -1


def pack_offset(topic: str, offset: PackedOffset) -> bytes:
    """``pack`` of a group that is one plain offset, in a third of the time: most of a million groups are."""
    partition, committed, leader_epoch, _, commit_ms, _ = offset
    fields = _OFFSET_MARK, partition, committed, leader_epoch, commit_ms
    return _ONE_OFFSET.pack(commit_ms, _NEVER, len(_TYPE), 0, _TYPE, *fields) + topic.encode("utf-8", "surrogatepass")


def _content(packed: bytes) -> tuple[Any, PackedTopics, list[bytes]]:
    """The fields of the group, its offsets, and chunks of further offsets."""
    _, _, type_bytes, protocol_bytes = _HEAD.unpack_from(packed)
    start = _HEAD.size + type_bytes + protocol_bytes
    if packed[start] != _OFFSET_MARK:
        content: tuple[Any, PackedTopics, list[bytes]] = marshal.loads(  # nosec B302 # packed by this process
            memoryview(packed)[start:]
        )
        return content
    partition, committed, leader_epoch, commit_ms = _OFFSET.unpack_from(packed, start)
    topic = packed[start + _OFFSET.size :].decode("utf-8", "surrogatepass")
    return None, [(topic, [(partition, committed, leader_epoch, "", commit_ms, -1)])], []


def packed_offsets(packed: bytes) -> Iterator[tuple[str, list[PackedOffset]]]:
    """The offsets of a packed group, of which a topic may come in several parts, without a ``GroupData``."""
    _, topics, chunks = _content(packed)
    yield from topics
    for chunk in reversed(chunks):
        yield from marshal.loads(chunk)  # nosec B302 # packed by this process


def _chunks(topics: PackedTopics) -> list[bytes]:
    """The offsets in chunks. They are unpacked last to first."""
    chunks: list[bytes] = []
    chunk: PackedTopics = []
    room = CHUNK_OFFSETS
    for topic, offsets in topics:
        start = 0
        while start < len(offsets):
            part = offsets[start : start + room]
            chunk.append((topic, part))
            start, room = start + len(part), room - len(part)
            if not room:
                chunks.append(marshal.dumps(chunk))
                chunk, room = [], CHUNK_OFFSETS
    if chunk:
        chunks.append(marshal.dumps(chunk))
    return chunks[::-1]


def _times_and_count(topics: PackedTopics, since_ms: int) -> tuple[int, int, int]:
    """Times for ``packed_may_have_expired``, by the rules of ``expiry.find_expired`` for a group without members.

    And the number of offsets.
    """
    if not topics:
        return -1, -1, 0  # the group itself is deleted
    oldest_ms = expire_ms = _NEVER
    count = 0
    for _topic, offsets in topics:
        count += len(offsets)
        for _partition, _offset, _epoch, _metadata, commit_ms, expires_ms in offsets:
            if expires_ms != -1:
                if expires_ms < expire_ms:
                    expire_ms = expires_ms
            elif since_ms != -1:
                oldest_ms = min(oldest_ms, since_ms)
            elif commit_ms < oldest_ms:
                oldest_ms = commit_ms
    return oldest_ms, expire_ms, count


def packed_types(packed: bytes) -> tuple[GroupType, str]:
    """The type and the protocol type of a packed group, for listings."""
    _, _, type_bytes, protocol_bytes = _HEAD.unpack_from(packed)
    protocol_at = _HEAD.size + type_bytes
    protocol_type = packed[protocol_at : protocol_at + protocol_bytes].decode("utf-8", "surrogatepass")
    return GroupType(packed[_HEAD.size : protocol_at].decode()), protocol_type


def count_packed_types(packed_groups: Iterable[bytes]) -> Counter[GroupType]:
    """The types of many packed groups. Their heads are compared as bytes, which is five times as fast."""
    heads = Counter(packed[PROTOCOL_LENGTH_AT : _HEAD.size + packed[TYPE_LENGTH_AT]] for packed in packed_groups)
    counts: Counter[GroupType] = Counter()
    for head, count in heads.items():
        counts[GroupType(head[_HEAD.size - PROTOCOL_LENGTH_AT :].decode())] += count
    return counts


def packed_may_have_expired(packed: bytes, now_ms: int, retention_ms: int) -> bool:
    """Whether offsets of a packed group may have expired."""
    oldest_ms, expire_ms, *_ = _HEAD.unpack_from(packed)
    return bool(now_ms - oldest_ms >= retention_ms or now_ms >= expire_ms)


def packed_first_expiry_ms(packed: bytes, retention_ms: int) -> int | None:
    """When the first offset of a packed group expires; None if it has no offsets."""
    oldest_ms, expire_ms, *_ = _HEAD.unpack_from(packed)
    return None if oldest_ms == -1 else int(min(oldest_ms + retention_ms, expire_ms))


def packed_dates_ms(packed: bytes) -> list[int]:
    """When the offsets of a packed group were committed; nothing for a group that never had members."""
    value, topics, chunks = _content(packed)
    if value is None:
        return []
    parts = [topics, *(marshal.loads(chunk) for chunk in chunks)]  # nosec B302 # packed by this process
    return [offset[4] for part in parts for _topic, offsets in part for offset in offsets]


CommitRecords = tuple[tuple[ErrorCode, ...], tuple[Record, ...]]


def commit_records(
    request: OffsetCommit, now_ms: int, metadata_max: int
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetRecord, ...]]:
    """The error code of each partition of a commit, and the records to append.

    Metadata of more than ``metadata_max`` UTF-16 code units is refused for its partition only. (Despite the name of the
    setting, Kafka counts characters, not bytes.)
    """
    expire_ms = now_ms + request.retention_ms if request.retention_ms != -1 else -1
    errors, records = [], []
    for commit in request.commits:
        if len(commit.metadata) > metadata_max // 2 and _utf16_units(commit.metadata) > metadata_max:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(NO_ERROR)
        _, _, offset, leader_epoch, metadata = commit
        value = new_tuple(OffsetValue, (offset, leader_epoch, metadata, now_ms, expire_ms))
        records.append(new_tuple(OffsetRecord, (request.group_id, commit.topic, commit.partition, value)))
    return tuple(errors), tuple(records)


def txn_commit_records(
    request: TxnOffsetCommit, now_ms: int, metadata_max: int
) -> tuple[tuple[ErrorCode, ...], tuple[PendingOffsetRecord, ...]]:
    """The same for a commit in a transaction."""
    plain_commit = OffsetCommit(request.group_id, request.member_id, None, -1, request.commits)
    errors, records = commit_records(plain_commit, now_ms, metadata_max)
    producer = (request.producer_id, request.producer_epoch)
    return errors, tuple(PendingOffsetRecord(*record, *producer) for record in records)


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _fetched(partition: int, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return no_offset(partition)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE)
