"""Which answer leads to what, as a table: the rules of the classic protocol from the client's side, without waiting.

Source: what Kafka's own client does (AbstractCoordinator, ConsumerCoordinator of 4.x), except that work on which the
coordinator's word is no longer certain is given up at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from ...actors.errors import ErrorCode


class Asked(Enum):
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    FETCH = auto()


class Step(Enum):
    """What a member does next."""

    GO_ON = auto()  # all is well
    COME_WITH_ID = auto()  # the same again, with the member id that the answer has (KIP-394)
    AGAIN = auto()  # the same again, in a moment
    RECONNECT = auto()  # the same in a moment on a new connection, since the coordinator may be elsewhere
    REJOIN = auto()  # a rebalance is under way: take part in it
    LOSE = auto()  # the group went on without us: all work is lost; join again
    JOIN_ANEW = auto()  # the same, and our member id means nothing any more
    FENCED = auto()  # another process has our instance id: stop
    FAIL = auto()  # tell the user


E = ErrorCode

_COORDINATOR: Mapping[ErrorCode, Step] = {
    E.NONE: Step.GO_ON,
    E.COORDINATOR_LOAD_IN_PROGRESS: Step.AGAIN,
    E.COORDINATOR_NOT_AVAILABLE: Step.RECONNECT,
    E.NOT_COORDINATOR: Step.RECONNECT,
    E.REQUEST_TIMED_OUT: Step.AGAIN,
    E.UNKNOWN_SERVER_ERROR: Step.AGAIN,  # a group that failed is back in a moment
    E.KAFKA_STORAGE_ERROR: Step.AGAIN,
}
_MEMBERSHIP: Mapping[ErrorCode, Step] = {
    **_COORDINATOR,
    E.REBALANCE_IN_PROGRESS: Step.REJOIN,
    E.ILLEGAL_GENERATION: Step.LOSE,
    E.UNKNOWN_MEMBER_ID: Step.JOIN_ANEW,
    E.FENCED_INSTANCE_ID: Step.FENCED,
}

AFTER: Mapping[Asked, Mapping[ErrorCode, Step]] = {
    Asked.JOIN: {**_MEMBERSHIP, E.MEMBER_ID_REQUIRED: Step.COME_WITH_ID},
    Asked.SYNC: _MEMBERSHIP,
    Asked.HEARTBEAT: _MEMBERSHIP,
    Asked.COMMIT: {**_MEMBERSHIP, E.UNKNOWN_SERVER_ERROR: Step.FAIL},
    Asked.FETCH: {**_COORDINATOR, E.UNSTABLE_OFFSET_COMMIT: Step.AGAIN},
}


def step_after(asked: Asked, error: ErrorCode) -> Step:
    """What an answer leads to. Errors that are not in the table are told to the user."""
    return AFTER[asked].get(error, Step.FAIL)
