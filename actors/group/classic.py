"""ClassicGroup: one group of the classic protocol, pure: a ``Group`` for its actor.

Requests are handled by the tables in ``states.py``: the check of the sender comes first, then the cell of the state.
Clients can observe this order, which is Kafka's.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..engine_ports import NOT_HANDLED
from ..errors import ErrorCode
from ..messages import Heartbeat, JoinGroup
from ..recorder.now import Votes, Waiting
from ..records import CLASSIC, GroupRecord, GroupType, GroupValue
from ..steps import Steps
from .contexts import APPEND_ERRORS, StaticRejoinContext
from .core import GroupCore
from .deadlines import cancel_in_steps
from .dispatch import DEADLINES, TABLES
from .effects import Effects
from .events import Cause, Reason
from .group_value import creation_record
from .invariants import check
from .kind import OffsetExpiry
from .loading import load
from .members import Members
from .phases import SyncPhase
from .replies import refuse_parked
from .states import Event
from .static_members import complete_replacement, revert_replacement
from .subscription import CONSUMER_PROTOCOL_TYPE, EveryTopic
from .syncing import complete_assignment, revert_assignment
from .votes import votes
from .waiting import waiting


class ClassicGroup(GroupCore):
    """A group of the classic protocol. Methods fill the ``effects`` that they get; none of them waits."""

    tables = TABLES
    deadlines = DEADLINES

    @property
    def type(self) -> GroupType:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def content_bytes(self) -> int:
        return self.members.content_bytes

    @property
    def is_empty(self) -> bool:
        return self.state.is_empty

    @property
    def may_be_passivated(self) -> bool:
        """Whether the group is Empty, without pending member ids."""
        return self.state.is_empty and not self.members.pending

    # Records ---------------------------------------------------------------------------------------------------------

    def load(self, value: GroupValue, effects: Effects) -> None:
        """Restore the group from its record. The sessions of its members start again."""
        effects.run(load(self, value, effects), len(value.members))

    def creation_record(self, request: object) -> GroupRecord | None:
        """The record of a group whose first member joins."""
        is_new = isinstance(request, JoinGroup) and not request.member_id
        return creation_record(self) if is_new else None

    def appended(self, value: GroupValue, context: Any, effects: Effects) -> None:
        """A record of this group is durable: apply the decision."""
        if isinstance(context, StaticRejoinContext):
            complete_replacement(self, context, effects)
        elif self.sync_phase.awaited is not None and context == self.sync_phase.awaited:
            complete_assignment(self, value, effects)

    def append_failed(self, context: Any, error: ErrorCode, effects: Effects) -> None:
        """A record of this group could not be appended: revert the decision."""
        error = APPEND_ERRORS.get(error, error)
        if isinstance(context, StaticRejoinContext):
            revert_replacement(self, context, error, effects)
        elif self.sync_phase.awaited is not None and context == self.sync_phase.awaited:
            revert_assignment(self, error, effects)

    # Time ------------------------------------------------------------------------------------------------------------

    def expired(self, name: Any, effects: Effects) -> None:
        """Handle the alarm of a deadline. Raises UnknownDeadline."""
        self.deadlines.fire(self, name, self.clock.monotonic_ms(), effects)

    def answer_at_once(self, request: Any, effects: Effects) -> Any:
        return self.handle(request, None, effects) if type(request) is Heartbeat else NOT_HANDLED

    # Offsets ---------------------------------------------------------------------------------------------------------

    def subscribed_topics(self) -> Steps[Container[str]]:
        """Kafka's ``isSubscribedToTopic``: unknown subscriptions of consumers count as subscribed to every topic."""
        topics = yield from self.subscriptions.topics()
        if topics is not None:
            return topics
        return EveryTopic() if self.protocol_type == CONSUMER_PROTOCOL_TYPE else ()

    def offset_expiry(self) -> Steps[OffsetExpiry | None]:
        """In an Empty group and a simple one, and in a Stable consumer group for topics without subscribers."""
        is_empty, topics = self.state.is_empty, (yield from self.subscriptions.topics())
        if not self.protocol_type or is_empty:
            since_ms = self.machine.since_ms if self.protocol_type else -1
            return OffsetExpiry(since_ms, topics or frozenset())
        if not self.state.is_stable or self.protocol_type != CONSUMER_PROTOCOL_TYPE or topics is None:
            return None
        return OffsetExpiry(-1, topics)

    def waiting(self) -> Waiting:
        return waiting(self)

    def votes(self) -> Steps[Votes | None]:
        return votes(self)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. For tests."""
        check(self)

    # The end ---------------------------------------------------------------------------------------------------------

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        """Reply to all parked requests with ``error``, and enter Dead."""
        members, deadlines = tuple(self.members), tuple(self.deadlines.all(self))
        effects.run(refuse_parked(members, error, effects), len(members))
        effects.run(cancel_in_steps(deadlines, effects), len(deadlines))
        self.members = Members()  # so that no session is renewed
        self.leader_id, self.sync_phase = None, SyncPhase()
        self.apply(Event.CLOSED, Cause(reason), effects)
