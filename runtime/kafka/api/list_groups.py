"""ListGroups (key 16), with filters by state (v4+) and type (v5+), in whatever case they are written."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import ListedGroup, ListGroups
from ..call import Call
from ..codec.codes import NO_THROTTLE


def handle(call: Call) -> None:
    states = frozenset(word.strip() for word in _words(call, "states_filter"))  # as Kafka; a type stands as it is
    message = ListGroups(states, _words(call, "types_filter"))
    call.node.groups.coordinator.ask(message, block=False).on_done(
        lambda reply: call.finish(lambda: _encode(call, reply.get()))
    )


def _words(call: Call, name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in getattr(call.request, name, ()))


def _encode(call: Call, found: tuple[ListedGroup, ...] | ErrorCode) -> bytes:
    error, groups = (found, ()) if isinstance(found, ErrorCode) else (ErrorCode.NONE, found)
    listed = tuple(_group(call, group) for group in groups)
    response = call.make("ListGroupsResponse", throttle_time=NO_THROTTLE, error_code=error, groups=listed)
    return call.schema.write(response)


def _group(call: Call, group: ListedGroup) -> Any:
    return call.make(
        "ListedGroup",
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.group_type,
    )
