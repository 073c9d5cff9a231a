"""DescribeGroups (key 15): state and members. An unknown group is Dead; from version 6 on it is an error."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.group.kind import ABSENT_NAME
from ....actors.messages import Described, DescribedMember, DescribeGroup
from ..authorize import authorize, authorized_operations
from ..call import Call
from ..checks import DESCRIBE_GROUP, ResourceType
from ..codec.codes import NO_THROTTLE
from ..codec.rows import Row, encode_rows, without_column
from ..scatter_gather import ScatterGather

OPERATIONS_FROM = 3  # KIP-430: the field after the members
OPERATIONS_BYTES = 4
INSTANCE_ID_FROM = 4  # KIP-345
INSTANCE_ID = DescribedMember._fields.index("group_instance_id")
NOT_FOUND_FROM = 6  # KIP-1043
OPERATIONS_UNKNOWN = -(1 << 31)  # if they were not requested


def handle(call: Call) -> None:
    """Ask the groups. As in Kafka, the entries of denied groups come first."""
    verdicts = authorize(call, DESCRIBE_GROUP, call.request.groups)
    messages = [DescribeGroup(group_id) for group_id in call.request.groups if verdicts.allows(group_id)]
    refused = [Described(verdicts.code, group_id) for group_id in call.request.groups if not verdicts.allows(group_id)]
    encode = partial(_encode, call, _encode_batch(call, refused))
    ScatterGather(call, messages, encode, convert=partial(_encode_batch, call)).send_next_batch()


def _encode(call: Call, denied: list[bytes], described: list[bytes]) -> bytes:
    groups = denied + described
    return call.schema.write_array(call.make("DescribeGroupsResponse", throttle_time=NO_THROTTLE, groups=()), groups)


def _encode_batch(call: Call, replies: list[Described]) -> list[bytes]:
    """Encode one batch of groups. Encoding all groups of a very large request at once would take seconds."""
    trailing_bytes = OPERATIONS_BYTES if call.version >= OPERATIONS_FROM else 0
    return [
        call.schema.write_item(_group(call, reply), _members(call, reply.members), trailing_bytes) for reply in replies
    ]


def _members(call: Call, members: Iterable[DescribedMember]) -> list[bytes]:
    rows: Iterable[Row] = members if call.version >= INSTANCE_ID_FROM else without_column(members, INSTANCE_ID)
    return encode_rows(rows, flexible=call.schema.flexible)


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
