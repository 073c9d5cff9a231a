"""The exceptions of a Member. Each message says what happened and what to do."""

from __future__ import annotations

from ...actors.callboard_error import CallboardError
from ...actors.errors import ErrorCode

FENCED = (
    "another process has joined with instance_id={!r}, and this member of group {!r} must stop; give each process an "
    "instance_id of its own"
)


class MemberError(CallboardError):
    """A member cannot be part of its group. ``code``: the coordinator's error code, if there was one."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code


class HasLeft(MemberError):
    """The member has left its group."""


class Fenced(MemberError):
    """Another process has joined with this ``instance_id``, so this one must stop (KIP-345)."""


class CommitRefused(MemberError):
    """The coordinator refuses this commit. A retry would not help."""


class ShardLost(MemberError):
    """The member does not own the shard any more, and another one may. Raised by a commit.

    A commit that was already sent may have happened.
    """


ADVICE = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full; start fewer members, or raise group_max_size",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members have no assignor in common with this one, or are not consumers; give all members the "
        "same assignor; Kafka's clients cannot join a group with named resources"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session_timeout_ms is out of the coordinator's range; change it, or group_min_session_timeout_ms and "
        "group_max_session_timeout_ms"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "the coordinator has no assignor of this name; use one of its group_consumer_assignors, or None"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the group has members of the other protocol; give all members of a group the same protocol"
    ),
    ErrorCode.INVALID_GROUP_ID: "the coordinator refuses this group id; expected a non-empty one",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the note is too long; shorten it, or raise offset_metadata_max_bytes",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "its topic was deleted while the member owned it",
    ErrorCode.MESSAGE_TOO_LARGE: "it does not fit into a batch of the log; make it smaller, or raise message_max_bytes",
}


def refusal_message(request: str, code: ErrorCode) -> str:
    """The message for a refused request."""
    advice = ADVICE.get(code)
    return f"{request} is refused with {code.name}" + (f": {advice}" if advice else "")
