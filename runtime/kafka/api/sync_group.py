"""SyncGroup (key 14). Answered when the leader's assignment is durable."""

from __future__ import annotations

from dataclasses import replace

from ....actors.errors import ErrorCode
from ....actors.messages import Synced, SyncGroup
from ....actors.steps import SHORT_WORK_ITEMS, Steps, pieces
from ..authorization.authorize import authorize
from ..authorization.checks import READ_GROUP
from ..call import Call, QueuedReplySlot, shorten
from ..codec.codes import NO_THROTTLE

PROTOCOL_REQUIRED_FROM = 5  # KIP-559


def handle(call: Call) -> Steps[None] | None:
    request = call.request
    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    if call.version >= PROTOCOL_REQUIRED_FROM and (protocol_type is None or protocol_name is None):
        call.respond_with_bytes(encode(call, Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        return None
    error = authorize(call, READ_GROUP, (request.group_id,)).error
    if error:
        call.respond_with_bytes(encode(call, Synced(error)))
        return None
    if len(request.assignments) > SHORT_WORK_ITEMS:
        return _sync_in_steps(call)
    _ask_group(call, tuple((entry.member_id, entry.assignment) for entry in request.assignments))
    return None


def _sync_in_steps(call: Call) -> Steps[None]:
    """The request of the leader of a large group."""
    assignments: list[tuple[str, bytes]] = []
    for entries in pieces(call.request.assignments):
        assignments += ((entry.member_id, entry.assignment) for entry in entries)
        yield
    _ask_group(call, tuple(assignments))


def _ask_group(call: Call, assignments: tuple[tuple[str, bytes], ...]) -> None:
    """Other members than the leader may wait for long, and what they assign does not count."""
    request = call.request
    message = SyncGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation_id=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments=assignments,
    )
    call.ask_group_through(message, encode, QueuedReplySlot(call, message.group_id))
    if assignments:
        shorten(call, replace(request, assignments=()), message._replace(assignments=()))


def encode(call: Call, answer: Synced) -> bytes:
    response = call.make(
        "SyncGroupResponse",
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
    return call.schema.write(response)
