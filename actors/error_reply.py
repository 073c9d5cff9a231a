"""The reply to a request that fails as a whole."""

from __future__ import annotations

from typing import Any

from .errors import ErrorCode
from .messages import (
    Committed,
    DeleteTopicOffsets,
    Described,
    DescribeGroup,
    Fetched,
    GroupRequest,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    Synced,
    SyncGroup,
    TxnOffsetCommit,
)
from .transactions.messages import (
    EndTransaction,
    InitProducerId,
    ProducerIdAssigned,
    TransactionRequest,
    VerifyPartitions,
)


def error_reply(request: GroupRequest | DeleteTopicOffsets | TransactionRequest, error: ErrorCode) -> Any:
    """A reply of the class that belongs to the request; the error code itself if replies of this type are codes."""
    match request:
        case JoinGroup():
            return Joined(error, member_id=request.member_id)
        case SyncGroup():
            return Synced(error)
        case LeaveGroup():
            return Left(error)
        case OffsetCommit() | TxnOffsetCommit():
            return Committed((error,) * len(request.commits))
        case OffsetFetch():
            return Fetched(error)
        case OffsetDelete():
            return OffsetsDeleted(error)
        case DescribeGroup():
            return Described(error, request.group_id)
        case InitProducerId() | EndTransaction():
            return ProducerIdAssigned(error)
        case VerifyPartitions():
            return (error,) * len(request.partitions)
        case _:
            return error
