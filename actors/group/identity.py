"""The checks of a request's sender, in Kafka's order: unknown member, fenced instance, generation, protocol. Pure.

``states.CHECKS`` names the check of each kind of request.
"""

from __future__ import annotations

from typing import Any

from ..errors import NO_ERROR, ErrorCode
from ..messages import JoinGroup, SyncGroup, TxnOffsetCommit
from .core import GroupCore
from .members import Members


def identify(members: Members, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether a member has this id, and the instance belongs to it."""
    if instance_id is not None:
        owner = members.static.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return NO_ERROR if member_id in members.by_id else ErrorCode.UNKNOWN_MEMBER_ID


def check_nothing(_group: GroupCore, _request: object) -> ErrorCode:
    return NO_ERROR


def check_identity(group: GroupCore, request: JoinGroup) -> ErrorCode:
    return identify(group.members, request.member_id, request.group_instance_id)


def check_generation(group: GroupCore, request: Any) -> ErrorCode:
    """Identity and generation of a Heartbeat, SyncGroup or commit. Hot path: a dynamic member takes one lookup."""
    if request.group_instance_id is not None or request.member_id not in group.members.by_id:
        error = identify(group.members, request.member_id, request.group_instance_id)
        if error is not NO_ERROR:
            return error
    return NO_ERROR if request.generation_id == group.generation else ErrorCode.ILLEGAL_GENERATION


def check_protocol(group: GroupCore, request: SyncGroup) -> ErrorCode:
    """Identity, generation and protocol. A field that the request or the group does not have is not compared."""
    error = check_generation(group, request)
    if error is not NO_ERROR:
        return error
    is_different = _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol_name
    )
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_different else NO_ERROR


def check_producer(group: GroupCore, request: TxnOffsetCommit) -> ErrorCode:
    """As ``check_generation``, but old producers send neither generation nor member id."""
    is_anonymous = not request.member_id and request.group_instance_id is None
    if is_anonymous and request.generation_id < 0:
        return NO_ERROR
    return check_generation(group, request)


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current
