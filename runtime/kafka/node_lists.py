"""What a node of a cluster tells the others of all its groups and topics, in steps."""

from __future__ import annotations

from collections.abc import Iterable

from ...actors.messages import GroupChanged, ListedGroup
from ...actors.recorder.flight_recorder import FlightRecorder
from ...actors.steps import Steps, pieces
from ..topics.ranges import ranges_in_steps
from ..topics.topic import NOT_LED
from .node_subjects import (
    FindOffsets,
    GroupsRead,
    LastRebalance,
    ListedState,
    OffsetsFound,
    ReadGroups,
    ReadTopics,
    RebalancesRead,
    TopicsRead,
)
from .services import GroupRouter, TopicReader

HOUR_MS = 3_600_000


def read_topics(topics: TopicReader, message: ReadTopics) -> Steps[TopicsRead]:
    names = message.names or topics.names()
    ranges = yield from ranges_in_steps(topics.get(name) for name in names)
    return TopicsRead(tuple((name, tuple(starts), tuple(ends)) for name, (starts, ends) in ranges.items()))


def find_offsets(topics: TopicReader, message: FindOffsets) -> Steps[OffsetsFound]:
    topic = topics.get(message.topic)
    if topic is None or topic.leader_epoch == NOT_LED:
        return OffsetsFound(None)
    offsets: list[tuple[int, int]] = []
    for index in range(len(topic.partitions)):
        found = yield from topic.partitions.peek(index).find_first_since(message.time_ms)
        if found is not None:
            offsets.append((index, found.offset))
        yield
    return OffsetsFound(tuple(offsets))


def read_groups(groups: GroupRouter, message: ReadGroups) -> Steps[GroupsRead | None]:
    """None if the partition is not loaded."""
    if not 0 <= message.partition < len(groups.partitions):
        return None
    partition = groups.partitions[message.partition]
    if not partition.is_active:
        return None
    passive = tuple(partition.passivated.items())
    digest = 1
    for piece in pieces(passive):
        digest = hash((digest, piece))
        yield
    active = yield from _listed(map(groups.listed.get, tuple(partition.active)))
    unreadable = yield from _listed(map(partition.list_quarantined, tuple(partition.quarantined)))
    return GroupsRead(digest, None if digest == message.known_digest else passive, active, unreadable)


def last_rebalances(recorder: FlightRecorder, groups: Iterable[str], now_ms: int) -> Steps[RebalancesRead]:
    """``now_ms``: since 1970. Groups without a record are left out."""
    found: list[LastRebalance] = []
    for piece in pieces(groups):
        for group, records in ((group, recorder.records(group)) for group in piece):
            if records:
                in_an_hour = sum(now_ms - record.ended_ms < HOUR_MS for record in records)
                found.append(LastRebalance(group, records[0].ended_ms, records[0].why.cause, in_an_hour))
        yield
    return RebalancesRead(tuple(found))


def _listed(groups: Iterable[GroupChanged | ListedGroup | None]) -> Steps[tuple[ListedState, ...]]:
    found: list[ListedState] = []
    for piece in pieces(groups):
        found += (ListedState(each.group_id, each.state, each.group_type, each.protocol_type) for each in piece if each)
        yield
    return tuple(found)
