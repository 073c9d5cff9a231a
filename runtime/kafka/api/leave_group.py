"""LeaveGroup (key 13): one member, or a batch of them from version 3 on (KIP-345)."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ....actors.messages import LeaveGroup, LeavingMember, Left
from ....actors.steps import Steps, pieces
from ...common.shared_bytes import SharedBytes
from ..authorization.authorize import authorize
from ..authorization.checks import READ_GROUP
from ..call import Call, release_later
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps

BATCH_FROM = 3


def handle(call: Call) -> Steps[None]:
    request = call.request
    error = authorize(call, READ_GROUP, (request.group_id,)).error
    if error:
        call.encode_and_respond(lambda: encode(call, Left(error)))
        return
    leaving: list[LeavingMember] = []
    if call.version >= BATCH_FROM:
        for members in pieces(request.members):
            leaving += (
                LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
                for member in members
            )
            yield
    else:
        leaving.append(LeavingMember(request.member_id, None))
    sender = call.connection.client_id, call.connection.client_host
    call.ask_group(LeaveGroup(request.group_id, tuple(leaving), *sender), encode)


def encode(call: Call, answer: Left) -> Steps[bytes | SharedBytes]:
    error = answer.error
    if call.version < BATCH_FROM and error is ErrorCode.NONE and answer.members:
        error = answer.members[0].error
    members = (
        call.make(
            "MemberResponse",
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=member.error,
        )
        for member in (answer.members if call.version >= BATCH_FROM else ())
    )
    response = call.make("LeaveGroupResponse", throttle_time=NO_THROTTLE, error_code=error, members=members)
    body = yield from write_in_steps(response)
    release_later(call, answer.members)
    return body
