"""The requests to a group as a table: one row for each class of request.

The coordinator, the group actor and its placeholder read the table. So a new request needs its class in
``actors/messages.py``, an API module, a row here, and a cell in each row of the state table of its kind of group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..consumer_group.messages import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved
from ..consumer_group.records import CONSUMER
from ..consumer_group.requests import (
    describe_absent,
    describe_error,
    describe_refused,
    heartbeat_absent,
    heartbeat_error,
    heartbeat_refused,
    invalid_first_heartbeat,
)
from ..errors import ErrorCode
from ..messages import (
    CommitsDescribed,
    Committed,
    DeleteGroup,
    DescribeCommits,
    Described,
    DescribedEvents,
    DescribeEvents,
    DescribeGroup,
    Explained,
    ExplainGroup,
    Fetched,
    FetchedOffset,
    GroupRequest,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    LeftMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    Synced,
    SyncGroup,
    TxnOffsetCommit,
    no_offset,
)
from ..ports import GroupSettings
from ..records import CLASSIC, GroupType
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from ..strings import find_too_long_string
from .environment import GroupEnvironment
from .kind import ABSENT_NAME
from .reset_messages import DescribeReset, OffsetsReset, ResetDescribed, ResetOffsets


class RequestRow(NamedTuple):
    """How a class of requests is treated.

    ``error_reply``: the reply that reports an error of the whole request. ``rejection``: the same if the request itself
    is wrong, for its group or for any; None: they do not differ.
    ``absent``: the reply if the group does not exist, or the steps that make it; None if the request creates a group,
    of the kind ``creates``. Its reply has a field ``limit``, for the setting by which the group is not created.
    ``refused``: the reply of a group of a kind that does not know the request.
    ``handler``: the name of the function in ``handlers``.
    ``waits_for_deletion``: whether the request is held back while the group or some of its offsets are being deleted,
    because it could add members or offsets.
    ``needs_group_id``: whether "" is refused. ``check``: the error of a request that is invalid for any group.
    ``validate``: the same for a group without an actor, as a reply; None if the request is valid. An active group of
    the kind ``creates`` validates by itself.
    ``error_while_loading``: the error while the group's partition is being loaded; NONE is a success.
    """

    error_reply: Callable[[Any, ErrorCode], Any]
    absent: Callable[[Any], Any]
    refused: Callable[[Any], Any]
    rejection: Callable[[Any, ErrorCode], Any] | None = None
    creates: GroupType = CLASSIC
    handler: str = "handle_request"
    waits_for_deletion: bool = False
    needs_group_id: bool = False
    check: Callable[[Any, GroupSettings], ErrorCode] | None = None
    validate: Callable[[Any, GroupEnvironment], Any] | None = None
    error_while_loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def error_code(_request: GroupRequest, error: ErrorCode) -> ErrorCode:
    """For requests whose reply is an error code."""
    return error


def is_always(error: ErrorCode) -> Callable[[GroupRequest], Any]:
    """The reply to any request: ``error``."""
    return lambda request: REQUESTS[type(request)].error_reply(request, error)


def refuse(request: GroupRequest) -> Any:
    """The reply of a group of a kind that does not know the request."""
    return REQUESTS[type(request)].refused(request)


def reject(request: GroupRequest, error: ErrorCode) -> Any:
    """The reply to a request that is wrong."""
    row = REQUESTS[type(request)]
    return (row.rejection or row.error_reply)(request, error)


# Errors of whole requests --------------------------------------------------------------------------------------------


def _join_error(_request: JoinGroup, error: ErrorCode) -> Joined:
    return Joined(error)


def _join_rejection(request: JoinGroup, error: ErrorCode) -> Joined:
    """Kafka returns the member id when it answers by itself, but not when its write operation fails."""
    return Joined(error, member_id=request.member_id)


def _commit_error(request: OffsetCommit | TxnOffsetCommit, error: ErrorCode) -> Committed:
    return Committed((error,) * len(request.commits))


def _check_join(request: JoinGroup, settings: GroupSettings) -> ErrorCode:
    if find_too_long_string(request):
        return ErrorCode.INVALID_REQUEST
    low_ms, high_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    return ErrorCode.NONE if low_ms <= request.session_timeout_ms <= high_ms else ErrorCode.INVALID_SESSION_TIMEOUT


# Groups that do not exist --------------------------------------------------------------------------------------------


def _join_absent(request: JoinGroup) -> Any:
    """A member id belongs to an earlier group of this name."""
    return _join_rejection(request, ErrorCode.UNKNOWN_MEMBER_ID) if request.member_id else None


def _leave_absent(request: LeaveGroup) -> Any:
    steps = _unknown_members(request)
    return steps if len(request.members) > SHORT_WORK_ITEMS else run_steps(steps)


def _unknown_members(request: LeaveGroup) -> Steps[Left]:
    unknown, members = ErrorCode.UNKNOWN_MEMBER_ID, list[LeftMember]()
    for piece in pieces(request.members):
        members += (LeftMember(member.member_id, member.group_instance_id, unknown) for member in piece)
        yield
    return Left(ErrorCode.NONE, tuple(members))


def _commit_absent(request: OffsetCommit) -> Any:
    """A commit without a generation creates a simple group."""
    if request.generation_id < 0:
        return None
    is_new = request.supports_group_id_not_found
    return _commit_error(request, ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)


def _txn_commit_absent(request: TxnOffsetCommit) -> Any:
    return None if request.generation_id < 0 else _commit_error(request, ErrorCode.ILLEGAL_GENERATION)


def _fetch_absent(request: OffsetFetch) -> Any:
    topics, steps = request.topics or (), _no_offsets(request)
    is_long = len(topics) > SHORT_WORK_ITEMS or sum(len(ids) for _, ids in topics) > SHORT_WORK_ITEMS
    return steps if is_long else run_steps(steps)


def _no_offsets(request: OffsetFetch) -> Steps[Fetched]:
    topics: list[tuple[str, tuple[FetchedOffset, ...]]] = []
    for topic, ids in request.topics or ():
        offsets: list[FetchedOffset] = []
        for piece in pieces(ids):
            offsets += map(no_offset, piece)
            yield
        topics.append((topic, tuple(offsets)))
        yield
    return Fetched(ErrorCode.NONE, tuple(topics))


def _describe_absent(request: DescribeGroup) -> Described:
    return Described(ErrorCode.NONE, request.group_id, ABSENT_NAME)


# Groups of another kind ----------------------------------------------------------------------------------------------


def _describe_refused(request: DescribeGroup) -> Described:
    message = f"Group {request.group_id} is not a classic group."
    return Described(ErrorCode.NONE, request.group_id, ABSENT_NAME, message=message)


def _validate_heartbeat(request: ConsumerHeartbeat, environment: GroupEnvironment) -> Any:
    ports = environment.consumer_groups
    return invalid_first_heartbeat(request, ports.assignors, ports.regexes)


def _never_refused(request: GroupRequest) -> Any:
    raise TypeError(f"every kind of group has to handle {type(request).__name__}")


REQUESTS: dict[type, RequestRow] = {
    JoinGroup: RequestRow(
        _join_error,
        absent=_join_absent,
        refused=is_always(ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        rejection=_join_rejection,
        handler="create_or_handle",
        waits_for_deletion=True,
        needs_group_id=True,
        check=_check_join,
    ),
    SyncGroup: RequestRow(
        lambda _request, error: Synced(error),
        absent=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        refused=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        needs_group_id=True,
    ),
    Heartbeat: RequestRow(
        error_code,
        absent=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        refused=is_always(ErrorCode.UNKNOWN_MEMBER_ID),
        needs_group_id=True,
        error_while_loading=ErrorCode.NONE,  # as in Kafka: an error would make the member rejoin
    ),
    LeaveGroup: RequestRow(
        lambda _request, error: Left(error), absent=_leave_absent, refused=_leave_absent, needs_group_id=True
    ),
    ConsumerHeartbeat: RequestRow(
        heartbeat_error,
        absent=heartbeat_absent,
        refused=heartbeat_refused,
        creates=CONSUMER,
        handler="beat",
        waits_for_deletion=True,
        validate=_validate_heartbeat,
    ),
    RegexesResolved: RequestRow(error_code, absent=is_always(ErrorCode.NONE), refused=is_always(ErrorCode.NONE)),
    DescribeConsumerGroup: RequestRow(
        describe_error, absent=describe_absent, refused=describe_refused, needs_group_id=True
    ),
    OffsetCommit: RequestRow(
        _commit_error,
        absent=_commit_absent,
        refused=_never_refused,
        handler="commit",
        waits_for_deletion=True,
    ),
    TxnOffsetCommit: RequestRow(
        _commit_error,
        absent=_txn_commit_absent,
        refused=_never_refused,
        handler="commit_in_transaction",
        waits_for_deletion=True,
    ),
    OffsetFetch: RequestRow(
        lambda _request, error: Fetched(error), absent=_fetch_absent, refused=_never_refused, handler="fetch"
    ),
    OffsetDelete: RequestRow(
        lambda _request, error: OffsetsDeleted(error),
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=_never_refused,
        handler="delete_offsets",
        waits_for_deletion=True,
    ),
    ResetOffsets: RequestRow(
        lambda _request, error: OffsetsReset(error),
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=_never_refused,
        handler="reset_offsets",
        waits_for_deletion=True,
    ),
    DescribeReset: RequestRow(
        lambda _request, error: ResetDescribed(error),
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=_never_refused,
        handler="describe_reset",
    ),
    DescribeEvents: RequestRow(
        lambda _request, error: DescribedEvents(error),
        absent=is_always(ErrorCode.NONE),
        refused=_never_refused,
        handler="describe_events",
    ),
    ExplainGroup: RequestRow(
        lambda _request, error: Explained(error),
        absent=is_always(ErrorCode.NONE),
        refused=_never_refused,
        handler="explain",
    ),
    DescribeCommits: RequestRow(
        lambda _request, error: CommitsDescribed(error),
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=_never_refused,
        handler="describe_commits",
    ),
    DescribeGroup: RequestRow(
        lambda request, error: Described(error, request.group_id), absent=_describe_absent, refused=_describe_refused
    ),
    DeleteGroup: RequestRow(
        error_code,
        absent=is_always(ErrorCode.GROUP_ID_NOT_FOUND),
        refused=_never_refused,
        handler="delete_group",
        waits_for_deletion=True,
    ),
}
