"""ListGroups (key 16), with case-insensitive filters by state (v4+) and type (v5+)."""

from __future__ import annotations

from collections.abc import Sequence

from ....actors.errors import ErrorCode
from ....actors.messages import ListedGroup
from ....actors.steps import Steps, distinct
from ..authorize import audience, authorize
from ..call import Body, Call
from ..checks import LISTED_GROUP
from ..codec.codes import NO_THROTTLE
from ..codec.rows import encode_rows
from ..services import ListedGroups

FLEXIBLE, WITH_STATE, WITH_TYPE = 3, 4, 5
"""The first versions with compact strings, with states and with types."""

Filters = tuple[frozenset[str], frozenset[str]]


def handle(call: Call) -> Steps[None]:
    states = yield from distinct(word.lower().strip() for word in _filter(call, "states_filter"))
    types = yield from distinct(word.lower() for word in _filter(call, "types_filter"))  # not stripped, as in Kafka
    filters = frozenset(states), frozenset(types)
    call.services.groups.list_groups().on_done(
        lambda reply: call.encode_and_respond(lambda: _encode(call, filters, reply.get()))
    )


def _filter(call: Call, name: str) -> Sequence[str]:
    words: Sequence[str] = getattr(call.request, name, ())
    return words


def _encode(call: Call, filters: Filters, listing: ListedGroups | ErrorCode) -> Body:
    if isinstance(listing, ErrorCode):
        return _response(call, listing, [], 0)
    return call.services.shared_steps.result(
        (call.schema.name, call.version, filters, audience(call)), lambda: _encode_groups(call, filters, listing)
    )


def _encode_groups(call: Call, filters: Filters, listing: ListedGroups) -> Steps[bytes]:
    items: list[bytes] = []
    count = 0
    for groups in listing.pieces(*filters):
        verdicts = authorize(call, LISTED_GROUP, (group.group_id for group in groups))
        shown = [group for group in groups if verdicts.allows(group.group_id)]
        count += len(shown)
        items.append(b"".join(encode_rows(_rows(call.version, shown), flexible=call.version >= FLEXIBLE)))
        yield
    return _response(call, ErrorCode.NONE, items, count)


def _rows(version: int, groups: Sequence[ListedGroup]) -> list[tuple[str, ...]]:
    if version < WITH_STATE:
        return [(group.group_id, group.protocol_type) for group in groups]
    if version < WITH_TYPE:
        return [(group.group_id, group.protocol_type, group.state) for group in groups]
    return [(group.group_id, group.protocol_type, group.state, group.group_type) for group in groups]


def _response(call: Call, error: ErrorCode, items: Sequence[bytes], count: int) -> bytes:
    """``items``: the encoded groups, ``count`` in all."""
    response = call.make("ListGroupsResponse", throttle_time=NO_THROTTLE, error_code=error, groups=())
    return call.schema.write_array(response, items, count)
