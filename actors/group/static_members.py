"""A static member that restarted joins without a member id: it replaces its previous member (KIP-345). Pure."""

from __future__ import annotations

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Joined, JoinGroup, Synced
from ..steps import Steps
from .contexts import StaticRejoinContext
from .core import GroupCore
from .effects import Effects
from .events import Cause, Kind, Reason
from .group_value import record_of
from .joining import new_member_id
from .members import GroupMember
from .replies import joined
from .states import Event


def replace_and_rebalance(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    context = _replace_static(group, request, reply, effects)
    member = group.members.by_id[context.member_id]
    group.apply(Event.MEMBER_JOINED, Cause(Reason.STATIC_MEMBER_REPLACED, member, request.reason), effects)
    return DEFERRED


def replace_if_unchanged(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """If the protocol of the group stays the same, it needs no rebalance, but a record with the new member id."""
    context = _replace_static(group, request, reply, effects)
    effects.run(_append_or_rebalance(group, request, context, effects), len(group.members))
    return DEFERRED


def _append_or_rebalance(
    group: GroupCore, request: JoinGroup, context: StaticRejoinContext, effects: Effects
) -> Steps[None]:
    if (yield from group.members.vote()) == group.protocol_name:
        effects.append_record((yield from record_of(group)), context)
        return
    member = group.members.by_id[context.member_id]
    group.apply(Event.MEMBER_JOINED, Cause(Reason.STATIC_MEMBER_REPLACED, member, request.reason), effects)


def _replace_static(
    group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects
) -> StaticRejoinContext:
    """Replace the member, park its JoinGroup, and return the state to restore if the record cannot be appended."""
    assert reply is not None, "a JoinGroup has a reply"
    old = group.members.by_id[group.members.static[request.group_instance_id or ""]]
    member = _replace(group, old, new_member_id(group, request), Reason.STATIC_MEMBER_REPLACED, effects)
    context = StaticRejoinContext(
        member.member_id,
        old.member_id,
        group.leader_id,
        old.protocols,
        old.rebalance_timeout_ms,
        old.session_timeout_ms,
        request.can_skip_assignment,
    )
    if group.leader_id == old.member_id:
        group.leader_id = member.member_id
    group.renew_session(member, effects)
    group.members.update(member, request)
    group.members.park_join(member, reply)
    return context


def _replace(group: GroupCore, old: GroupMember, member_id: str, reason: Reason, effects: Effects) -> GroupMember:
    """Replace a member by a copy with another id. Parked requests of the old member get FENCED_INSTANCE_ID."""
    members, pending_sync = group.members, group.sync_phase.pending
    effects.answer(members.pop_join(old), Joined(ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
    effects.answer(old.syncing, Synced(ErrorCode.FENCED_INSTANCE_ID))
    member = old.copy(member_id)
    members.remove(old)
    old.session.cancel(effects)
    members.add(member)
    if old.member_id in pending_sync:
        pending_sync.remove(old.member_id)
        pending_sync.add(member_id)
    group.note(Kind.MEMBER_REMOVED, Cause(reason, old), effects)
    group.note(Kind.MEMBER_ADDED, Cause(reason, member), effects)
    return member


def complete_replacement(group: GroupCore, context: StaticRejoinContext, effects: Effects) -> None:
    """The record is durable. The member gets the current generation, without a rebalance."""
    member = group.members.by_id.get(context.member_id)
    if member is None or member.joining is None:
        return
    effects.run(_answer_replacement(group, member, context, effects), len(group.members))


def _answer_replacement(
    group: GroupCore, member: GroupMember, context: StaticRejoinContext, effects: Effects
) -> Steps[None]:
    is_listed = context.can_skip_assignment and member.member_id == group.leader_id
    reply = joined(group, member, (yield from group.members.joined(group.protocol_name)) if is_listed else ())
    if context.can_skip_assignment:
        reply = reply._replace(skip_assignment=member.member_id == group.leader_id)
    else:
        # An old client would compute a new assignment if it found itself the leader: send the old id (KIP-814).
        reply = reply._replace(leader=context.old_leader_id or "")
    effects.answer(group.members.pop_join(member), reply)
    if member.session.due_ms is None:  # it expired while the join was parked; otherwise, as in Kafka, it continues
        group.renew_session(member, effects)


def revert_replacement(group: GroupCore, context: StaticRejoinContext, error: ErrorCode, effects: Effects) -> None:
    """The record could not be appended. The previous member is back, and the new one gets the error."""
    member = group.members.by_id.get(context.member_id)
    if member is None or member.joining is None or not group.state.is_stable:
        return  # a rebalance has begun: the reply is sent at the end of its join phase
    reply = joined(group, member)._replace(error=error, member_id="", leader=context.old_leader_id or "")
    effects.answer(group.members.pop_join(member), reply)
    old = _replace(group, member, context.old_member_id, Reason.REPLACEMENT_NOT_STORED, effects)
    old.rebalance_timeout_ms = context.old_rebalance_timeout_ms
    old.session_timeout_ms = context.old_session_timeout_ms
    group.members.restore(old, context.old_protocols)
    if group.leader_id == member.member_id:
        group.leader_id = old.member_id
    group.renew_session(old, effects)
