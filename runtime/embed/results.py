"""The results of the admin methods: frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

TopicPartition = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    ``topics``: its subscription, and ``assigned``: its partitions, sorted. Both are None if ``metadata`` or
    ``assignment``, the raw bytes, are not in the format of Kafka's consumers.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None
    assigned: tuple[TopicPartition, ...] | None
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group at one moment. ``state``: Kafka's name; ``protocol``: the name of the assignor in use."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a listing. ``type`` is "classic"."""

    group_id: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups, sorted by id. ``after``: the argument for the next page; None on the last page."""

    groups: tuple[ListedGroup, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset: the next one to process. ``leader_epoch`` is -1 if the client sent none."""

    offset: int
    metadata: str
    leader_epoch: int


Target = int | Literal["earliest", "latest"]
"""The target of a reset: an offset, or the start or end offset of the partition."""

Targets = Mapping[TopicPartition | str, Target]
"""Targets by partition. A topic's name alone means all its partitions that are not named."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of a partition's records in memory: from ``start_offset`` up to but excluding ``end_offset``."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. ``is_internal``: used by the coordinator itself, such as ``__consumer_offsets``."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionRange, ...]
    is_internal: bool
