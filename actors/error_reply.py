"""The reply to a request that fails as a whole."""

from __future__ import annotations

from typing import Any

from .errors import ErrorCode
from .group.requests import REQUESTS
from .messages import DeleteTopicOffsets, GroupRequest, OffsetCommit, TxnOffsetCommit
from .transactions.messages import (
    EndTransaction,
    InitProducerId,
    ProducerIdAssigned,
    TransactionRequest,
    VerifyPartitions,
    WriteMarker,
)


def error_reply(request: GroupRequest | DeleteTopicOffsets | TransactionRequest, error: ErrorCode) -> Any:
    """A reply of the class that belongs to the request; the error code itself if replies of this type are codes."""
    row = REQUESTS.get(type(request))
    if row is not None:
        return row.error_reply(request, error)
    match request:
        case InitProducerId() | EndTransaction():
            return ProducerIdAssigned(error)
        case VerifyPartitions() | WriteMarker():
            return (error,) * len(request.partitions)
        case _:
            return error


def too_many_groups_reply(request: GroupRequest) -> Any:
    """The reply to a request that would create a group above ``groups_max``. Clients report these codes as final."""
    is_commit = isinstance(request, OffsetCommit | TxnOffsetCommit)
    error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.GROUP_MAX_SIZE_REACHED
    return error_reply(request, error)._replace(limit="groups_max")


def over_limit_reply(request: GroupRequest, limit: str) -> Any:
    """The reply to a request that would create a group, which the setting ``limit`` forbids: clients try again."""
    return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)._replace(limit=limit)
