"""The states of a classic group, as tables.

Two tables:

- ``CAME_FROM``: the arrows. A group may enter a state only from those named; anything else is a bug of ours.
- ``ANSWERS``: what each request gets in each state: an error code for the client, or the name of what the group does.
  It is looked at after the identity of the sender was checked (unknown member, fenced instance, old generation).

What leads out of a state:

====================  ==================================================================================================
Empty                 a first member -> PreparingRebalance, where it waits ``group_initial_rebalance_delay_ms``
PreparingRebalance    all have joined, or the time is over -> CompletingRebalance with the next generation;
                      nobody is left -> Empty, with the next generation
CompletingRebalance   the leader's assignment is durable -> Stable; a member joins with other metadata, leaves,
                      expires or never syncs -> PreparingRebalance
Stable                the leader rejoins, a member joins, leaves, expires, changes its metadata or never synced
                      -> PreparingRebalance
Dead                  the end: the group was deleted, or its partition was handed away
====================  ==================================================================================================

``ABSENT`` is no state but a row: what a group gets that the coordinator does not know.

Source: Kafka's ClassicGroupState and GroupMetadataManager (4.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum, auto

from ..errors import ErrorCode


class State(StrEnum):
    """A classic group's state; the value is its name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Request(IntEnum):
    JOIN_NEW = auto()  # without a member id
    JOIN_KNOWN = auto()  # with the id of a member
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    COMMIT = auto()
    TXN_COMMIT = auto()  # in a transaction
    DELETE_OFFSETS = auto()
    DELETE = auto()
    FETCH = auto()
    DESCRIBE = auto()


ALWAYS_SERVED = frozenset({Request.FETCH, Request.DESCRIBE})
"""What no state refuses, so that only ``ABSENT`` has a column for it.

Dead included: a group that was closed still has its offsets, and one that was deleted is absent.
"""

HEARTBEAT, COMMIT = Request.HEARTBEAT, Request.COMMIT  # for the hot paths, see ``NO_ERROR``


class Action(Enum):
    """What a group does with a request that it does not refuse."""

    CREATE = auto()  # make the group, then ask it
    CREATE_IF_SIMPLE = auto()  # a commit without a generation makes a simple group
    ADD_MEMBER = auto()
    REJOIN = auto()  # park it, the others are coming too
    ANSWER_IF_UNCHANGED = auto()  # the current generation again; a rebalance if the metadata changed
    ANSWER_FOLLOWER_IF_UNCHANGED = auto()  # the same, but a leader's join always rebalances
    PARK_SYNC = auto()  # until the leader's assignment is durable
    ANSWER_SYNC = auto()
    REMOVE = auto()
    NOBODY_LEAVES = auto()  # each identity is unknown
    ACCEPT = auto()
    READ_NOTHING = auto()
    DELETE_OFFSETS = auto()
    DELETE_OFFSETS_OF_CONSUMERS = auto()  # with members only where their subscriptions can be read
    DESCRIBE = auto()
    DELETE = auto()


Row = Mapping[Request, Action | ErrorCode]

CAME_FROM: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
    State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
    State.DEAD: frozenset(State),
}

ANSWERS: Mapping[State, Row] = {
    State.EMPTY: {
        Request.JOIN_NEW: Action.ADD_MEMBER,
        Request.JOIN_KNOWN: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.SYNC: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.HEARTBEAT: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.LEAVE: Action.REMOVE,
        Request.COMMIT: Action.ACCEPT,
        Request.TXN_COMMIT: Action.ACCEPT,
        Request.DELETE_OFFSETS: Action.DELETE_OFFSETS,
        Request.DELETE: Action.DELETE,
    },
    State.PREPARING_REBALANCE: {
        Request.JOIN_NEW: Action.ADD_MEMBER,
        Request.JOIN_KNOWN: Action.REJOIN,
        Request.SYNC: ErrorCode.REBALANCE_IN_PROGRESS,
        Request.HEARTBEAT: ErrorCode.REBALANCE_IN_PROGRESS,
        Request.LEAVE: Action.REMOVE,
        Request.COMMIT: Action.ACCEPT,  # of the old generation: members commit before they rejoin
        Request.TXN_COMMIT: Action.ACCEPT,
        Request.DELETE_OFFSETS: Action.DELETE_OFFSETS_OF_CONSUMERS,
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
    },
    State.COMPLETING_REBALANCE: {
        Request.JOIN_NEW: Action.ADD_MEMBER,
        Request.JOIN_KNOWN: Action.ANSWER_IF_UNCHANGED,  # its answer was lost
        Request.SYNC: Action.PARK_SYNC,
        Request.HEARTBEAT: ErrorCode.NONE,
        Request.LEAVE: Action.REMOVE,
        Request.COMMIT: ErrorCode.REBALANCE_IN_PROGRESS,
        Request.TXN_COMMIT: Action.ACCEPT,
        Request.DELETE_OFFSETS: Action.DELETE_OFFSETS_OF_CONSUMERS,
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
    },
    State.STABLE: {
        Request.JOIN_NEW: Action.ADD_MEMBER,
        Request.JOIN_KNOWN: Action.ANSWER_FOLLOWER_IF_UNCHANGED,
        Request.SYNC: Action.ANSWER_SYNC,
        Request.HEARTBEAT: ErrorCode.NONE,
        Request.LEAVE: Action.REMOVE,
        Request.COMMIT: Action.ACCEPT,
        Request.TXN_COMMIT: Action.ACCEPT,
        Request.DELETE_OFFSETS: Action.DELETE_OFFSETS_OF_CONSUMERS,
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
    },
    State.DEAD: {
        Request.JOIN_NEW: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.JOIN_KNOWN: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.SYNC: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.HEARTBEAT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.LEAVE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.COMMIT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.TXN_COMMIT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.DELETE_OFFSETS: ErrorCode.GROUP_ID_NOT_FOUND,
        Request.DELETE: ErrorCode.GROUP_ID_NOT_FOUND,
    },
}

ABSENT: Row = {
    Request.JOIN_NEW: Action.CREATE,
    Request.JOIN_KNOWN: ErrorCode.UNKNOWN_MEMBER_ID,
    Request.SYNC: ErrorCode.UNKNOWN_MEMBER_ID,
    Request.HEARTBEAT: ErrorCode.UNKNOWN_MEMBER_ID,
    Request.LEAVE: Action.NOBODY_LEAVES,
    Request.COMMIT: Action.CREATE_IF_SIMPLE,
    Request.TXN_COMMIT: Action.CREATE_IF_SIMPLE,
    Request.FETCH: Action.READ_NOTHING,
    Request.DELETE_OFFSETS: ErrorCode.GROUP_ID_NOT_FOUND,
    Request.DESCRIBE: Action.DESCRIBE,
    Request.DELETE: ErrorCode.GROUP_ID_NOT_FOUND,
}
