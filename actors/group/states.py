"""The states of a classic group as two tables:

- ``ALLOWED_PREVIOUS_STATES``: the states from which a group may enter a state. Any other transition is a bug.
- ``ANSWERS``: for each state and kind of request an error code for the client, or the action of the group. It applies
  after the identity of the sender was checked (unknown member, fenced instance, old generation).

Transitions:

====================  ==================================================================================================
Empty                 a first member joins -> PreparingRebalance, for ``group_initial_rebalance_delay_ms``
PreparingRebalance    all members have joined, or the deadline has passed -> CompletingRebalance, next generation;
                      no member is left -> Empty, next generation
CompletingRebalance   the leader's assignment is durable -> Stable; a member joins with new metadata, leaves,
                      expires or does not sync -> PreparingRebalance
Stable                the leader rejoins, a member joins, leaves, expires, changes its metadata or does not sync
                      -> PreparingRebalance
Dead                  final: the group was deleted, or the server stops
====================  ==================================================================================================

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

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, but may have offsets and member ids that have not joined yet."""
        return self is State.EMPTY

    @property
    def is_join_phase(self) -> bool:
        """Whether the group waits for JoinGroup requests, which are parked."""
        return self is State.PREPARING_REBALANCE

    @property
    def is_stable(self) -> bool:
        """Whether the assignment of the generation is durable."""
        return self is State.STABLE


LISTED_NAMES = tuple(state.value for state in State if state is not State.DEAD)
"""The names on the wire of the states of groups that exist."""


class Request(IntEnum):
    """The columns of the table.

    OffsetFetch and DescribeGroup have none, because no state refuses them. This includes Dead: a closed group still has
    its offsets.
    """

    JOIN_NEW = auto()  # without a member id
    JOIN_KNOWN = auto()  # with the id of a member
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    COMMIT = auto()
    TXN_COMMIT = auto()  # in a transaction
    DELETE_OFFSETS = auto()
    DELETE = auto()


HEARTBEAT, COMMIT = Request.HEARTBEAT, Request.COMMIT  # for hot paths, see ``NO_ERROR``


class Action(Enum):
    """The action of a group for a request that it accepts."""

    ADD_MEMBER = auto()
    REJOIN = auto()  # park it until the join phase ends
    ANSWER_IF_UNCHANGED = auto()  # with the current generation; rebalance if the metadata changed
    ANSWER_FOLLOWER_IF_UNCHANGED = auto()  # the same, but a join of the leader always rebalances
    PARK_SYNC = auto()  # until the leader's assignment is durable
    ANSWER_SYNC = auto()
    REMOVE = auto()
    ACCEPT = auto()
    DELETE_OFFSETS = auto()
    DELETE_OFFSETS_OF_CONSUMERS = auto()  # with members only if their subscriptions can be parsed
    DELETE = auto()


Row = Mapping[Request, Action | ErrorCode]

ALLOWED_PREVIOUS_STATES: Mapping[State, frozenset[State]] = {
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
        Request.JOIN_KNOWN: Action.ANSWER_IF_UNCHANGED,  # its response was lost
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
