"""Records 3 to 8 and 16 of ``__consumer_offsets``: a group of the consumer protocol, its members and its assignments.

A partition is a pair of topic id and number. Source of the fields: KIP-848, KIP-1251 (assignment epochs of partitions),
KIP-1263 (the time of an assignment), KIP-1101 (the metadata hash).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ..records import GroupType

CONSUMER = GroupType("consumer")

Partition = tuple[bytes, int]
"""A topic id and a number."""

PartitionEpochs = Mapping[Partition, int]
"""Partitions of a member, each with the epoch of the assignment that gave it to the member."""

NO_PARTITIONS: PartitionEpochs = {}

NO_EPOCH = -1


class MemberState(IntEnum):
    """How far a member is on the way to its target. UNKNOWN: a state of a newer Kafka."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class GroupEpochValue(NamedTuple):
    """``metadata_hash``: of the topics that members subscribe to; 0 without topics."""

    epoch: int
    metadata_hash: int = 0


class GroupEpochRecord(NamedTuple):
    """Key type 3: the group."""

    group_id: str
    value: GroupEpochValue | None

    @property
    def key_type(self) -> int:
        return 3

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0


class TopicMetadata(NamedTuple):
    """A topic as Kafka 4.0 recorded it. ``racks``: of each partition, its number and the racks of its replicas."""

    topic_id: bytes
    name: str
    partition_count: int
    racks: tuple[tuple[int, tuple[str, ...]], ...] = ()


class TopicMetadataRecord(NamedTuple):
    """Key type 4: the topics of the group. Kafka before 4.1 wrote it, instead of the metadata hash."""

    group_id: str
    value: tuple[TopicMetadata, ...] | None

    @property
    def key_type(self) -> int:
        return 4

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value)


class ClassicMember(NamedTuple):
    """What a member of the classic protocol said besides. ``protocols``: names and metadata, in its order."""

    session_timeout_ms: int = 0
    protocols: tuple[tuple[str, bytes], ...] = ()


Subscription = tuple[tuple[str, ...], str]
"""The names of topics, and a regular expression or ""."""


class MemberValue(NamedTuple):
    """What a member said of itself. ``topics`` are sorted. ``classic``: None if it uses the consumer protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    @property
    def subscription(self) -> Subscription:
        return self.topics, self.regex

    @property
    def text_bytes(self) -> int:
        """About the length of all texts."""
        texts = (self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex, self.server_assignor)
        protocols = () if self.classic is None else self.classic.protocols
        return (
            sum(len(text) for text in texts if text)
            + len("".join(self.topics))  # twice as fast as the sum of the lengths
            + sum(len(name) + len(metadata) for name, metadata in protocols)
        )


class MemberRecord(NamedTuple):
    """Key type 5: a member."""

    group_id: str
    member_id: str
    value: MemberValue | None

    @property
    def key_type(self) -> int:
        return 5

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value.topics)


class TargetEpochValue(NamedTuple):
    """The last target assignment. ``timestamp_ms``: wall-clock time, 0 if it is not known."""

    epoch: int
    timestamp_ms: int = 0


class TargetEpochRecord(NamedTuple):
    """Key type 6: the epoch of the target assignment."""

    group_id: str
    value: TargetEpochValue | None

    @property
    def key_type(self) -> int:
        return 6

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0


class TargetRecord(NamedTuple):
    """Key type 7: the partitions that a member shall have."""

    group_id: str
    member_id: str
    value: tuple[Partition, ...] | None

    @property
    def key_type(self) -> int:
        return 7

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value)


class CurrentValue(NamedTuple):
    """The partitions that a member has, and those that it was told to give back."""

    member_epoch: int = 0
    previous_member_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = NO_PARTITIONS
    pending_revocation: PartitionEpochs = NO_PARTITIONS


class CurrentRecord(NamedTuple):
    """Key type 8: the current assignment of a member."""

    group_id: str
    member_id: str
    value: CurrentValue | None

    @property
    def key_type(self) -> int:
        return 8

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value.assigned) + len(self.value.pending_revocation)


class RegexValue(NamedTuple):
    """The topics that a regular expression matched. ``topics`` are sorted. ``topics_version``: of all topics then.

    ``timestamp_ms``: wall-clock time.
    """

    topics: tuple[str, ...] = ()
    topics_version: int = 0
    timestamp_ms: int = 0


class RegexRecord(NamedTuple):
    """Key type 16: a regular expression that members subscribe to."""

    group_id: str
    regex: str
    value: RegexValue | None

    @property
    def key_type(self) -> int:
        return 16

    @property
    def group_type(self) -> GroupType:
        return CONSUMER

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value.topics)


ConsumerRecord = (
    GroupEpochRecord
    | TopicMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)
