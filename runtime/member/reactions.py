"""A member's reaction to each answer, as a table: the client's side of both protocols. Pure.

Source: Kafka's client (AbstractCoordinator, ConsumerCoordinator of 4.x). One difference: a member drops its shards as
soon as it cannot be sure that it still owns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from ...actors.errors import ErrorCode


class RequestKind(Enum):
    CONSUMER_JOIN = auto()  # the heartbeat of the consumer protocol that joins
    CONSUMER_HEARTBEAT = auto()
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    FETCH = auto()
    CREATE_TOPICS = auto()  # also those that have more partitions now


class Reaction(Enum):
    """The next action of a member."""

    CONTINUE = auto()  # no error
    RETRY_WITH_ID = auto()  # repeat the request with the member id of the answer (KIP-394)
    RETRY = auto()  # repeat the request after a backoff
    RECONNECT = auto()  # the same on a new connection: the coordinator may have moved
    REJOIN = auto()  # a rebalance is in progress: join it
    LOSE_SHARDS = auto()  # the generation is over: all shards are lost; rejoin
    JOIN_AS_NEW = auto()  # the same, and the member id is unknown: join without it
    FENCED = auto()  # another process uses the instance id: stop
    FAIL = auto()  # raise the error to the user


E = ErrorCode

_COORDINATOR: Mapping[ErrorCode, Reaction] = {
    E.NONE: Reaction.CONTINUE,
    E.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    E.COORDINATOR_NOT_AVAILABLE: Reaction.RECONNECT,
    E.NOT_COORDINATOR: Reaction.RECONNECT,
    E.REQUEST_TIMED_OUT: Reaction.RETRY,
    E.UNKNOWN_SERVER_ERROR: Reaction.RETRY,  # a group whose actor failed restarts soon
    E.KAFKA_STORAGE_ERROR: Reaction.RETRY,
}
_MEMBERSHIP: Mapping[ErrorCode, Reaction] = {
    **_COORDINATOR,
    E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    E.ILLEGAL_GENERATION: Reaction.LOSE_SHARDS,
    E.UNKNOWN_MEMBER_ID: Reaction.JOIN_AS_NEW,
    E.FENCED_INSTANCE_ID: Reaction.FENCED,
}

REACTIONS: Mapping[RequestKind, Mapping[ErrorCode, Reaction]] = {
    RequestKind.JOIN: {**_MEMBERSHIP, E.MEMBER_ID_REQUIRED: Reaction.RETRY_WITH_ID},
    RequestKind.SYNC: _MEMBERSHIP,
    RequestKind.HEARTBEAT: _MEMBERSHIP,
    RequestKind.COMMIT: {
        **_MEMBERSHIP,
        E.UNKNOWN_SERVER_ERROR: Reaction.FAIL,
        E.GROUP_ID_NOT_FOUND: Reaction.JOIN_AS_NEW,
        E.STALE_MEMBER_EPOCH: Reaction.RETRY,  # the next heartbeat brings the newer epoch
    },
    RequestKind.CONSUMER_JOIN: {
        **_COORDINATOR,
        E.FENCED_INSTANCE_ID: Reaction.FENCED,
        E.FENCED_MEMBER_EPOCH: Reaction.RETRY,
        E.UNRELEASED_INSTANCE_ID: Reaction.RETRY,  # a process that was killed has this instance id for its session
    },
    RequestKind.CONSUMER_HEARTBEAT: {
        **_COORDINATOR,
        E.FENCED_MEMBER_EPOCH: Reaction.LOSE_SHARDS,
        E.UNKNOWN_MEMBER_ID: Reaction.LOSE_SHARDS,
        E.GROUP_ID_NOT_FOUND: Reaction.LOSE_SHARDS,
        E.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
    RequestKind.FETCH: {**_COORDINATOR, E.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY},
    RequestKind.CREATE_TOPICS: {
        **_COORDINATOR,
        E.UNKNOWN_SERVER_ERROR: Reaction.FAIL,
        E.THROTTLING_QUOTA_EXCEEDED: Reaction.RETRY,
    },
}


def reaction_to(kind: RequestKind, error: ErrorCode) -> Reaction:
    """The reaction to an answer. An error that is not in the table is raised to the user."""
    return REACTIONS[kind].get(error, Reaction.FAIL)
