"""What a heartbeat does: the member changes, then the group's epoch, its target, and the member's partitions.

Source: ``GroupMetadataManager.consumerGroupHeartbeat`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..ports import TopicsView
from ..steps import Steps, pieces
from .checks import check_request, check_size
from .members import find_member, updated_about
from .messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from .plan import DecisionEnvironment, Plan, RebalanceDeadline
from .reconcile import Reconciliation, reconcile
from .records import CurrentRecord, CurrentValue, MemberRecord, MemberState, Partition, TopicMetadataRecord
from .regexes import RegexChange, change_regex
from .removal import leave, leave_for_a_while
from .state import GroupState, Member
from .subscriptions import subscribe_equally, topics_of, with_member
from .target import NextGroup, Target, needs_target, next_group_epoch, next_target

Handler = Callable[[GroupState, ConsumerHeartbeat, DecisionEnvironment, Plan], Steps[ConsumerHeartbeatReply]]


def handle_heartbeat(
    state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment, plan: Plan
) -> Steps[ConsumerHeartbeatReply]:
    """The reply, to be sent when the records are durable. Raises CoordinatorError; then nothing changes.

    The state must not change before the last step.
    """
    check_request(request, environment.assignors)
    return (yield from HANDLERS.get(request.member_epoch, _beat)(state, request, environment, plan))


def _beat(
    state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment, plan: Plan
) -> Steps[ConsumerHeartbeatReply]:
    check_size(state, request.member_id, environment.settings.max_size)
    member_id = request.member_id or environment.new_member_id()
    before = find_member(state, request, member_id, plan)
    about = yield from updated_about(before.about, request)
    has_new_about = about is not before.about and about != before.about
    member = before._replace(about=about) if has_new_about else before
    if has_new_about:
        plan.records.append(MemberRecord(state.group_id, member_id, about))
    regex_change = change_regex(state, before.about, about, environment, plan)
    names_change = about.topics != before.about.topics
    needs_epoch = names_change or regex_change is RegexChange.RESOLVED
    target = yield from target_after(state, member, needs_epoch, environment, plan)
    has_changed = names_change or regex_change is not RegexChange.NONE
    current = yield from current_after(state, member, target, request.owned, has_changed, environment.topics)
    if current != member.current:
        plan.records.append(CurrentRecord(state.group_id, member_id, current))
        plan.deadlines[member_id] = _deadline(member, current)
    plan.sessions[member_id] = None
    if before.about.classic is not None:
        plan.joins[member_id] = plan.syncs[member_id] = None
    is_told = request.member_epoch == JOIN_EPOCH or request.is_full or current.assigned != before.current.assigned
    return ConsumerHeartbeatReply(
        member_id=member_id,
        member_epoch=current.member_epoch,
        heartbeat_interval_ms=environment.settings.heartbeat_interval_ms,
        assigned=tuple(current.assigned) if is_told else None,
    )


def target_after(
    state: GroupState, member: Member, has_changed: bool, environment: DecisionEnvironment, plan: Plan
) -> Steps[Target]:
    """The target of a member, with what it now says of itself. ``has_changed``: whether the group needs a new epoch."""
    version = environment.topics.version  # before any step: topics that change meanwhile are looked at again
    is_current = state.seen.topics_version == version
    if is_current and not has_changed and not needs_target(state, environment):
        return Target(state.target.epoch, state.target_of(member))
    subscriptions = with_member(state, member)
    yield
    group = NextGroup(state.epoch.epoch, subscriptions, subscribe_equally(state.subscriptions))
    if has_changed or not is_current:
        epoch = yield from next_group_epoch(state, subscriptions, has_changed, environment, plan)
        group = NextGroup(epoch, subscriptions, subscribe_equally(subscriptions))
        plan.topics_version = version
        if state.has_topic_metadata:
            plan.records.append(TopicMetadataRecord(state.group_id, None))
    return (yield from next_target(state, member, group, environment, plan))


def current_after(
    state: GroupState,
    member: Member,
    target: Target,
    owned: Collection[Partition] | None,
    has_changed: bool,
    topics: TopicsView,
) -> Steps[CurrentValue]:
    """What the member has after its next step to the target. ``owned``, ``has_changed``: see ``Reconciliation``."""
    if not has_changed and member.is_reconciled_to(target.epoch):
        return member.current
    names = yield from topics_of(member.about, state.regexes)
    topic_ids: set[bytes] = set()
    for piece in pieces(names):
        topic_ids.update(topic_id for name in piece if (topic_id := topics.topic_id(name)) is not None)
        yield
    return reconcile(
        Reconciliation(
            member.current,
            target.epoch,
            target.partitions,
            topic_ids,
            state.owners.__contains__,
            owned,
            has_changed,
            bool(names),
        )
    )


def _deadline(member: Member, current: CurrentValue) -> RebalanceDeadline | None:
    if current.state is not MemberState.UNREVOKED_PARTITIONS:
        return None
    return RebalanceDeadline(member.about.rebalance_timeout_ms, current.member_epoch)


HANDLERS: Mapping[int, Handler] = {LEAVE_EPOCH: leave, LEAVE_STATIC_EPOCH: leave_for_a_while}
"""By the epoch in the request. All others are heartbeats; 0 joins."""
