"""DescribeGroups (key 15): state and members. A group that nobody knows is Dead; from version 6 on it is an error."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Described, DescribedMember, DescribeGroup
from ....actors.states import State
from ..call import Call
from ..codes import NO_THROTTLE
from ..gather import Gather

NOT_FOUND_FROM = 6  # KIP-1043
OPERATIONS_UNKNOWN = -(1 << 31)  # for those who did not ask
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11  # read, delete, describe, describe and alter configs


def handle(call: Call) -> None:
    messages = [DescribeGroup(group_id) for group_id in call.request.groups]
    Gather(call, messages, partial(_encode, call), digest=partial(_encode_slice, call)).send()


def _encode(call: Call, groups: list[bytes]) -> bytes:
    return call.schema.write_array(call.make("DescribeGroupsResponse", throttle_time=NO_THROTTLE, groups=()), groups)


def _encode_slice(call: Call, answers: list[Described]) -> list[bytes]:
    """While the next ones are asked: the whole answer of a request that names very many would take seconds."""
    return [call.schema.write_item(_group(call, answer)) for answer in answers]


def _group(call: Call, answer: Described) -> Any:
    error, message = answer.error, answer.message
    if not error and answer.state == State.DEAD.value and call.version >= NOT_FOUND_FROM:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {answer.group_id} not found."
    asks = getattr(call.request, "include_authorized_operations", False) and error is ErrorCode.NONE
    return call.make(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=answer.group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=tuple(_member(call, member) for member in answer.members),
        authorized_operations=ALL_OPERATIONS if asks else OPERATIONS_UNKNOWN,
    )


def _member(call: Call, member: DescribedMember) -> Any:
    return call.make(
        "DescribedGroupMember",
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
