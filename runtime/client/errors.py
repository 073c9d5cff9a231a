"""Errors of commands: one line that says what failed and what to do."""

from __future__ import annotations

from ...actors.callboard_error import CallboardError
from ...actors.errors import ErrorCode

DESCRIPTIONS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again in a moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still loading; try again in a moment",
    ErrorCode.NOT_COORDINATOR: "its coordinator is moving or stopping; try again in a moment",
    ErrorCode.INVALID_GROUP_ID: "this is not a valid group id",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members subscribe to this topic; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; stop its consumers first",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction changes this offset; try again when it has ended",
    ErrorCode.KAFKA_STORAGE_ERROR: "the server's disk failed",
}

RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Temporary errors."""

NO_SUCH_GROUP = ErrorCode.GROUP_ID_NOT_FOUND

GROUP_HAS_MEMBERS_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Errors of a commit without member id to a group that has members."""


class ClientError(CallboardError):
    """The server could not be reached, or refused a request. The text is for users."""


class RefusedError(ClientError):
    """The server answered with an error; ``code`` is its number, ``message`` its text, if it gave one."""

    def __init__(self, subject: str, code: int, message: str | None = None) -> None:
        reason = f"{message.rstrip('.')} ({error_name(code)})" if message else describe_error_code(code)
        super().__init__(f"{subject}: {reason}")
        self.code = code


def raise_if_error(subject: str, code: int, message: str | None = None) -> None:
    """Raise RefusedError if a response has an error. ``subject``: what the request was about."""
    if code:
        raise RefusedError(subject, int(code), message)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number if it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def describe_error_code(code: int) -> str:
    """Describe an error code, with Kafka's name of it."""
    name = error_name(code)
    return f"{DESCRIPTIONS[ErrorCode(code)]} ({name})" if code in DESCRIPTIONS else f"the server answered {name}"
