"""Replies of a classic group: refusals, and the replies to JoinGroup and SyncGroup. Pure."""

from __future__ import annotations

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..messages import GroupRequest, Joined, Synced
from .core import GroupCore
from .effects import Effects
from .members import GroupMember


def refuse_later(request: GroupRequest, reply: ReplyTo | None, effects: Effects, error: ErrorCode) -> object:
    """Refuse a request that is answered by way of the effects, in the order of all their answers."""
    effects.answer(reply, error_reply(request, error))
    return DEFERRED


def refuse_with_reply(request: GroupRequest, _reply: ReplyTo | None, _effects: Effects, error: ErrorCode) -> object:
    return error_reply(request, error)


def refuse_with_code(_request: object, _reply: ReplyTo | None, _effects: Effects, error: ErrorCode) -> object:
    return error


def joined(group: GroupCore, member: GroupMember, *, list_members: bool = True) -> Joined:
    """The reply to a JoinGroup for the current generation. The leader gets the list of members."""
    is_leader = member.member_id == group.leader_id
    return Joined(
        ErrorCode.NONE,
        member_id=member.member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        members=group.members.joined(group.protocol_name) if is_leader and list_members else (),
    )


def synced(group: GroupCore, member: GroupMember) -> Synced:
    """The reply to a SyncGroup: the member's assignment."""
    return Synced(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def answer_parked_sync(group: GroupCore, member: GroupMember, answer: Synced, effects: Effects) -> None:
    if member.syncing is None:
        return
    effects.answer(member.syncing, answer)
    member.syncing = None
    group.renew_session(member, effects)


def drop_assignments(group: GroupCore, error: ErrorCode, effects: Effects) -> None:
    """Discard the assignments of this generation; parked SyncGroup requests get ``error``."""
    for member in group.members:
        member.assignment = b""
        answer_parked_sync(group, member, Synced(error), effects)
