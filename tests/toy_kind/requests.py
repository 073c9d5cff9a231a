"""The requests to a queue."""

from __future__ import annotations

from typing import NamedTuple

from callboard.actors.errors import ErrorCode
from callboard.actors.group.requests import RequestRow, error_code, is_always

from .records import QUEUE


class JoinQueue(NamedTuple):
    group_id: str
    member_id: str
    topics: tuple[str, ...] = ("jobs",)
    session_timeout_ms: int = 10_000


class QueueJoined(NamedTuple):
    """Reply to JoinQueue. ``partitions``: the number of partitions of each topic that exists."""

    error: ErrorCode
    epoch: int = -1
    partitions: tuple[tuple[str, int], ...] = ()
    limit: str = ""


class QueueHeartbeat(NamedTuple):
    """The reply is an error code, as for the next request."""

    group_id: str
    member_id: str
    epoch: int


class LeaveQueue(NamedTuple):
    group_id: str
    member_id: str


class DescribeQueue(NamedTuple):
    """The reply is ``QueueDescribed``."""

    group_id: str


class QueueDescribed(NamedTuple):
    error: ErrorCode
    state: str = "Dead"
    epoch: int = -1
    members: tuple[str, ...] = ()


REQUEST_ROWS = {
    JoinQueue: RequestRow(
        lambda _request, error: QueueJoined(error),
        absent=lambda _request: None,
        refused=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        creates=QUEUE,
        handler="create_or_handle",
        waits_for_deletion=True,
        needs_group_id=True,
    ),
    QueueHeartbeat: RequestRow(
        error_code,
        absent=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        refused=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        needs_group_id=True,
        error_while_loading=ErrorCode.NONE,
    ),
    LeaveQueue: RequestRow(
        error_code,
        absent=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        refused=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        needs_group_id=True,
    ),
    DescribeQueue: RequestRow(
        lambda _request, error: QueueDescribed(error),
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
    ),
}
