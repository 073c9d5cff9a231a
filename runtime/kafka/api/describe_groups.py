"""DescribeGroups (key 15): state and members. An unknown group is Dead; from version 6 on it is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.group.kind import ABSENT_NAME
from ....actors.messages import Described, DescribedMember, DescribeGroup
from ....actors.steps import Steps, pieces
from ...security.resources import ResourceType
from ..authorization.authorize import authorized_operations
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.rows import Row, encode_rows, without_column
from ..codec.step_writer import write_in_steps
from ..described_groups import describe_groups

OPERATIONS_FROM = 3  # KIP-430: the field after the members
OPERATIONS_BYTES = 4
INSTANCE_ID_FROM = 4  # KIP-345
INSTANCE_ID = DescribedMember._fields.index("group_instance_id")
NOT_FOUND_FROM = 6  # KIP-1043
OPERATIONS_UNKNOWN = -(1 << 31)  # if they were not requested


def handle(call: Call) -> Steps[None]:
    """As in Kafka, the entries of denied groups come first."""
    return describe_groups(call, call.request.groups, DescribeGroup, partial(_encode, call), _encode_group)


def _encode(call: Call, denial: ErrorCode, numbers: dict[str, int], entries: list[bytes]) -> Body:
    """Encode the response. ``entries``: the encoded groups, by their numbers. Other groups are denied."""
    return write_in_steps(
        call.make("DescribeGroupsResponse", throttle_time=NO_THROTTLE, groups=_entries(call, denial, numbers, entries))
    )


def _entries(call: Call, denial: ErrorCode, numbers: dict[str, int], entries: list[bytes]) -> Iterator[Any]:
    for group_ids in pieces(call.request.groups):
        for group_id in group_ids:
            if group_id not in numbers:
                yield (yield from _encode_group(call, Described(denial, group_id)))
        yield None
    for group_id in call.request.groups:
        if group_id in numbers:
            yield entries[numbers[group_id]]


def _encode_group(call: Call, reply: Described) -> Steps[bytes]:
    trailing_bytes = OPERATIONS_BYTES if call.version >= OPERATIONS_FROM else 0
    rows: Iterable[Row] = reply.members
    if call.version < INSTANCE_ID_FROM:
        rows = without_column(reply.members, INSTANCE_ID)
    members: list[bytes] = []
    for piece in pieces(rows):
        members += encode_rows(piece, flexible=call.schema.flexible)
        yield
    return call.schema.write_item(_group(call, reply), members, trailing_bytes)


def _group(call: Call, answer: Described) -> Any:
    error, message = answer.error, answer.message
    if not error and answer.state == ABSENT_NAME and call.version >= NOT_FOUND_FROM:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, message or f"Group {answer.group_id} not found."
    include_operations = getattr(call.request, "include_authorized_operations", False) and error is ErrorCode.NONE
    return call.make(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=answer.group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=(),
        authorized_operations=authorized_operations(call, ResourceType.GROUP, answer.group_id)
        if include_operations
        else OPERATIONS_UNKNOWN,
    )
