"""What a Member raises. Each text names what happened, and what to do."""

from __future__ import annotations

from ...actors.errors import ErrorCode


class MemberError(Exception):
    """A member cannot take part in its group. ``code``: what the coordinator answered, if it was that."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code


class HasLeft(MemberError):
    """The member has left by itself: there will be no work any more."""


class Fenced(MemberError):
    """Another process has joined with this ``instance_id``; this one must stop. (KIP-345)"""


class CommitRefused(MemberError):
    """The coordinator does not take this commit; trying again would not help."""


class ShardLost(MemberError):
    """What was to be committed is not this member's any more: somebody else may work on it already.

    A commit that was on its way may have happened.
    """


ADVICE = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full; start fewer members, or raise group_max_size",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no assignor with this one, or are no consumers; give all of them the same one, "
        "and mind that Kafka's clients cannot share out resources with names"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session_timeout_ms is out of the coordinator's range; change it, or group_min_session_timeout_ms and "
        "group_max_session_timeout_ms"
    ),
    ErrorCode.INVALID_GROUP_ID: "the coordinator does not take this as a group's name; expected one that is not empty",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the note is too long; shorten it, or raise offset_metadata_max_bytes",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "its topic was deleted while the member worked on it",
    ErrorCode.MESSAGE_TOO_LARGE: "it does not fit a batch of the log; make it smaller, or raise message_max_bytes",
}


def refused(what: str, code: ErrorCode) -> str:
    """One sentence on an answer that says no."""
    advice = ADVICE.get(code)
    return f"{what} is refused with {code.name}" + (f": {advice}" if advice else "")
