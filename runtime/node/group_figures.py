"""The figures of single groups for /metrics/groups: offsets, lag and members. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...actors.assignors.consumer_protocol import read_assignment
from ...actors.consumer_group.messages import ConsumerGroupDescribed
from ...actors.group.kind import PASSIVATED_NAME
from ...actors.group.offsets import packed_offsets, packed_types
from ...actors.messages import Described, Fetched

CONSUMERS = "consumer"
"""The protocol type of groups whose assignments are in the format of consumers."""


class TopicRange(NamedTuple):
    """The first and the next offset of each partition of a topic that this server leads."""

    starts: Sequence[int]
    ends: Sequence[int]


TopicRanges = Mapping[str, TopicRange]


class PartitionFigures(NamedTuple):
    """``lag``: records from the committed offset to the end; None if the end is not known."""

    partition: int
    offset: int
    lag: int | None


class TopicFigures(NamedTuple):
    """The partitions of a topic with a committed offset."""

    topic: str
    partitions: tuple[PartitionFigures, ...]

    @property
    def offset_sum(self) -> int:
        return sum(partition.offset for partition in self.partitions)

    @property
    def lag(self) -> int | None:
        """None unless the lag of each partition is known."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if len(lags) == len(self.partitions) else None


class Assigned(NamedTuple):
    """``members``: those with partitions of a topic. ``partitions``: how many they have together."""

    members: int
    partitions: int


class GroupFigures(NamedTuple):
    """``empty_members``: without partitions. ``assigned``: by topic; nothing for a group whose format is not known."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: int
    empty_members: int
    assigned: Mapping[str, Assigned]
    topics: tuple[TopicFigures, ...]

    @property
    def known_lag(self) -> int:
        """The sum over the partitions whose lag is known; -1 if there is none."""
        lags = [part.lag for topic in self.topics for part in topic.partitions if part.lag is not None]
        return sum(lags) if lags else -1


def of_passivated(group_id: str, packed: bytes, ranges: TopicRanges) -> GroupFigures:
    """``packed``: a result of ``GroupData.pack``."""
    offsets: dict[str, list[tuple[int, int]]] = {}
    for topic, rows in packed_offsets(packed):
        offsets.setdefault(topic, []).extend((row[0], row[1]) for row in rows)
    topics = _topics(offsets.items(), ranges)
    return GroupFigures(group_id, PASSIVATED_NAME, packed_types(packed)[1], "", 0, 0, {}, topics)


def of_classic(described: Described, fetched: Fetched, ranges: TopicRanges) -> GroupFigures:
    """Of a group of the classic protocol. Assignments that cannot be decoded count as empty."""
    is_consumers = described.protocol_type == CONSUMERS
    decoded = [read_assignment(member.assignment) for member in described.members] if is_consumers else []
    assigned = [[topic for topic, _ in found.partitions] if found is not None else [] for found in decoded]
    members, topics = len(described.members), _fetched_topics(fetched, ranges)
    names = described.group_id, described.state, described.protocol_type, described.protocol
    return GroupFigures(*names, members, sum(not topic for topic in assigned), _assigned(assigned), topics)


def of_consumers(
    described: ConsumerGroupDescribed,
    fetched: Fetched,
    ranges: TopicRanges,
    topic_name: Callable[[bytes], str | None],
) -> GroupFigures:
    """Of a group of the consumer protocol. ``topic_name``: by the topic's id; None if the topic was deleted."""
    names = {topic_id: topic_name(topic_id) for member in described.members for topic_id, _ in member.assigned}
    assigned = [
        [name for topic_id, _ in member.assigned if (name := names[topic_id]) is not None]
        for member in described.members
    ]
    members, topics = len(described.members), _fetched_topics(fetched, ranges)
    names_of_group = described.group_id, described.state, CONSUMERS, described.assignor_name
    return GroupFigures(*names_of_group, members, sum(not topic for topic in assigned), _assigned(assigned), topics)


def _assigned(topics_of_members: Iterable[Sequence[str]]) -> dict[str, Assigned]:
    """By topic. Each member has the topic of each of its partitions."""
    members: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for topics in topics_of_members:
        for topic in topics:
            partitions[topic] = partitions.get(topic, 0) + 1
        for topic in set(topics):
            members[topic] = members.get(topic, 0) + 1
    return {topic: Assigned(members[topic], count) for topic, count in partitions.items()}


def _fetched_topics(fetched: Fetched, ranges: TopicRanges) -> tuple[TopicFigures, ...]:
    rows = ((topic, [(row.partition, row.offset) for row in partitions]) for topic, partitions in fetched.topics)
    return _topics(rows, ranges)


def _topics(offsets: Iterable[tuple[str, Iterable[tuple[int, int]]]], ranges: TopicRanges) -> tuple[TopicFigures, ...]:
    """``offsets``: by topic, partitions and their committed offsets."""
    return tuple(
        TopicFigures(topic, tuple(_partition(*row, ranges.get(topic)) for row in rows)) for topic, rows in offsets
    )


def _partition(partition: int, offset: int, known: TopicRange | None) -> PartitionFigures:
    """The lag is not below 0: a deleted topic that was created again begins at 0."""
    if known is None or not 0 <= partition < len(known.ends):
        return PartitionFigures(partition, offset, None)
    return PartitionFigures(partition, offset, max(known.ends[partition] - offset, 0))
