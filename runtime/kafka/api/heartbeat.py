"""Heartbeat (key 12): the most frequent request, so its few possible responses are encoded once."""

from __future__ import annotations

from functools import cache
from typing import Any

from ....actors.engine_ports import NOT_HANDLED
from ....actors.errors import ErrorCode
from ....actors.messages import Heartbeat
from ..authorization.authorize import authorize
from ..authorization.checks import READ_GROUP
from ..call import Call, ResponseChannel
from ..codec.codes import NO_THROTTLE
from ..codec.schemas import Schema

INSTANCE_ID_FROM = 3  # KIP-345


def handle(call: Call) -> None:
    error = authorize(call, READ_GROUP, (call.request.group_id,)).error
    if error:
        call.respond_with_bytes(body(call.schema, error))
    else:
        handle_unchecked(call)


def handle_unchecked(call: Call) -> None:
    call.ask_group(_message(call.schema, call.request), encode)


def answer_at_once(channel: ResponseChannel, schema: Schema, request: Any) -> bytes | None:
    error = channel.services.groups.answer_at_once(_message(schema, request))
    if error is NOT_HANDLED:
        return None
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        _note_former_member(channel, request)
    return body(schema, error)


def _message(schema: Schema, request: Any) -> Heartbeat:
    instance_id = request.group_instance_id if schema.version >= INSTANCE_ID_FROM else None
    return Heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)


def encode(call: Call, error: ErrorCode) -> bytes:
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        _note_former_member(call.connection, call.request)
    return body(call.schema, error)


def _note_former_member(channel: ResponseChannel, request: Any) -> None:
    """The member may have joined by another connection, before this one was opened."""
    channel.services.used_member_ids.note(channel, request.group_id, request.member_id)


@cache
def body(schema: Schema, error: ErrorCode) -> bytes:
    """Encode the response, once for each version and error."""
    return schema.write(schema.make("HeartbeatResponse", throttle_time=NO_THROTTLE, error_code=error))
