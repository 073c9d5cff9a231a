"""What happens to a group, and why: the events of a classic group. Pure.

The group adds events to ``Effects.events``; ``event_log.py`` keeps, reports and logs them. Heartbeats and commits cause
none. A rebalance is a series of state changes from PreparingRebalance to Stable or Empty.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from ..text import printable

DEAD_NAME = "Dead"
"""The name of the state of a group, of any kind, that has left memory."""

STABLE_NAME = "Stable"
"""The same of a group whose members have what they were assigned."""

CLIENT_REASON_CHARACTERS_MAX = 255
"""KIP-800 lets a client explain a JoinGroup or LeaveGroup in so many characters; longer texts are cut."""


class Kind(StrEnum):
    """What happened to the group."""

    MEMBER_ADDED = "member added"
    MEMBER_REMOVED = "member removed"
    STATE_CHANGED = "state changed"


class Reason(StrEnum):
    """Why it happened. Kafka logs these causes too, in its own words."""

    # A member is added or removed, and usually the group rebalances.
    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    ADMIN = "removed by an admin"
    RESET = "removed because an admin has reset the offsets"
    SESSION_EXPIRED = "session expired"
    STATIC_MEMBER_REPLACED = "static member replaced"
    LOADED = "loaded from the log"

    # A member is removed.
    DID_NOT_REJOIN = "did not rejoin within the rebalance timeout"
    DID_NOT_REVOKE = "did not give back partitions within the rebalance timeout"
    GROUP_IS_FULL = "the group has its maximum size"
    REPLACEMENT_NOT_STORED = "the replacement of a static member could not be stored"

    # A rebalance begins.
    SUBSCRIPTION_CHANGED = "subscription changed"
    LEADER_REJOINED = "leader rejoined"
    SYNC_TIMEOUT = "no SyncGroup within the rebalance timeout"  # also removes the members that did not send it
    ASSIGNMENT_NOT_STORED = "the assignment could not be stored"
    TOPICS_CHANGED = "a topic was created, has grown, or was deleted"
    DOWNGRADED = "the last member of the consumer protocol left"
    TOO_MANY_MEMBERS = "loaded with more members than the maximum size"

    # The join phase ends.
    ALL_JOINED = "all members joined"
    INITIAL_DELAY_ENDED = "the initial delay ended"
    REBALANCE_TIMEOUT = "the rebalance timeout ended"
    NO_MEMBERS = "no member is left"

    # A rebalance ends.
    ASSIGNMENT_STORED = "the assignment is stored"

    # The states of a group of the consumer protocol after Assigning.
    TARGET_CHANGED = "there is a new target assignment"
    ALL_HAVE_TARGET = "all members have the partitions of their targets"
    LEFT_FOR_A_WHILE = "static member left for a while"

    # The group ends.
    DELETED = "group deleted"
    SERVER_STOPS = "server stops"
    PARTITION_LOST = "the partition was lost"
    RESTARTED = "restarted from the log after an error"


class Identity(Protocol):
    """The names of a member: a ``GroupMember``, or its JoinGroup."""

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


class Cause(NamedTuple):
    """Why a group changes, and by which member. ``client_reason``: the client's own words (KIP-800)."""

    reason: Reason
    member: Identity | None = None
    client_reason: str | None = None


class GroupEvent(NamedTuple):
    """``state`` and ``generation`` are those after the event. Without a member ``member_id`` and the following are "".

    ``wall_ms``: milliseconds since 1970; ``monotonic_ms``: for durations. ``client_reason``: see ``shown_reason``.
    ``is_epoch``: whether ``generation`` is the epoch of a group of the consumer protocol.
    """

    wall_ms: int
    monotonic_ms: int
    kind: Kind
    reason: Reason
    state: str
    generation: int
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    client_reason: str = ""
    is_epoch: bool = False

    @property
    def generation_text(self) -> str:
        return f"{'epoch' if self.is_epoch else 'generation'} {self.generation}"

    def __str__(self) -> str:
        """One line for an error or a report."""
        who = f" by {printable(self.member_id)}" if self.kind is Kind.STATE_CHANGED else f" {printable(self.member_id)}"
        words = f"'{self.client_reason}'" if self.client_reason else ""
        change = f"{self.kind}: {self.state}" if self.kind is Kind.STATE_CHANGED else self.kind.value
        parts = (f"{self.wall_ms} {change}{who if self.member_id else ''}", self.reason.value, words)
        return ", ".join(filter(None, (*parts, self.generation_text)))


def event_of(kind: Kind, cause: Cause, state: str, generation: int, *, wall_ms: int, monotonic_ms: int) -> GroupEvent:
    """The event of a change. All strings come from the cause."""
    reason, member, client_reason = cause
    if member is None:
        return GroupEvent(wall_ms, monotonic_ms, kind, reason, state, generation)
    return GroupEvent(
        wall_ms,
        monotonic_ms,
        kind,
        reason,
        state,
        generation,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        shown_reason(client_reason),
    )


def shown_reason(client_reason: str | None) -> str:
    """A client's reason (KIP-800), cut at 255 characters, then with control characters escaped."""
    return printable(client_reason[:CLIENT_REASON_CHARACTERS_MAX]) if client_reason else ""
