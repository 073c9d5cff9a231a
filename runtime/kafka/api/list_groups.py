"""ListGroups (key 16), with case-insensitive filters by state (v4+) and type (v5+)."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import ListedGroup, ListGroups
from ..authorize import authorize
from ..call import Call
from ..checks import LISTED_GROUP
from ..codec.codes import NO_THROTTLE


def handle(call: Call) -> None:
    states = frozenset(
        word.strip() for word in _lowercase_filter(call, "states_filter")
    )  # as in Kafka, which does not strip types
    message = ListGroups(states, _lowercase_filter(call, "types_filter"))
    call.services.groups.list_groups(message).on_done(
        lambda reply: call.encode_and_respond(lambda: _encode(call, reply.get()))
    )


def _lowercase_filter(call: Call, name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in getattr(call.request, name, ()))


def _encode(call: Call, reply: tuple[ListedGroup, ...] | ErrorCode) -> bytes:
    error, groups = (reply, ()) if isinstance(reply, ErrorCode) else (ErrorCode.NONE, reply)
    verdicts = authorize(call, LISTED_GROUP, (group.group_id for group in groups))
    listed = tuple(_group(call, group) for group in groups if verdicts.allows(group.group_id))
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
