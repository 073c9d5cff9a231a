"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup and Heartbeat.

A JoinGroup is such a member's heartbeat: it brings the subscription and the partitions that the member owns, and takes
the member a step to its target. Its generation is the member's epoch. SyncGroup returns the partitions; Heartbeat says
when the member has to join again. Source: ``classicGroupJoinToConsumerGroup``, ``classicGroupSyncToConsumerGroup`` and
``classicGroupHeartbeatToConsumerGroup`` of Kafka 4.3.1.
"""

from __future__ import annotations

from ..assignors.consumer_protocol import Subscription, subscription_in_steps
from ..errors import NO_ERROR, CoordinatorError, ErrorCode
from ..group.subscription import CONSUMER_PROTOCOL_TYPE
from ..messages import Heartbeat, Joined, JoinGroup, Synced, SyncGroup
from ..steps import Steps
from .checks import check_size, known_member, known_static_member
from .conversion import encode_assignment, existing_partitions, may_downgrade, topic_names
from .heartbeat import current_after, target_after
from .members import find_classic_member, sorted_topics
from .plan import DecisionEnvironment, Downgrade, Plan
from .policy import MigrationPolicy
from .records import ClassicMember, CurrentRecord, MemberRecord, MemberState, MemberValue, Partition
from .regexes import RegexChange, change_regex
from .state import GroupState, Member
from .subscriptions import with_member
from .target import Target, next_group_epoch


def join(state: GroupState, request: JoinGroup, environment: DecisionEnvironment, plan: Plan) -> Steps[Joined]:
    """The reply, to be sent when the records are durable. Raises CoordinatorError; then nothing changes."""
    _check_policy(state, environment)
    member_id = request.member_id or environment.new_member_id()
    check_size(state, member_id, environment.settings.max_size)
    _check_protocols(state, request)
    if not request.member_id and request.group_instance_id is None and request.needs_member_id:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    return (yield from _join(state, request, member_id, environment, plan))


def _check_policy(state: GroupState, environment: DecisionEnvironment) -> None:
    if environment.settings.migration_policy is MigrationPolicy.DISABLED:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {state.group_id} with the classic protocol because the group migration is"
            " disabled.",
        )


def _check_protocols(state: GroupState, request: JoinGroup) -> None:
    """All members of the classic protocol need one in common, so that the group can become a classic one."""
    is_supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        state.offer_count(protocol.name) == state.classic_count for protocol in request.protocols
    )
    if not is_supported:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {request.member_id}'s protocols are not supported."
        )


def _join(
    state: GroupState, request: JoinGroup, member_id: str, environment: DecisionEnvironment, plan: Plan
) -> Steps[Joined]:
    before = find_classic_member(state, request, member_id, plan)
    subscription = yield from _read_subscription(request)
    about = _about(before.about, request, subscription, (yield from sorted_topics(subscription.topics)))
    member = before._replace(about=about)
    if member != before:
        plan.records.append(MemberRecord(state.group_id, member_id, about))
    regex_change = change_regex(state, before.about, about, environment, plan)
    plan.regexes_to_resolve = ()  # at a heartbeat, which says what its member may see
    has_changed = about.topics != before.about.topics or regex_change is RegexChange.RESOLVED
    owned = tuple((yield from existing_partitions(subscription.owned, environment.topics)))
    replaced = state.static_member(request.group_instance_id)
    if replaced is not None and _downgrades(state, replaced, environment):
        epoch = yield from _downgrade(state, member, owned, has_changed, environment, plan)
    else:
        target = yield from target_after(state, member, has_changed, environment, plan)
        epoch = yield from _advance(state, member, target, owned, has_changed, environment, plan)
    plan.deadlines[member_id] = plan.joins[member_id] = None
    plan.sessions[member_id], plan.syncs[member_id] = request.session_timeout_ms, request.rebalance_timeout_ms
    return Joined(
        NO_ERROR,
        member_id=member_id,
        generation_id=epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )


def _read_subscription(request: JoinGroup) -> Steps[Subscription]:
    """All protocols have the same topics and owned partitions, so the first one counts."""
    subscription = yield from subscription_in_steps(request.protocols[0].metadata)
    if subscription is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The subscription of member {request.member_id} cannot be read."
        )
    return subscription


def _about(about: MemberValue, request: JoinGroup, subscription: Subscription, topics: tuple[str, ...]) -> MemberValue:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    timeout_ms = request.rebalance_timeout_ms
    return about._replace(
        instance_id=about.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or about.rack_id,
        rebalance_timeout_ms=about.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=topics,
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )


def _advance(
    state: GroupState,
    member: Member,
    target: Target,
    owned: tuple[Partition, ...],
    has_changed: bool,
    environment: DecisionEnvironment,
    plan: Plan,
) -> Steps[int]:
    """Take the member a step to its target. Returns its epoch."""
    current = yield from current_after(state, member, target, owned, has_changed, environment.topics)
    if current != member.current:
        plan.records.append(CurrentRecord(state.group_id, member.member_id, current))
    return current.member_epoch


def _downgrades(state: GroupState, replaced: Member, environment: DecisionEnvironment) -> bool:
    """Whether the group has no other member of the consumer protocol than the one that is replaced."""
    uses_consumer_protocol = replaced.about.classic is None
    going = (replaced.member_id,)
    return uses_consumer_protocol and may_downgrade(state, going, len(state.members), environment.settings)


def _downgrade(
    state: GroupState,
    member: Member,
    owned: tuple[Partition, ...],
    has_changed: bool,
    environment: DecisionEnvironment,
    plan: Plan,
) -> Steps[int]:
    """The group becomes a classic one. Its members go on if the target assignment is that of the group's epoch."""
    epoch = state.epoch.epoch
    if has_changed or state.seen.topics_version != environment.topics.version:
        epoch = yield from next_group_epoch(state, with_member(state, member), has_changed, environment, plan)
    needs_rebalance = state.target.epoch < epoch
    member_epoch = member.current.member_epoch
    if not needs_rebalance:
        target = Target(state.target.epoch, state.target_of(member))
        member_epoch = yield from _advance(state, member, target, owned, has_changed, environment, plan)
    plan.downgrade = Downgrade((), member.member_id, state.epoch.epoch, needs_rebalance)
    return member_epoch


