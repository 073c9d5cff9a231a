"""Refusals of admin methods: Kafka's code, and what to do."""

from __future__ import annotations

from ...actors.errors import CoordinatorError, ErrorCode

ADVICE = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them, or use remove_members() first",
    ErrorCode.UNKNOWN_MEMBER_ID: "there is no such member, or the group has members, and only they may commit",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "its members subscribe to the topic, and only they may commit",
    ErrorCode.INVALID_GROUP_ID: "expected a non-empty group id",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than offset_metadata_max_bytes",
    ErrorCode.MESSAGE_TOO_LARGE: "the change does not fit into one entry of the log: reset fewer partitions at a time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "it is being loaded: try again in some seconds",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it cannot be served now, perhaps since its records cannot be read: the log of"
    " the server says why",
}


def refusal(code: ErrorCode, subject: str, message: str | None = None) -> CoordinatorError:
    """``message``: instead of the advice."""
    detail = message or ADVICE.get(code)
    return CoordinatorError(code, f"{subject}: {code.name}" + (f", {detail}" if detail else ""))


def check(code: ErrorCode, subject: str, message: str | None = None) -> None:
    """Raise CoordinatorError unless there is no error."""
    if code is not ErrorCode.NONE:
        raise refusal(code, subject, message)
