"""What a coordinator tells of itself to the program that it is embedded in: plain values that never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

TopicPartition = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, as its coordinator knows it.

    ``topics``: what it subscribes to, and ``assigned``: what it was given, sorted; both None where the bytes are not in
    the format of Kafka's consumers. ``metadata`` and ``assignment`` are these bytes.
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
    """A group at one moment. ``state``: Kafka's name of it; ``protocol``: the assignor that its members agreed on."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as a listing shows it. ``type`` is "classic"."""

    group_id: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups, by id. ``after``: what to give for the next page; None when this is the last."""

    groups: tuple[ListedGroup, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has committed for a partition. ``leader_epoch`` is -1 when the client said none."""

    offset: int
    metadata: str
    leader_epoch: int


Target = int | Literal["earliest", "latest"]
"""Where a reset goes: to an offset, or to the beginning or the end of what the topic holds in memory."""

Targets = Mapping[TopicPartition | str, Target]
"""By partition; a topic's name alone stands for all its partitions that are not named."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What a partition holds in memory: records from ``start_offset`` up to, and without, ``end_offset``."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. ``is_internal``: the coordinator's own."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionRange, ...]
    is_internal: bool
