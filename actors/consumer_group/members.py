"""Which member a heartbeat is from: known, new, or one that takes the place of a static member."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import JoinGroup
from ..steps import Steps, distinct, sorted_in_steps
from .checks import check_epoch, check_released, known_member, known_static_member
from .messages import JOIN_EPOCH, ConsumerHeartbeat
from .plan import Plan
from .records import CurrentRecord, MemberRecord, MemberValue, TargetRecord
from .state import GroupState, Member


def find_member(state: GroupState, request: ConsumerHeartbeat, member_id: str, plan: Plan) -> Member:
    """The member before this heartbeat. Raises CoordinatorError.

    ``member_id``: that of the request, or a new one.
    """
    if request.instance_id is None:
        return _dynamic_member(state, request, member_id)
    return _static_member(state, request, request.instance_id, member_id, plan)


def _dynamic_member(state: GroupState, request: ConsumerHeartbeat, member_id: str) -> Member:
    if request.member_epoch == JOIN_EPOCH:
        return state.members.get(member_id) or Member(member_id)
    member = known_member(state, member_id)
    check_epoch(member, request.member_epoch, request.owned)
    return member


def _static_member(
    state: GroupState, request: ConsumerHeartbeat, instance_id: str, member_id: str, plan: Plan
) -> Member:
    if request.member_epoch != JOIN_EPOCH:
        member = known_static_member(state, instance_id, member_id)
        check_epoch(member, request.member_epoch, request.owned)
        return member
    replaced = state.static_member(instance_id)
    if replaced is None:
        return state.members.get(member_id) or Member(member_id)
    if replaced.about.classic is None:
        check_released(replaced, instance_id, member_id)
    return _replace(state, replaced, member_id, plan)


def find_classic_member(state: GroupState, request: JoinGroup, member_id: str, plan: Plan) -> Member:
    """The member before this JoinGroup. Raises CoordinatorError.

    ``member_id``: that of the request, or a new one. A static member may take the place of any other one.
    """
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return known_static_member(state, instance_id, member_id)
    replaced = state.static_member(instance_id)
    if replaced is None:
        return state.members.get(member_id) or Member(member_id)
    return _replace(state, replaced, member_id, plan)


def _replace(state: GroupState, replaced: Member, member_id: str, plan: Plan) -> Member:
    """The new member has the target and the partitions of the old one, and begins at epoch 0."""
    current = replaced.current._replace(member_epoch=0, previous_member_epoch=0)
    member = replaced._replace(member_id=member_id, current=current)
    group_id = state.group_id
    plan.removed.append(replaced.member_id)
    plan.records += removal_records(group_id, replaced.member_id)
    plan.records += (
        MemberRecord(group_id, member_id, member.about),
        TargetRecord(group_id, member_id, state.target_of(replaced)),
        CurrentRecord(group_id, member_id, current),
    )
    return member


def removal_records(group_id: str, member_id: str) -> tuple[CurrentRecord | TargetRecord | MemberRecord, ...]:
    return (
        CurrentRecord(group_id, member_id, None),
        TargetRecord(group_id, member_id, None),
        MemberRecord(group_id, member_id, None),
    )


def updated_about(about: MemberValue, request: ConsumerHeartbeat) -> Steps[MemberValue]:
    """What the member says of itself now. Fields that are not in the request keep their values."""
    if _says_nothing(about, request):
        return about
    timeout_ms = request.rebalance_timeout_ms
    topics = about.topics
    if request.topics is not None:
        topics = yield from sorted_topics(request.topics)
        topics = about.topics if topics == about.topics else topics  # one object: comparing it takes no time
        yield
    return about._replace(
        instance_id=about.instance_id if request.instance_id is None else request.instance_id,
        rack_id=about.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=about.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=topics,
        regex=about.regex if request.regex is None else request.regex,
        server_assignor=about.server_assignor if request.server_assignor is None else request.server_assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _says_nothing(about: MemberValue, request: ConsumerHeartbeat) -> bool:
    """Whether the request is one of the many that only renew a session."""
    return (
        request.topics is None
        and request.regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.instance_id is None
        and request.rack_id is None
        and request.client_id == about.client_id
        and request.client_host == about.client_host
        and about.classic is None
    )


def sorted_topics(topics: Sequence[str]) -> Steps[tuple[str, ...]]:
    """Different names, in Java's order."""
    names = yield from distinct(topics)
    return tuple((yield from sorted_in_steps(names, lambda name: name.encode("utf-16-be", "surrogatepass"))))
