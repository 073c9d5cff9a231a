"""What a command says when the server is away or says no: one line that names what was asked and what to do."""

from __future__ import annotations

from ...actors.errors import ErrorCode

MEANINGS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again in a moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still loading; try again in a moment",
    ErrorCode.NOT_COORDINATOR: "its coordinator is moving or stopping; try again in a moment",
    ErrorCode.INVALID_GROUP_ID: "the server does not take this as a group's name",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members subscribe to this topic; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group rebalances; stop its consumers first",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction is about to change this offset; try again when it has ended",
    ErrorCode.KAFKA_STORAGE_ERROR: "the server's disk failed",
}

TRY_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What passes by itself, soon."""

NO_SUCH_GROUP = ErrorCode.GROUP_ID_NOT_FOUND

HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a commit from outside hears of a group that has members."""


class ClientError(Exception):
    """The server could not be asked, or said no. The text is for a person."""


class Refused(ClientError):
    """The server said no to one thing; ``code`` is its number."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {meaning(code)}")
        self.code = code


def name_of(code: int) -> str:
    """Kafka's name of an error code, its number where it is none of those that we know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def meaning(code: int) -> str:
    """Our words for an error code, with Kafka's name of it."""
    name = name_of(code)
    return f"{MEANINGS[ErrorCode(code)]} ({name})" if code in MEANINGS else f"the server answered {name}"
