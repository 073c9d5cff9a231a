"""The state machine of a classic group, as data. ``dispatch.py`` turns the tables into functions that run.

- ``CELLS``: for each state and kind of request the error code for the client, or the name of the function that
  handles it. ``CHECKS`` has the check of the sender, which comes first and is the same for all states. Empty and Dead
  have no members, so nothing is checked there.
- ``TRANSITIONS``: for each state and event the next state, and the name of the function that runs then. A pair that is
  not in the table is a bug.

====================  ==================================================================================================
Empty                 a first member joins -> PreparingRebalance, for ``group_initial_rebalance_delay_ms``
PreparingRebalance    all members have joined, or the deadline has passed -> CompletingRebalance, next generation;
                      no member is left -> Empty, next generation
CompletingRebalance   the leader's assignment is durable -> Stable; a member joins with new metadata, leaves,
                      expires or does not sync, or the append fails -> PreparingRebalance
Stable                the leader rejoins, a member joins, leaves, expires, changes its metadata or does not sync
                      -> PreparingRebalance
Dead                  final: the group was deleted, or the server stops
====================  ==================================================================================================

Source: Kafka's ClassicGroupState and GroupMetadataManager (4.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum, auto
from typing import NamedTuple

from ..errors import ErrorCode
from ..messages import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)
from .reset_messages import ResetOffsets


class State(StrEnum):
    """A classic group's state; the value is its name on the wire. Other modules ask the properties."""

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
    def is_sync_phase(self) -> bool:
        """Whether the group waits for the leader's assignment; SyncGroup requests are parked."""
        return self is State.COMPLETING_REBALANCE

    @property
    def is_stable(self) -> bool:
        """Whether the assignment of the generation is durable."""
        return self is State.STABLE

    @property
    def is_dead(self) -> bool:
        """Whether the group is deleted, or has left memory."""
        return self is State.DEAD

    @property
    def may_have_members(self) -> bool:
        """Whether requests may come from members, so that their sender is checked."""
        return self not in (State.EMPTY, State.DEAD)


LISTED_NAMES = tuple(state.value for state in State if state is not State.DEAD)
"""The names on the wire of the states of groups that exist."""


class Request(IntEnum):
    """A kind of request."""

    JOIN = auto()  # any JoinGroup; if the group admits it, it is handled as one of the next four
    JOIN_NEW = auto()  # without a member id
    JOIN_REPLACING = auto()  # without a member id, with the instance id of a static member (KIP-345)
    JOIN_PENDING = auto()  # with a member id that was assigned, but has not joined yet (KIP-394)
    JOIN_KNOWN = auto()  # with any other member id
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    COMMIT = auto()
    TXN_COMMIT = auto()  # in a transaction
    FETCH = auto()
    DELETE_OFFSETS = auto()
    RESET = auto()  # all members are removed, and offsets are set
    DELETE = auto()
    DESCRIBE = auto()


KINDS: Mapping[type, Request] = {
    JoinGroup: Request.JOIN,
    SyncGroup: Request.SYNC,
    Heartbeat: Request.HEARTBEAT,
    LeaveGroup: Request.LEAVE,
    OffsetCommit: Request.COMMIT,
    TxnOffsetCommit: Request.TXN_COMMIT,
    OffsetFetch: Request.FETCH,
    OffsetDelete: Request.DELETE_OFFSETS,
    ResetOffsets: Request.RESET,
    DescribeGroup: Request.DESCRIBE,
    DeleteGroup: Request.DELETE,
}
"""The kind of a request by its class."""


