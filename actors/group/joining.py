"""JoinGroup: admission, and the handlers of its kinds. Pure.

Kafka's ``classicGroupJoin``. Replies are sent by way of the effects, now or at the end of the join phase.
"""

from __future__ import annotations

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Joined, JoinGroup
from .core import GroupCore
from .effects import Deadline, Effects
from .events import Cause, Kind, Reason
from .members import GroupMember, Members
from .rebalance_notes import Rejoined
from .refusals import note_refused_join
from .removal import drop_member, forget_pending
from .replies import answer_join
from .states import Event, Request

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that joins for the first time is removed after this time, parked or not (Kafka's constant, KAFKA-7610)."""


def join(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Handle a JoinGroup by its kind if the group admits it."""
    if (refusal := _refusal(group, request)) is None:
        return group.handle(request, reply, effects, kind_of(request, group.members))
    if refusal.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        drop_member(group, request.member_id, effects)
    elif refusal.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        note_refused_join(request, group.clock.monotonic_ms(), effects)
    effects.answer(reply, refusal)
    return DEFERRED


def kind_of(request: JoinGroup, members: Members) -> Request:
    if request.member_id:
        return Request.JOIN_PENDING if request.member_id in members.pending else Request.JOIN_KNOWN
    return Request.JOIN_REPLACING if request.group_instance_id in members.static else Request.JOIN_NEW


def _refusal(group: GroupCore, request: JoinGroup) -> Joined | None:
    """The reply to a JoinGroup that the group does not admit."""
    if not _has_room_for(group, request.member_id):
        return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, limit="group_max_size")
    if not group.members.fits(request):
        return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not _supports(group, request):
        return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
    return None


def _has_room_for(group: GroupCore, member_id: str) -> bool:
    """Kafka's ``acceptJoiningMember``: in a join phase only members that have joined count."""
    members, size_max = group.members, group.settings.group_max_size
    member = members.by_id.get(member_id)
    if not group.state.is_join_phase:
        return member is not None or len(members) < size_max
    return (member is not None and member.joining is not None) or members.joining < size_max


def _supports(group: GroupCore, request: JoinGroup) -> bool:
    if not len(group.members):
        return bool(request.protocol_type and request.protocols)
    return request.protocol_type == group.protocol_type and group.members.supports(request.protocols)


# New members ---------------------------------------------------------------------------------------------------------


def join_new(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Without memory, or with too many ids that are not used yet, clients look for the coordinator and try again."""
    member_id = new_member_id(group, request)
    is_pending = request.group_instance_id is None and request.needs_member_id
    if limit := _limit_reached(group, is_pending):
        refusal = Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=request.member_id, limit=limit)
        effects.answer(reply, refusal)
    elif is_pending:
        _assign_member_id(group, member_id, request, reply, effects)
    else:
        _add(group, member_id, request, reply, effects)
    return DEFERRED


def _limit_reached(group: GroupCore, is_pending: bool) -> str:
    """The setting that forbids a new member; "" if none does. ``is_pending``: it only gets an id now."""
    if is_pending and len(group.members.pending) >= group.settings.group_max_pending_members:
        return "group_max_pending_members"
    return "memory_limit_bytes" if group.refuses_new_members() else ""


def new_member_id(group: GroupCore, request: JoinGroup) -> str:
    instance_id = request.group_instance_id  # may be empty, which differs from None
    return f"{request.client_id if instance_id is None else instance_id}-{group.random.uuid()}"


def _assign_member_id(
    group: GroupCore, member_id: str, request: JoinGroup, reply: ReplyTo | None, effects: Effects
) -> None:
    """A new member must join again with its id, so that lost responses leave no unused members behind (KIP-394)."""
    deadline = group.members.pending[member_id] = Deadline(("pending", member_id))
    group.set_deadline(deadline, request.session_timeout_ms, effects)
    effects.answer(reply, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))


def join_pending(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Pending ids belong to dynamic members. With an instance id the member is unknown."""
    if request.group_instance_id is not None:
        effects.answer(reply, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id))
    else:
        forget_pending(group, request.member_id, effects)
        _add(group, request.member_id, request, reply, effects)
    return DEFERRED


def _add(group: GroupCore, member_id: str, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> None:
    member = GroupMember.from_request(member_id, request)
    member.joining = reply
    if not len(group.members):
        group.protocol_type = request.protocol_type
    phase = group.join_phase
    phase.has_new_member = phase.has_new_member or phase.is_initial
    group.members.add(member)
    group.leader_id = group.leader_id or member_id
    group.set_deadline(member.session, NEW_MEMBER_JOIN_TIMEOUT_MS, effects)
    cause = Cause(Reason.MEMBER_JOINED, member, request.reason)
    group.note(Kind.MEMBER_ADDED, cause, effects)
    group.apply(Event.MEMBER_JOINED, cause, effects)


# Known members -------------------------------------------------------------------------------------------------------


def rejoin(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Park the request until the join phase ends; a join phase begins if there is none."""
    assert reply is not None, "a JoinGroup has a reply"
    member = group.members.by_id[request.member_id]
    is_changed = member.protocols != request.protocols
    reason = Reason.SUBSCRIPTION_CHANGED if is_changed else Reason.LEADER_REJOINED
    group.members.update(member, request)
    group.members.park_join(member, reply)
    effects.notes.append(Rejoined(group.clock.monotonic_ms(), member))
    group.apply(Event.MEMBER_JOINED, Cause(reason, member, request.reason), effects)
    return DEFERRED


def rejoin_if_changed(group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """A member with the same protocols only missed its response: it gets the current generation again."""
    member = group.members.by_id[request.member_id]
    if member.protocols != request.protocols:
        return rejoin(group, request, reply, effects)
    effects.run(answer_join(group, member, reply, effects), len(group.members))
    return DEFERRED


def rejoin_if_leader_or_changed(
    group: GroupCore, request: JoinGroup, reply: ReplyTo | None, effects: Effects
) -> object:
    """The same, but the leader rejoins to compute a new assignment."""
    if request.member_id == group.leader_id:
        return rejoin(group, request, reply, effects)
    return rejoin_if_changed(group, request, reply, effects)
