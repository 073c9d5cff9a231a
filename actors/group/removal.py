"""Members leave: by LeaveGroup, by the end of their session, or because the group has no room for them. Pure."""

from __future__ import annotations

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Joined, LeaveGroup, LeavingMember, Left, LeftMember, Synced
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .contexts import ReplyContext
from .core import GroupCore
from .effects import Effects
from .events import Cause, Kind, Reason
from .identity import identify
from .leave_causes import leave_cause
from .members import GroupMember
from .states import Event


def remove(group: GroupCore, member: GroupMember, cause: Cause, effects: Effects) -> None:
    member.session.cancel(effects)
    group.members.remove(member)
    group.note(Kind.MEMBER_REMOVED, cause, effects)
    group.sync_phase.pending.discard(member.member_id)
    if member.member_id == group.leader_id:
        new_leader = next(iter(group.members), None)
        group.leader_id = new_leader.member_id if new_leader is not None else None


def remove_and_reply(group: GroupCore, member: GroupMember, cause: Cause, effects: Effects) -> None:
    effects.answer(group.members.pop_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID))
    effects.answer(member.syncing, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
    remove(group, member, cause, effects)


def forget_pending(group: GroupCore, member_id: str, effects: Effects) -> None:
    deadline = group.members.pending.forget(member_id)
    if deadline is not None:
        deadline.cancel(effects)


def drop_member(group: GroupCore, member_id: str, effects: Effects) -> None:
    """Remove a member that the group has no room for. As in Kafka, this alone does not cause a rebalance."""
    forget_pending(group, member_id, effects)
    member = group.members.by_id.get(member_id)
    if member is not None:
        remove(group, member, Cause(Reason.GROUP_IS_FULL, member), effects)


def leave(group: GroupCore, request: LeaveGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Kafka's ``classicGroupLeave``. Each member has its own result; the group rebalances once, at the end.

    If the group becomes empty, the reply is sent when its record is durable; otherwise at once.
    """
    steps = _leave_in_steps(group, request, reply, effects)
    return steps if len(request.members) > SHORT_WORK_ITEMS else run_steps(steps)


def _leave_in_steps(group: GroupCore, request: LeaveGroup, reply: ReplyTo | None, effects: Effects) -> Steps[object]:
    results: list[LeftMember] = []
    first_cause: Cause | None = None
    for members in pieces(request.members):
        for leaving in members:
            result, cause = _remove_leaving(group, leaving, request, effects)
            results.append(result)
            first_cause = first_cause or cause
        yield
    if first_cause is not None:
        group.apply(Event.MEMBERS_LEFT, first_cause, effects)
    left = Left(ErrorCode.NONE, tuple(results))
    if reply is None or not effects.records:
        return left
    effects.context = ReplyContext(reply, left, Left)
    return DEFERRED


def _remove_leaving(
    group: GroupCore, leaving: LeavingMember, request: LeaveGroup, effects: Effects
) -> tuple[LeftMember, Cause | None]:
    """The result for one member, and the cause of the following rebalance; None if nobody was removed."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.members.static.get(instance_id, "")
    member = group.members.by_id.get(member_id)
    cause = leave_cause(leaving, request, member)
    if member_id in group.members.pending:
        forget_pending(group, member_id, effects)
        return LeftMember(leaving.member_id, instance_id, ErrorCode.NONE), cause
    error = identify(group.members, member_id, instance_id)
    if error is not ErrorCode.NONE or member is None:
        return LeftMember(leaving.member_id, instance_id, error), None
    remove_and_reply(group, member, cause, effects)
    return LeftMember(leaving.member_id, instance_id, ErrorCode.NONE), cause


def session_expired(group: GroupCore, member_id: str, effects: Effects) -> None:
    """A member with a parked request is alive, unless it is new and has waited for five minutes."""
    member = group.members.by_id[member_id]
    if not member.is_new and (member.joining or member.syncing):
        return
    cause = Cause(Reason.SESSION_EXPIRED, member)
    remove_and_reply(group, member, cause, effects)
    effects.counters.expired_sessions += 1
    group.apply(Event.SESSION_EXPIRED, cause, effects)


def pending_expired(group: GroupCore, member_id: str, effects: Effects) -> None:
    """A member id that was assigned has not joined in time (KIP-394)."""
    del group.members.pending[member_id]
    group.apply(Event.PENDING_EXPIRED, Cause(Reason.SESSION_EXPIRED), effects)
