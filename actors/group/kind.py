"""What the group actor asks of a group of any kind.

A kind of group has its own members, states, requests and records. Committed offsets, transactions, deletion, expiry of
offsets and passivation are the same for all kinds; the actor does them and asks the group only for its consent.

Source: Kafka's ``Group`` interface (``org.apache.kafka.coordinator.group``).
"""

from __future__ import annotations

from typing import Any, NamedTuple, NewType, Protocol

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..records import GroupValue, Record
from .effects import Effects
from .events import Reason

GroupType = NewType("GroupType", str)
"""The name of a kind of group in ListGroups."""

CLASSIC = GroupType("classic")

ABSENT_NAME = "Dead"
"""The name on the wire of the state of a group that does not exist."""

PASSIVATED_NAME = "Empty"
"""The name on the wire of the state of a passivated group: it has no members."""


class OffsetExpiry(NamedTuple):
    """Which offsets of a group may expire (KIP-211), and from when on they age.

    ``since_ms``: wall-clock time; -1: the age of an offset begins at its commit. Offsets of ``subscribed`` topics do
    not expire.
    """

    since_ms: int
    subscribed: frozenset[str]


class Group(Protocol):
    """The soft state of one group, pure: methods fill the ``effects`` that they get, and none of them waits."""

    @property
    def type(self) -> GroupType: ...

    @property
    def group_id(self) -> str: ...

    @property
    def state_name(self) -> str:
        """The state in listings, such as "Stable". "Dead" after ``close``."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type in listings; None or "" for a simple group, whose offsets are committed without members."""

    @property
    def is_empty(self) -> bool:
        """Whether the state is Empty: the group is deleted with its last offset."""

    @property
    def may_be_passivated(self) -> bool:
        """Whether the durable records contain the whole state: no members, no pending ids, nothing parked."""

    def load(self, value: GroupValue, effects: Effects) -> None:
        """Restore the group from its durable state. The sessions of its members start again."""

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        """Handle a request of this kind of group.

        Returns the reply, or ``DEFERRED`` if it is sent by way of ``effects``: at once, when a record is durable, or
        after a wait. For OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and DeleteGroup the group only
        decides: it returns an error code, and for NONE the actor does the rest. A request of another kind of group gets
        ``requests.refuse``.
        """

    def creation_record(self, request: Any) -> Record | None:
        """The record to write if this request has created the group; None if the group needs none before its first."""

    def appended(self, value: GroupValue, context: Any, effects: Effects) -> None:
        """Records of this group are durable, and with them ``value``: apply the decision.

        ``context`` is the one of the effects that had the records.
        """

    def append_failed(self, context: Any, error: ErrorCode, effects: Effects) -> None:
        """Records of this group could not be appended: revert the decision. ``error`` is the code for clients."""

    def expired(self, name: Any, effects: Effects) -> None:
        """Handle the alarm of the deadline ``name``."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets may not be deleted by OffsetDelete."""

    def offset_expiry(self) -> OffsetExpiry | None:
        """None while no offset may expire."""

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        """Reply to all parked requests with ``error``, cancel all deadlines, and enter Dead."""
