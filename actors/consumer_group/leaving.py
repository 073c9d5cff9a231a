"""LeaveGroup, by which an administrator or a client of the classic protocol removes members.

Source: ``GroupMetadataManager.classicGroupLeaveToConsumerGroup`` of Kafka 4.3.1.
"""

from __future__ import annotations

from ..errors import NO_ERROR, ErrorCode
from ..messages import LeaveGroup, LeavingMember, Left, LeftMember
from ..steps import Steps, pieces
from .plan import DecisionEnvironment, Plan
from .removal import remove_members
from .state import GroupState


def leave_group(state: GroupState, request: LeaveGroup, environment: DecisionEnvironment, plan: Plan) -> Steps[Left]:
    """The reply has each member id as it was asked, also if the member was named by its instance id."""
    leaving: dict[str, None] = {}
    results: list[LeftMember] = []
    for piece in pieces(request.members):
        for identity in piece:
            member_id, error = _identify(state, identity)
            if error is NO_ERROR:
                leaving[member_id] = None
            results.append(LeftMember(identity.member_id, identity.group_instance_id, error))
        yield
    yield from remove_members(state, list(leaving), environment, plan)
    return Left(NO_ERROR, tuple(results))


def _identify(state: GroupState, identity: LeavingMember) -> tuple[str, ErrorCode]:
    """The id of the member that is meant. An instance id needs no member id."""
    if identity.group_instance_id is None:
        is_known = identity.member_id in state.members
        return identity.member_id, NO_ERROR if is_known else ErrorCode.UNKNOWN_MEMBER_ID
    owner = state.static_members.get(identity.group_instance_id)
    if owner is None:
        return "", ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id not in ("", owner):
        return "", ErrorCode.FENCED_INSTANCE_ID
    return owner, NO_ERROR
