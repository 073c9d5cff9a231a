"""ListGroups (key 16), with case-insensitive filters by state (v4+) and type (v5+)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.kind import ABSENT_NAME
from ....actors.group.kinds import KINDS
from ....actors.messages import ListedGroup
from ....actors.steps import Steps, pieces
from ..authorization.authorize import audience, authorize
from ..authorization.checks import LISTED_GROUP
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.rows import encode_rows
from ..services import ListedGroups

FLEXIBLE, WITH_STATE, WITH_TYPE = 3, 4, 5
"""The first versions with compact strings, with states and with types."""

WORDS_PER_STEP = 16
"""A word may have 32,767 bytes."""


class Filters(NamedTuple):
    """Which groups are listed, in lower case. An empty set matches all, unless ``match_none``: no group can match.

    Only words that name a state or a type are kept, so that many words cost nothing after they were read.
    """

    states: frozenset[str]
    types: frozenset[str]
    match_none: bool


def handle(call: Call) -> Steps[None]:
    filters = yield from _filters(_filter(call, "states_filter"), _filter(call, "types_filter"))
    call.services.groups.list_groups().on_done(
        lambda reply: call.encode_and_respond(lambda: _encode(call, filters, reply.get()))
    )


def _filters(state_words: Sequence[str], type_words: Sequence[str]) -> Steps[Filters]:
    """Kafka ignores spaces around a state, but not around a type."""
    state_names = {name.lower() for kind in KINDS.values() for name in kind.state_names} | {ABSENT_NAME.lower()}
    states = yield from _known((word.strip() for word in state_words), state_names)
    types = yield from _known(type_words, KINDS.keys())
    return Filters(states, types, bool((state_words and not states) or (type_words and not types)))


def _known(words: Iterable[str], names: Set[str]) -> Steps[frozenset[str]]:
    """Those of the names that are among the words. ``names``: in lower case."""
    longest = max(map(len, names))
    known: set[str] = set()
    for piece in pieces(words, WORDS_PER_STEP):
        known |= names & {word.lower() for word in piece if len(word) <= longest}
        yield
    return frozenset(known)


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
    for groups in () if filters.match_none else listing.pieces(filters.states, filters.types):
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
