"""The interface of the assignors that the coordinator runs, and what they know about a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ...errors import CoordinatorError, ErrorCode

PartitionsByTopic = Mapping[bytes, Sequence[int]]
"""Partition numbers by topic id (16 bytes). A topic that was deleted and created again has another id."""

TargetAssignment = dict[str, dict[bytes, list[int]]]
"""The partitions of each member, by member id. Numbers are sorted, and a topic without partitions is left out."""


class AssignmentFailed(CoordinatorError):
    """An assignor cannot compute an assignment. As in Kafka, the heartbeat that needs it fails with this code."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class AssignmentPending(Exception):
    """The assignor still works: ask again, with the next heartbeat of any member. Until then the old target counts."""


class Topic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    partition_count: int


class GroupMember(NamedTuple):
    """A member as an assignor sees it.

    ``topics``: the names that it subscribes to, without duplicates; some may not exist. ``owned``: its partitions in
    the last target assignment, in the order of its record.
    """

    member_id: str
    topics: Sequence[str]
    owned: PartitionsByTopic = {}
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""


class GroupToAssign(NamedTuple):
    """What an assignor knows. ``topics``: those that exist, by name. ``members``: in the order of the group's table.

    ``is_homogeneous``: whether Kafka's assignors treat the subscriptions of all members as equal. ``names_max``: the
    largest number of topics that a member names, existing or not.
    """

    topics: Mapping[str, Topic]
    members: Sequence[GroupMember]
    is_homogeneous: bool
    group_id: str = ""
    names_max: int = 0

    @classmethod
    def of_names(cls, topics: Mapping[str, Topic], members: Sequence[GroupMember]) -> GroupToAssign:
        """A group whose members subscribe to names only."""
        return cls(topics, members, len({frozenset(member.topics) for member in members}) <= 1)

    def subscribed(self, member: GroupMember) -> list[Topic]:
        """The topics of a member that exist."""
        topics = self.topics
        return [topics[name] for name in member.topics if name in topics]


class ServerAssignor(Protocol):
    """A way to distribute partitions. ``name``: the one that members ask for."""

    @property
    def name(self) -> str: ...

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        """The target assignment of all members. Raises AssignmentFailed and AssignmentPending."""
