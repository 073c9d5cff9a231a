"""What the group actor asks of a group of any kind.

A kind of group has its own members, states, requests and records. Committed offsets, transactions, deletion, expiry of
offsets and passivation are the same for all kinds; the actor does them and asks the group only for its consent.

Source: Kafka's ``Group`` interface (``org.apache.kafka.coordinator.group``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, NamedTuple, Protocol

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..recorder.now import Votes, Waiting
from ..records import GroupStateRecord, GroupType, Record
from ..steps import Steps
from .effects import Effects
from .environment import GroupEnvironment
from .events import Reason

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
    subscribed: Container[str]


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
    def content_bytes(self) -> int:
        """About the memory of its members."""

    @property
    def is_empty(self) -> bool:
        """Whether the state is Empty, and no decision is on its way to change that.

        Such a group is deleted with its last offset, and may become a group of another kind.
        """

    @property
    def may_be_passivated(self) -> bool:
        """Whether the durable records contain the whole state: no members, no pending ids, nothing parked."""

    def load(self, value: Any, effects: Effects) -> None:
        """Restore the group from its durable state. The sessions of its members start again."""

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        """Handle a request of this kind of group.

        Returns the reply, or ``DEFERRED`` if it is sent by way of ``effects``: at once, when a record is durable, or
        after a wait. For OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and DeleteGroup the group only
        decides: it returns an error code, and for NONE the actor does the rest. A request of another kind of group gets
        ``requests.refuse``.
        """

    def answer_at_once(self, request: Any, effects: Effects) -> Any:
        """The reply to a heartbeat that changes nothing but a session; NOT_HANDLED if ``handle`` has to decide.

        Asked for each heartbeat of any kind of group, so it takes little time. The only effects are alarms.
        """

    def creation_record(self, request: Any) -> Record | None:
        """The record to write if this request has created the group; None if the group needs none before its first."""

    def appended(self, value: Any, context: Any, effects: Effects) -> None:
        """Records of this group are durable, and with them ``value``: apply the decision.

        ``context`` is the one of the effects that had the records.
        """

    def append_failed(self, context: Any, error: ErrorCode, effects: Effects) -> None:
        """Records of this group could not be appended: revert the decision. ``error`` is that of the log."""

    def expired(self, name: Any, effects: Effects) -> None:
        """Handle the alarm of the deadline ``name``."""

    def subscribed_topics(self) -> Steps[Container[str]]:
        """The topics that members read, so that their offsets may not be deleted by OffsetDelete."""

    def offset_expiry(self) -> Steps[OffsetExpiry | None]:
        """None while no offset may expire."""

    def waiting(self) -> Waiting:
        """What the group waits for now, and its members."""

    def votes(self) -> Steps[Votes | None]:
        """How its members vote for an assignor; None if they do not vote."""

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        """Reply to all parked requests with ``error``, cancel all deadlines, and enter Dead."""


class GroupKind(Protocol):
    """One kind of group: how its state is stored, and its soft state. Registered in ``actors/group/kinds.py``.

    A value is the durable state of a group apart from its offsets, made from its records in the order of the log. It
    may be immutable, or changed by ``replay``.
    """

    @property
    def type(self) -> GroupType: ...

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states of groups that exist, as in listings. One is "Empty"."""

    def new_group(self, group_id: str, environment: GroupEnvironment) -> Group:
        """A group without members."""

    def replay(self, value: Any, record: GroupStateRecord) -> Any:
        """The value after a record of this kind; ``value`` is None before the first. None if nothing is left of it."""

    def has_members(self, value: Any) -> bool:
        """Whether the group has to be active: its members have sessions."""

    def protocol_type(self, value: Any) -> str:
        """The protocol type in listings, "" if there is none."""

    def offsets_age_from_ms(self, value: Any) -> int:
        """Of a group without members: ``OffsetExpiry.since_ms``."""

    def pack(self, value: Any) -> Any:
        """The value of a group without members as an object for ``marshal``."""

    def unpack(self, packed: Any) -> Any:
        """The value of the result of ``pack``."""

    def tombstones(self, group_id: str, value: Any) -> Iterable[Record]:
        """The records that delete the group; ``value`` None: a simple group, which has only offsets."""