class Event(Enum):
    """A change of a group that may change its state."""

    MEMBER_JOINED = auto()  # a new member, or one that rejoined and whose JoinGroup is parked
    MEMBERS_LEFT = auto()  # by LeaveGroup: members, or member ids that had not joined yet
    SESSION_EXPIRED = auto()  # of a member, which was removed
    PENDING_EXPIRED = auto()  # a member id has not joined in time
    JOIN_DEADLINE = auto()  # the initial delay or the rebalance timeout has passed
    GENERATION_FORMED = auto()  # the join phase has ended with members
    ALL_LEFT = auto()  # the join phase has ended without members
    ASSIGNMENT_DURABLE = auto()
    ASSIGNMENT_FAILED = auto()  # its record could not be appended
    SYNC_DEADLINE = auto()  # members that have not sent SyncGroup were removed
    LOADED_WITH_MEMBERS = auto()
    LOADED_TOO_MANY = auto()  # more members than the limit, which has been lowered
    CLOSED = auto()


Cell = ErrorCode | str
"""An error code, or the name of a function."""


CHECKS: Mapping[Request, str] = {
    Request.JOIN_KNOWN: "check_identity",
    Request.SYNC: "check_protocol",
    Request.HEARTBEAT: "check_generation",
    Request.COMMIT: "check_generation",
    Request.TXN_COMMIT: "check_producer",
}
"""The function that checks the sender. Other kinds have none; in LeaveGroup each member is checked on its own."""

CELLS: Mapping[State, Mapping[Request, Cell]] = {
    State.EMPTY: {
        Request.JOIN: "join",
        Request.JOIN_NEW: "join_new",
        Request.JOIN_PENDING: "join_pending",
        Request.JOIN_KNOWN: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.SYNC: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.HEARTBEAT: ErrorCode.UNKNOWN_MEMBER_ID,
        Request.LEAVE: "leave",
        Request.COMMIT: "accept_without_generation",
        Request.TXN_COMMIT: "accept_without_generation",
        Request.FETCH: ErrorCode.NONE,
        Request.DELETE_OFFSETS: ErrorCode.NONE,
        Request.RESET: "reset",
        Request.DELETE: ErrorCode.NONE,
        Request.DESCRIBE: "describe",
    },
    State.PREPARING_REBALANCE: {
        Request.JOIN: "join",
        Request.JOIN_NEW: "join_new",
        Request.JOIN_REPLACING: "replace_and_rebalance",
        Request.JOIN_PENDING: "join_pending",
        Request.JOIN_KNOWN: "rejoin",
        Request.SYNC: ErrorCode.REBALANCE_IN_PROGRESS,
        Request.HEARTBEAT: "ask_to_rejoin",
        Request.LEAVE: "leave",
        Request.COMMIT: "renew_session",  # of the old generation: members commit before they rejoin
        Request.TXN_COMMIT: ErrorCode.NONE,
        Request.FETCH: ErrorCode.NONE,
        Request.DELETE_OFFSETS: "accept_of_consumers",
        Request.RESET: "reset",
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
        Request.DESCRIBE: "describe",
    },
    State.COMPLETING_REBALANCE: {
        Request.JOIN: "join",
        Request.JOIN_NEW: "join_new",
        Request.JOIN_REPLACING: "replace_and_rebalance",
        Request.JOIN_PENDING: "join_pending",
        Request.JOIN_KNOWN: "rejoin_if_changed",  # otherwise its response was lost
        Request.SYNC: "park_sync",
        Request.HEARTBEAT: "renew_session",
        Request.LEAVE: "leave",
        Request.COMMIT: ErrorCode.REBALANCE_IN_PROGRESS,
        Request.TXN_COMMIT: ErrorCode.NONE,
        Request.FETCH: ErrorCode.NONE,
        Request.DELETE_OFFSETS: "accept_of_consumers",
        Request.RESET: "reset",
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
        Request.DESCRIBE: "describe",
    },
    State.STABLE: {
        Request.JOIN: "join",
        Request.JOIN_NEW: "join_new",
        Request.JOIN_REPLACING: "replace_if_unchanged",
        Request.JOIN_PENDING: "join_pending",
        Request.JOIN_KNOWN: "rejoin_if_leader_or_changed",
        Request.SYNC: "answer_sync",
        Request.HEARTBEAT: "renew_session",
        Request.LEAVE: "leave",
        Request.COMMIT: "renew_session",
        Request.TXN_COMMIT: ErrorCode.NONE,
        Request.FETCH: ErrorCode.NONE,
        Request.DELETE_OFFSETS: "accept_of_consumers",
        Request.RESET: "reset",
        Request.DELETE: ErrorCode.NON_EMPTY_GROUP,
        Request.DESCRIBE: "describe_protocol",
    },
    State.DEAD: {
        Request.JOIN: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.SYNC: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.HEARTBEAT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.LEAVE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.COMMIT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.TXN_COMMIT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.FETCH: ErrorCode.NONE,  # a closed group still has its offsets
        Request.DELETE_OFFSETS: ErrorCode.GROUP_ID_NOT_FOUND,
        Request.RESET: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Request.DELETE: ErrorCode.GROUP_ID_NOT_FOUND,
        Request.DESCRIBE: "describe_closed",
    },
}
"""Kinds that cannot occur in a state are not in its row: a static member in Empty, any admitted JoinGroup in Dead."""


