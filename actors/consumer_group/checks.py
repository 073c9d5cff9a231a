"""Which heartbeats are refused, and with which error. The texts are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..errors import CoordinatorError, ErrorCode
from .messages import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerHeartbeat
from .plan import RegexMatcher
from .records import Partition
from .state import GroupState, Member

Check = Callable[[ConsumerHeartbeat], None]


def check_request(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raises CoordinatorError if the request is wrong for any group."""
    if request.needs_member_id or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH:
        _check_text("MemberId", request.member_id)
    _check_text("GroupId", request.group_id)
    _check_text("InstanceId", request.instance_id)
    _check_text("RackId", request.rack_id)
    CHECKS_BY_EPOCH.get(request.member_epoch, _check_epoch)(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(field: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _check_leave_static(request: ConsumerHeartbeat) -> None:
    if request.instance_id is None:
        raise _invalid("InstanceId can't be null.")


def _check_epoch(request: ConsumerHeartbeat) -> None:
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


CHECKS_BY_EPOCH: Mapping[int, Check] = {JOIN_EPOCH: _check_join, LEAVE_STATIC_EPOCH: _check_leave_static}


def check_regex(regex: str, matcher: RegexMatcher) -> None:
    problem = matcher.problem(regex)
    if problem is not None:
        raise CoordinatorError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}` {problem}")


def check_size(state: GroupState, member_id: str, max_size: int) -> None:
    if len(state.members) >= max_size and member_id not in state.members:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
            limit="group_consumer_max_size",
        )


def known_member(state: GroupState, member_id: str) -> Member:
    member = state.members.get(member_id)
    if member is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {state.group_id}."
        )
    return member


def known_static_member(state: GroupState, instance_id: str, member_id: str) -> Member:
    member = state.static_member(instance_id)
    if member is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise CoordinatorError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_released(member: Member, instance_id: str, member_id: str) -> None:
    """A static member is replaced only after it has left for a while."""
    if member.current.member_epoch != LEAVE_STATIC_EPOCH:
        raise CoordinatorError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is"
            f" owned by {member.member_id} member.",
        )


def check_epoch(member: Member, received: int, owned: Collection[Partition] | None) -> None:
    """The previous epoch is accepted from a member that owns no more than it was given: it missed the last answer."""
    known = member.current.member_epoch
    if received in (JOIN_EPOCH, known):
        return
    owns_less = owned is not None and all(partition in member.current.assigned for partition in owned)
    if received == member.current.previous_member_epoch and received < known and owns_less:
        return
    size = "greater" if received > known else "smaller"
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group coordinator"
        f" ({known}). The member must abandon all its partitions and rejoin.",
    )
