"""DeleteGroups (key 42). Answered when the tombstones of all groups are durable."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ....actors.messages import DeleteGroup
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..scatter_gather import ScatterGather


def handle(call: Call) -> None:
    names = list(dict.fromkeys(call.request.groups_names))  # as in Kafka, each name is answered once
    messages = [DeleteGroup(name) for name in names]
    ScatterGather(call, messages, lambda replies: _encode(call, names, replies)).send_next_batch()


def _encode(call: Call, names: list[str], errors: list[ErrorCode]) -> bytes:
    results = tuple(
        call.make("DeletableGroupResult", group_id=name, error_code=error)
        for name, error in zip(names, errors, strict=True)
    )
    return call.schema.write(call.make("DeleteGroupsResponse", throttle_time=NO_THROTTLE, results=results))
