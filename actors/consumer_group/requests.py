"""What the table of requests (``actors/group/requests.py``) needs for groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import CoordinatorError, ErrorCode
from .checks import check_regex, check_request
from .messages import (
    JOIN_EPOCH,
    ConsumerGroupDescribed,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
)
from .plan import RegexMatcher


def heartbeat_error(_request: ConsumerHeartbeat, error: ErrorCode) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error)


def refused(error: CoordinatorError) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error.code, str(error) or None, limit=error.limit)


def invalid_heartbeat(request: ConsumerHeartbeat, assignors: Collection[str]) -> ConsumerHeartbeatReply | None:
    """The reply to a heartbeat that is wrong for any group; None if it is valid."""
    try:
        check_request(request, assignors)
    except CoordinatorError as error:
        return refused(error)
    return None


def invalid_first_heartbeat(
    request: ConsumerHeartbeat, assignors: Collection[str], matcher: RegexMatcher
) -> ConsumerHeartbeatReply | None:
    """The same for a group without an actor. So an invalid regular expression does not create one."""
    invalid = invalid_heartbeat(request, assignors)
    if invalid is not None or request.member_epoch != JOIN_EPOCH or not request.regex:
        return invalid
    try:
        check_regex(request.regex, matcher)
    except CoordinatorError as error:
        return refused(error)
    return None


def heartbeat_absent(request: ConsumerHeartbeat) -> ConsumerHeartbeatReply | None:
    """A member that joins creates the group."""
    if request.member_epoch == JOIN_EPOCH:
        return None
    group = "Group" if request.member_epoch < 0 else "Consumer group"
    return ConsumerHeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, f"{group} {request.group_id} not found.")


def heartbeat_refused(request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, _other_kind(request.group_id))


def describe_error(request: DescribeConsumerGroup, error: ErrorCode) -> ConsumerGroupDescribed:
    return ConsumerGroupDescribed(error, request.group_id)


def describe_absent(request: DescribeConsumerGroup) -> ConsumerGroupDescribed:
    message = f"Group {request.group_id} not found."
    return ConsumerGroupDescribed(ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, message)


def describe_refused(request: DescribeConsumerGroup) -> ConsumerGroupDescribed:
    return ConsumerGroupDescribed(ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, _other_kind(request.group_id))


def _other_kind(group_id: str) -> str:
    return f"Group {group_id} is not a consumer group."
