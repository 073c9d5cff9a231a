"""What a node of a cluster can be asked: the subjects of AskNode, with the message and the reply of each. Pure.

A message goes to its group, except those whose names begin with Read or Find. Most of them have a request of Kafka's,
too, which clients use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup
from ...actors.errors import ErrorCode
from ...actors.group.reset_messages import DescribeReset, OffsetsReset, ResetDescribed, ResetOffsets
from ...actors.messages import (
    CommitsDescribed,
    Committed,
    DeleteGroup,
    DescribeCommits,
    Described,
    DescribeGroup,
    ExplainGroup,
    Fetched,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
)
from ...actors.recorder.recorded import GroupRecorded
from .authorization.checks import DELETE_GROUP, DESCRIBE_GROUP, READ_GROUP, Check


class ReadTopics(NamedTuple):
    """The offsets of the topics that a node leads, of all without ``names``. The reply is ``TopicsRead``."""

    names: tuple[str, ...] = ()
    group_id: str = ""


class TopicsRead(NamedTuple):
    """By topic, the first and the next offset of each partition."""

    topics: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class FindOffsets(NamedTuple):
    """The first records of a topic with this timestamp or a later one. The reply is ``OffsetsFound``."""

    topic: str
    time_ms: int
    group_id: str = ""


class OffsetsFound(NamedTuple):
    """``offsets``: by partition, of those that have such a record; None if the node does not lead the topic."""

    offsets: tuple[tuple[int, int], ...] | None


class ReadGroups(NamedTuple):
    """All groups of a partition of the log. ``known_digest``: of those that the asker has; 0 for none.

    The reply is ``GroupsRead``; NOT_COORDINATOR if the node does not have the partition, or has not loaded it.
    """

    partition: int
    known_digest: int = 0
    group_id: str = ""


class ListedState(NamedTuple):
    """A group with an actor, or one that cannot be read."""

    group: str
    state: str
    type: str
    protocol_type: str


class GroupsRead(NamedTuple):
    """``passive``: the groups without an actor, packed; None if their digest is the known one.

    A digest is right as long as the process of the node lives.
    """

    digest: int
    passive: tuple[tuple[str, bytes], ...] | None
    active: tuple[ListedState, ...]
    unreadable: tuple[ListedState, ...]


class ReadResets(NamedTuple):
    """The records of resets that a node keeps: with a change id that of one change, else those of a group.

    The reply is ``ResetsRead``.
    """

    group_id: str
    change_id: str = ""


class ResetsRead(NamedTuple):
    """The contents of the records, the newest first, of at most ``RESETS_BYTES_MAX``."""

    records: tuple[bytes, ...]


class ReadRebalances(NamedTuple):
    """The last rebalances of groups that a node has. The reply is ``RebalancesRead``."""

    groups: tuple[str, ...]
    group_id: str = ""


class LastRebalance(NamedTuple):
    """The last one of a group. ``in_an_hour``: how many have ended in the last hour, of the last 50."""

    group: str
    ended_ms: int
    cause: str
    in_an_hour: int


class RebalancesRead(NamedTuple):
    """Of the groups that have a record."""

    rebalances: tuple[LastRebalance, ...]


RESETS_BYTES_MAX: Final = 8_000_000
"""Of the largest resets, some hundred thousand partitions."""


class Subject(NamedTuple):
    """``checks``: what a client must be allowed. Without any only nodes may ask: clients have a request of Kafka's."""

    message: Any
    reply: Any
    checks: tuple[Check, ...] = ()


SUBJECTS: Final[Mapping[str, Subject]] = {
    row.message.__name__: row
    for row in (
        Subject(DescribeGroup, Described),
        Subject(DescribeConsumerGroup, ConsumerGroupDescribed),
        Subject(OffsetFetch, Fetched),
        Subject(OffsetCommit, Committed),
        Subject(OffsetDelete, OffsetsDeleted),
        Subject(LeaveGroup, Left),
        Subject(DeleteGroup, ErrorCode),
        Subject(ExplainGroup, GroupRecorded, (DESCRIBE_GROUP,)),
        Subject(DescribeCommits, CommitsDescribed),
        Subject(DescribeReset, ResetDescribed, (DESCRIBE_GROUP,)),
        Subject(ResetOffsets, OffsetsReset, (READ_GROUP, DELETE_GROUP)),
        Subject(ReadTopics, TopicsRead),
        Subject(FindOffsets, OffsetsFound),
        Subject(ReadGroups, GroupsRead),
        Subject(ReadResets, ResetsRead),
        Subject(ReadRebalances, RebalancesRead),
    )
}