class Transition(NamedTuple):
    """The next state, and the name of the function that runs then, if there is one."""

    state: State
    act: str | None = None


_START = Transition(State.PREPARING_REBALANCE, "start_join_phase")
_ABANDON = Transition(State.PREPARING_REBALANCE, "abandon_generation")
_CHECK = Transition(State.PREPARING_REBALANCE, "check_join_phase")
_CHECK_EARLY = Transition(State.PREPARING_REBALANCE, "check_join_phase_early")
_CLOSE = Transition(State.DEAD)

TRANSITIONS: Mapping[State, Mapping[Event, Transition]] = {
    State.EMPTY: {
        Event.MEMBER_JOINED: Transition(State.PREPARING_REBALANCE, "start_initial_delay"),
        Event.MEMBERS_LEFT: Transition(State.EMPTY),
        Event.PENDING_EXPIRED: Transition(State.EMPTY),
        Event.LOADED_WITH_MEMBERS: Transition(State.STABLE),
        Event.CLOSED: _CLOSE,
    },
    State.PREPARING_REBALANCE: {
        Event.MEMBER_JOINED: _CHECK,
        Event.MEMBERS_LEFT: _CHECK,
        Event.SESSION_EXPIRED: _CHECK_EARLY,
        Event.PENDING_EXPIRED: _CHECK_EARLY,
        Event.JOIN_DEADLINE: Transition(State.PREPARING_REBALANCE, "extend_or_end_join_phase"),
        Event.GENERATION_FORMED: Transition(State.COMPLETING_REBALANCE, "begin_generation"),
        Event.ALL_LEFT: Transition(State.EMPTY, "become_empty"),
        Event.CLOSED: _CLOSE,
    },
    State.COMPLETING_REBALANCE: {
        Event.MEMBER_JOINED: _ABANDON,
        Event.MEMBERS_LEFT: _ABANDON,
        Event.SESSION_EXPIRED: _ABANDON,
        Event.PENDING_EXPIRED: Transition(State.COMPLETING_REBALANCE),
        Event.ASSIGNMENT_DURABLE: Transition(State.STABLE),
        Event.ASSIGNMENT_FAILED: _ABANDON,
        Event.SYNC_DEADLINE: _ABANDON,
        Event.CLOSED: _CLOSE,
    },
    State.STABLE: {
        Event.MEMBER_JOINED: _START,
        Event.MEMBERS_LEFT: _START,
        Event.SESSION_EXPIRED: _START,
        Event.PENDING_EXPIRED: Transition(State.STABLE),
        Event.SYNC_DEADLINE: _START,
        Event.LOADED_TOO_MANY: _START,
        Event.CLOSED: _CLOSE,
    },
    State.DEAD: {Event.CLOSED: _CLOSE},
}
