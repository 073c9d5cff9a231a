"""DeleteGroups (key 42). Answered when the tombstones of all of them are durable."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ....actors.messages import DeleteGroup
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..gather import Gather


def handle(call: Call) -> None:
    names = list(dict.fromkeys(call.request.groups_names))  # each once, as Kafka does
    Gather(call, [DeleteGroup(name) for name in names], lambda answers: _encode(call, names, answers)).send()


def _encode(call: Call, names: list[str], answers: list[ErrorCode]) -> bytes:
    results = tuple(
        call.make("DeletableGroupResult", group_id=name, error_code=error)
        for name, error in zip(names, answers, strict=True)
    )
    return call.schema.write(call.make("DeleteGroupsResponse", throttle_time=NO_THROTTLE, results=results))
