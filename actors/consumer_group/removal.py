"""Members that leave, and members that are removed because a deadline has passed.

No new target is computed: the next heartbeat of another member does that, because the group epoch has risen.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..steps import Steps, pieces
from .checks import known_member, known_static_member
from .conversion import may_downgrade
from .members import removal_records
from .messages import LEAVE_STATIC_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from .plan import DecisionEnvironment, Downgrade, Plan
from .records import NO_PARTITIONS, CurrentRecord, RegexRecord
from .state import GroupState, Member
from .subscriptions import without_members
from .target import next_group_epoch


def leave(
    state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment, plan: Plan
) -> Steps[ConsumerHeartbeatReply]:
    """A member leaves for good. Raises CoordinatorError."""
    member = _sender(state, request)
    yield from remove_members(state, [member.member_id], environment, plan)
    return ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)


def leave_for_a_while(
    state: GroupState, request: ConsumerHeartbeat, _environment: DecisionEnvironment, plan: Plan
) -> Steps[ConsumerHeartbeatReply]:
    """A static member keeps its partitions for its next process, until its session ends. Raises CoordinatorError."""
    member = _sender(state, request)
    current = member.current._replace(
        member_epoch=LEAVE_STATIC_EPOCH,
        assigned=dict.fromkeys(member.current.assigned, 0),
        pending_revocation=NO_PARTITIONS,
    )
    plan.records.append(CurrentRecord(state.group_id, member.member_id, current))
    yield
    return ConsumerHeartbeatReply(member_id=member.member_id, member_epoch=LEAVE_STATIC_EPOCH)


def _sender(state: GroupState, request: ConsumerHeartbeat) -> Member:
    if request.instance_id is None:
        return known_member(state, request.member_id)
    return known_static_member(state, request.instance_id, request.member_id)


def remove_members(
    state: GroupState, member_ids: Sequence[str], environment: DecisionEnvironment, plan: Plan
) -> Steps[None]:
    """Remove members of the group, in one write. Does nothing if there are none.

    If only members of the classic protocol are left the group becomes a classic one.
    """
    if not member_ids:
        return
    plan.removed += member_ids
    if may_downgrade(state, member_ids, len(state.members) - len(member_ids), environment.settings):
        plan.downgrade = Downgrade(member_ids, "", state.epoch.epoch, True)
        return
    for piece in pieces(member_ids):
        for member_id in piece:
            plan.records += removal_records(state.group_id, member_id)
        yield
    subscriptions = without_members(state, member_ids)
    unused = state.regex_members.keys() - {regex for _names, regex in subscriptions}
    plan.records += (RegexRecord(state.group_id, regex, None) for regex in sorted(unused))
    yield from next_group_epoch(state, subscriptions, True, environment, plan)


def member_expired(state: GroupState, member_id: str, environment: DecisionEnvironment, plan: Plan) -> Steps[None]:
    """A session has ended, or a member of the classic protocol has not joined or synced in time."""
    if member_id in state.members:
        yield from remove_members(state, [member_id], environment, plan)


def rebalance_expired(
    state: GroupState, member_id: str, member_epoch: int, environment: DecisionEnvironment, plan: Plan
) -> Steps[None]:
    """``member_epoch``: that of the deadline. A member that has left this epoch has given back what it should."""
    member = state.members.get(member_id)
    if member is not None and member.current.member_epoch == member_epoch:
        yield from remove_members(state, [member_id], environment, plan)
