"""Heartbeat (key 12): the hottest of all requests, so its few possible answers are encoded once."""

from __future__ import annotations

from functools import cache

from ....actors.errors import ErrorCode
from ....actors.messages import Heartbeat
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..codec.schemas import Schema

INSTANCE_ID_FROM = 3  # KIP-345


def handle(call: Call) -> None:
    request = call.request
    instance_id = request.group_instance_id if call.schema.version >= INSTANCE_ID_FROM else None
    call.ask(Heartbeat(request.group_id, request.member_id, instance_id, request.generation_id), encode)


def encode(call: Call, answer: ErrorCode) -> bytes:
    return body(call.schema, answer)


@cache
def body(schema: Schema, error: ErrorCode) -> bytes:
    """The answer's body, by kio, once for each version and error."""
    return schema.write(schema.make("HeartbeatResponse", throttle_time=NO_THROTTLE, error_code=error))
