"""Replies of a classic group: refusals, and the replies to JoinGroup and SyncGroup. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import GroupRequest, Joined, JoinedMember, Synced
from ..steps import Steps, pieces
from .core import GroupCore
from .effects import Effects
from .members import GroupMember
from .requests import reject


def refuse_later(request: GroupRequest, reply: ReplyTo | None, effects: Effects, error: ErrorCode) -> object:
    """Refuse a request that is answered by way of the effects, in the order of all their answers."""
    effects.answer(reply, reject(request, error))
    return DEFERRED


def refuse_with_reply(request: GroupRequest, _reply: ReplyTo | None, _effects: Effects, error: ErrorCode) -> object:
    return reject(request, error)


def refuse_with_code(_request: object, _reply: ReplyTo | None, _effects: Effects, error: ErrorCode) -> object:
    return error


def answer_join(group: GroupCore, member: GroupMember, reply: ReplyTo | None, effects: Effects) -> Steps[None]:
    """Reply to a JoinGroup for the current generation. The leader gets the list of members."""
    is_leader = member.member_id == group.leader_id
    listed = (yield from group.members.joined(group.protocol_name)) if is_leader else ()
    effects.answer(reply, joined(group, member, listed))


def joined(group: GroupCore, member: GroupMember, listed: tuple[JoinedMember, ...] = ()) -> Joined:
    """The reply to a JoinGroup for the current generation. ``listed``: the members."""
    return Joined(
        ErrorCode.NONE,
        member_id=member.member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        members=listed,
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


def drop_assignments(group: GroupCore, error: ErrorCode, effects: Effects) -> Steps[None]:
    """Discard the assignments of this generation; parked SyncGroup requests get ``error``."""
    for members in pieces(group.members):
        for member in members:
            member.assignment = b""
            answer_parked_sync(group, member, Synced(error), effects)
        yield


def answer_parked(group: GroupCore, error: ErrorCode, effects: Effects) -> Steps[None]:
    """Answer the parked requests of members that stay in the group."""
    for piece in pieces(group.members):
        for member in piece:
            effects.answer(group.members.pop_join(member), Joined(error, member_id=member.member_id))
            answer_parked_sync(group, member, Synced(error), effects)
        yield


def refuse_parked(members: Iterable[GroupMember], error: ErrorCode, effects: Effects) -> Steps[None]:
    """Answer the parked requests of members that the group has no more."""
    for piece in pieces(members):
        for member in piece:
            effects.answer(member.joining, Joined(error, member_id=member.member_id))
            effects.answer(member.syncing, Synced(error))
            member.joining = member.syncing = None
        yield
