"""The target assignment: when the group needs a new one, and the assignor's part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..assignors.server.base import (
    AssignmentFailed,
    AssignmentPending,
    GroupToAssign,
    PartitionsByTopic,
    ServerAssignor,
    TargetAssignment,
    Topic,
)
from ..assignors.server.hash_order import copied_map_order, member_order_of, timeline_order
from ..errors import CoordinatorError, ErrorCode
from ..javahash import java_hash
from ..ports import TopicsView
from ..steps import Steps, pieces
from .members_to_assign import members_to_assign
from .plan import DecisionEnvironment, Plan
from .records import (
    GroupEpochRecord,
    GroupEpochValue,
    Partition,
    RegexValue,
    Subscription,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
)
from .state import GroupState, Member
from .subscriptions import subscribed_topics

ASK_AGAIN_MS = 100
"""An assignor that still works is asked again after this time: asking takes longer the more members there are."""


class Target(NamedTuple):
    """The target of one member, and the epoch of the target assignment."""

    epoch: int
    partitions: Sequence[Partition]


def next_group_epoch(
    state: GroupState,
    subscriptions: Iterable[Subscription],
    has_changed: bool,
    environment: DecisionEnvironment,
    plan: Plan,
    regexes: Mapping[str, RegexValue] | None = None,
) -> Steps[int]:
    """The group epoch with these subscriptions. It rises if a subscription has changed, or a topic that somebody reads.

    ``regexes``: with new results; None: those of the state.
    """
    names = yield from subscribed_topics(subscriptions, state.regexes if regexes is None else regexes)
    metadata_hash = yield from environment.metadata_hash(names)
    if not has_changed and metadata_hash == state.epoch.metadata_hash:
        return state.epoch.epoch
    value = GroupEpochValue(state.epoch.epoch + 1, metadata_hash)
    plan.records.append(GroupEpochRecord(state.group_id, value))
    return value.epoch


class NextGroup(NamedTuple):
    """The group after a heartbeat, which is to be assigned.

    ``is_homogeneous``: as in Kafka, this is the answer of the last time that subscriptions were looked at. So it does
    not count a member that joins without topics.
    """

    epoch: int
    subscriptions: Iterable[Subscription]
    is_homogeneous: bool


def next_target(
    state: GroupState, member: Member, group: NextGroup, environment: DecisionEnvironment, plan: Plan
) -> Steps[Target]:
    """The member's target after this heartbeat. Raises CoordinatorError if the assignor fails.

    While the assignor works, or the last assignment is too young, it is the old one.
    """
    if not needs_target(state, environment, group.epoch):
        return Target(state.target.epoch, state.target_of(member))
    try:
        targets = yield from _assign(state, member, group, environment)
    except AssignmentPending:
        plan.asked_ms = environment.wall_ms
        return Target(state.target.epoch, state.target_of(member))
    except AssignmentFailed as error:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {group.epoch}: {error}",
        ) from error
    plan.records += changed_targets(state, targets)
    value = TargetEpochValue(group.epoch, environment.wall_ms)
    plan.records.append(TargetEpochRecord(state.group_id, value))
    return Target(group.epoch, _partitions(targets[member.member_id]))


def changed_targets(state: GroupState, targets: TargetAssignment) -> Iterator[TargetRecord]:
    """The records of the targets that differ from those of the state, in Kafka's order."""
    changed = {
        member_id: partitions
        for member_id, partitions in targets.items()
        if not _is_same_target(state.targets.get(member_id), partitions)
    }
    for member_id in member_order_of(changed, targets):
        yield TargetRecord(state.group_id, member_id, _partitions(changed[member_id]))


def _is_same_target(old: tuple[Partition, ...] | None, partitions: PartitionsByTopic) -> bool:
    if old is None:
        return False
    if len(old) == 1 and len(partitions) == 1:  # those of most members of a large group
        [(topic_id, number)] = old
        return partitions.get(topic_id) == [number]
    return set(old) == set(_partitions(partitions))


def _partitions(partitions: PartitionsByTopic) -> tuple[Partition, ...]:
    return tuple((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)


def needs_target(state: GroupState, environment: DecisionEnvironment, epoch: int | None = None) -> bool:
    """Whether there is to be a new target assignment now. ``epoch``: that of the group, if it rises."""
    group_epoch = state.epoch.epoch if epoch is None else epoch
    return state.target.epoch < group_epoch and _may_assign(state, environment)


def _may_assign(state: GroupState, environment: DecisionEnvironment) -> bool:
    """Whether the last assignment is old enough (KIP-1263). One of the future is: the clock was set back."""
    asked_ms = state.seen.asked_ms
    if asked_ms is not None and asked_ms <= environment.wall_ms < asked_ms + ASK_AGAIN_MS:
        return False
    interval_ms, last_ms = environment.settings.assignment_interval_ms, state.target.timestamp_ms
    return not interval_ms or not last_ms <= environment.wall_ms < last_ms + interval_ms


def _assign(
    state: GroupState, member: Member, group: NextGroup, environment: DecisionEnvironment
) -> Steps[TargetAssignment]:
    names = yield from subscribed_topics(group.subscriptions, state.regexes)
    to_assign = GroupToAssign(
        (yield from _topics(environment.topics, names)),
        members_to_assign(state, member),
        group.is_homogeneous,
        state.group_id,
        max((len(topics) for topics, _regex in group.subscriptions), default=0),
    )
    return choose_assignor(state.members, member, environment.assignors).assign(to_assign)


def _topics(view: TopicsView, names: set[str]) -> Steps[dict[str, Topic]]:
    topics: dict[str, Topic] = {}
    for piece in pieces(names):
        for name in piece:
            topic_id, count = view.topic_id(name), view.partition_count(name)
            if topic_id is not None and count is not None:
                topics[name] = Topic(topic_id, count)
        yield
    return topics


def preferred_assignor(members: Mapping[str, Member], assignor_count: int) -> str | None:
    """The name that most members ask for, as Kafka describes the group; None if nobody asks."""
    votes = Counter(name for member in members.values() if (name := member.about.server_assignor) is not None)
    return max(timeline_order(votes, assignor_count), key=votes.__getitem__, default=None)


def choose_assignor(
    members: Mapping[str, Member], member: Member, assignors: Mapping[str, ServerAssignor]
) -> ServerAssignor:
    """The one that most members ask for; of several, the first in Kafka's hash map.

    Names that this coordinator does not know, from records of another one, do not count.

    ``members``: those before the heartbeat of ``member``. Its vote is added afterwards, and ``compute`` of a Java
    HashMap puts a new key before the others of its bucket.
    """
    own = member.about.server_assignor
    if {other.about.server_assignor for other in members.values()} <= {own}:
        return assignors.get(own or "", next(iter(assignors.values())))
    others = [other for other in members.values() if not _is_same(other, member)]
    votes = Counter(other.about.server_assignor for other in others)
    names = timeline_order([name for name in votes if name is not None and name in assignors], len(assignors))
    if own is not None and own in assignors:
        names = names if own in votes else [own, *names]
        votes[own] += 1
    return assignors[max(copied_map_order(names, java_hash), key=votes.__getitem__, default=next(iter(assignors)))]


def _is_same(other: Member, member: Member) -> bool:
    """Whether they are one member, or a static member and the one that takes its place."""
    instance_id = member.about.instance_id
    return other.member_id == member.member_id or (instance_id is not None and instance_id == other.about.instance_id)
