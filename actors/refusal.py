"""The answer to a request that says nothing but an error."""

from __future__ import annotations

from typing import Any

from .errors import ErrorCode
from .messages import (
    Committed,
    Described,
    DescribeGroup,
    Fetched,
    ForgetTopics,
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
from .transactions.messages import EndTransaction, InitProducerId, ProducerGiven, TransactionRequest, VerifyPartitions


def refusal(request: GroupRequest | ForgetTopics | TransactionRequest, error: ErrorCode) -> Any:
    """Of the class that answers this request; a bare code where that is the answer."""
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
            return ProducerGiven(error)
        case VerifyPartitions():
            return (error,) * len(request.partitions)
        case _:
            return error
