"""JoinGroup (key 11). Answered when the join phase ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.group.members import SIZE_MAX
from ....actors.messages import Joined, JoinedMember, JoinGroup, Protocol
from ....actors.steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from ....actors.strings import STRING_BYTES_MAX
from ..authorization.authorize import authorize
from ..authorization.checks import READ_GROUP
from ..call import Body, Call, QueuedReplySlot
from ..client_notes import note_client
from ..codec.codes import NO_THROTTLE, milliseconds
from ..codec.rows import Row, encode_rows, without_column
from ..refusals import report_over_limit

MEMBER_ID_REQUIRED_FROM = 4  # KIP-394
INSTANCE_ID_FROM = 5  # KIP-345
NULLABLE_PROTOCOL_NAME_FROM = 7
SKIP_ASSIGNMENT_FROM = 9  # KIP-814

TOO_LARGE = f"the protocols of all members of its group would have more than {SIZE_MAX} bytes"
TOO_LONG = (
    f"a string of the JoinGroup, or the member id that is made from its group.instance.id or client.id, has more than"
    f" {STRING_BYTES_MAX} bytes; use a shorter one"
)

_REASONS = {ErrorCode.GROUP_MAX_SIZE_REACHED: TOO_LARGE, ErrorCode.INVALID_REQUEST: TOO_LONG}
"""Why a JoinGroup was refused that is above no limit of the settings."""

HAS_MEMBER_ID = frozenset((ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED))
"""A client that is refused with a member id joins again with it."""

INSTANCE_ID = JoinedMember._fields.index("group_instance_id")


def handle(call: Call) -> None:
    request = call.request
    error = authorize(call, READ_GROUP, (request.group_id,)).error
    if error:
        call.respond_with_bytes(_encode(call, Joined(error)))
        return
    protocols_max = call.services.settings.group_max_member_protocols
    if len(request.protocols) > protocols_max:
        reason = f"{len(request.protocols)} protocols, expected at most {protocols_max}"
        report_over_limit(call, "group_max_member_protocols", reason)
        call.respond_with_bytes(_encode(call, Joined(ErrorCode.INVALID_REQUEST)))
        return
    session_timeout_ms = milliseconds(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)  # v0 has none: the session timeout is used
    message = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        client_id=call.connection.client_id,
        client_host=call.connection.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(offer.name, offer.metadata) for offer in request.protocols),
        needs_member_id=call.version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_FROM,
        reason=getattr(request, "reason", None),
    )
    call.ask_group_through(message, _note_and_encode, QueuedReplySlot(call, message.group_id))


def _note_and_encode(call: Call, answer: Joined) -> Body:
    if not answer.error:
        call.services.used_member_ids.note(call.connection, call.request.group_id, answer.member_id)
    if answer.error in HAS_MEMBER_ID:
        note_client(call, call.request.group_id, answer.member_id)
    return encode(call, answer)


def encode(call: Call, answer: Joined) -> Body:
    """The body; for the leader of a large group, the work that makes it."""
    if not answer.members:  # followers, and errors
        if answer.error:
            _report_refusal(call, answer)
        return _encode(call, answer)
    steps = _encode_with_members(call, answer)
    return steps if len(answer.members) > SHORT_WORK_ITEMS else run_steps(steps)


def _report_refusal(call: Call, answer: Joined) -> None:
    if answer.limit:
        report_over_limit(call, answer.limit)
    elif (reason := _REASONS.get(answer.error)) is not None:
        call.services.over_limit.name_refused(call.connection, "a JoinGroup", reason)


def _encode_with_members(call: Call, answer: Joined) -> Steps[bytes]:
    rows: Iterable[Row] = answer.members
    if call.version < INSTANCE_ID_FROM:
        rows = without_column(answer.members, INSTANCE_ID)
    members: list[bytes] = []
    for piece in pieces(rows):
        members += encode_rows(piece, flexible=call.schema.flexible)
        yield
    return call.schema.write_array(_response(call, answer), members)


def _encode(call: Call, answer: Joined) -> bytes:
    return call.schema.write(_response(call, answer))


def _response(call: Call, answer: Joined) -> Any:
    """The response without members."""
    name = answer.protocol_name
    if not name:
        name = None if call.version >= NULLABLE_PROTOCOL_NAME_FROM else ""
    return call.make(
        "JoinGroupResponse",
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=(),
    )
