"""The answer to a request that says nothing but an error."""

from __future__ import annotations

from typing import Any

from .errors import ErrorCode
from .messages import (
    Committed,
    Described,
    DescribeGroup,
    Fetched,
    GroupRequest,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetFetch,
    Synced,
    SyncGroup,
)


def refusal(request: GroupRequest, error: ErrorCode) -> Any:
    """Of the class that answers this request; a bare code where that is the answer."""
    match request:
        case JoinGroup():
            return Joined(error, member_id=request.member_id)
        case SyncGroup():
            return Synced(error)
        case LeaveGroup():
            return Left(error)
        case OffsetCommit():
            return Committed((error,) * len(request.commits))
        case OffsetFetch():
            return Fetched(error)
        case DescribeGroup():
            return Described(error, request.group_id)
        case _:
            return error