# SyncGroup and Heartbeat ---------------------------------------------------------------------------------------------


def sync(state: GroupState, request: SyncGroup, environment: DecisionEnvironment, plan: Plan) -> Synced:
    """The partitions of the member. Raises CoordinatorError."""
    member, classic = _sender(state, request)
    _check_protocol(request, classic)
    if _has_new_target(state, member) and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(member, plan)
        return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    plan.syncs[member.member_id] = None
    plan.sessions[member.member_id] = classic.session_timeout_ms
    names = topic_names(member.about.topics, environment.topics)
    assignment = encode_assignment(member.current.assigned, names, classic.protocols[0][1])
    return Synced(NO_ERROR, request.protocol_type, request.protocol_name, assignment)


def beat(state: GroupState, request: Heartbeat, _environment: DecisionEnvironment, plan: Plan) -> ErrorCode:
    """Whether the member has to join again. Raises CoordinatorError."""
    member, classic = _sender(state, request)
    plan.sessions[member.member_id] = classic.session_timeout_ms
    if not _must_join(state, member):
        return NO_ERROR
    _expect_join(member, plan)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _sender(state: GroupState, request: SyncGroup | Heartbeat) -> tuple[Member, ClassicMember]:
    if request.group_instance_id is None:
        member = known_member(state, request.member_id)
    else:
        member = known_static_member(state, request.group_instance_id, request.member_id)
    classic, epoch = member.about.classic, member.current.member_epoch
    if classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    if request.generation_id != epoch:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {request.generation_id} is not equal to the member epoch {epoch} of member"
            f" {member.member_id}.",
        )
    return member, classic


def _check_protocol(request: SyncGroup, classic: ClassicMember) -> None:
    """The name is the one of the reply to the member's JoinGroup."""
    is_type_equal = request.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
    if not is_type_equal or request.protocol_name not in (None, classic.protocols[0][0]):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Protocol {request.protocol_name!r} of type {request.protocol_type!r} is not that of the JoinGroup of"
            f" member {request.member_id}.",
        )


def _has_new_target(state: GroupState, member: Member) -> bool:
    return member.current.member_epoch < state.target.epoch


def _must_join(state: GroupState, member: Member) -> bool:
    current = member.current
    if _has_new_target(state, member) or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(state, member)


def _waits_for_others(state: GroupState, member: Member) -> bool:
    """Whether another member still has to give back a partition of the target."""
    missing = (partition for partition in state.target_of(member) if partition not in member.current.assigned)
    return any(partition in state.owners for partition in missing)


def _expect_join(member: Member, plan: Plan) -> None:
    plan.joins[member.member_id] = member.about.rebalance_timeout_ms
