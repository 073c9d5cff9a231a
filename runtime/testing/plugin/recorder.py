"""Records events of the coordinator in the timeline: members, states, timers, deleted offsets and groups.

The events of groups come from the node's ``EventLog``, deleted records from the messages of its actors
(``System.trace``). Recording does not affect the node.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....actors.group.contexts import DeleteContext
from ....actors.group.events import GroupEvent, Kind, Reason
from ....actors.messages import Append
from ....actors.records import OffsetRecord, TransactionRecord, TransactionValue, group_id_of
from ....actors.transactions.rules import TransactionState
from ...engine.trace import Traced
from ...node.node import Node
from .timeline import Timeline

PARTITIONS_SHOWN = 3
TIMER_TEXTS = {
    Reason.INITIAL_DELAY_ENDED: "the initial rebalance delay has ended",
    Reason.REBALANCE_TIMEOUT: "the rebalance timeout of JoinGroup has expired",
    Reason.SYNC_TIMEOUT: "the rebalance timeout of SyncGroup has expired",
}


class TimelineRecorder:
    """An ``actors.group.event_log.GroupObserver``, for one node after the other."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._node: Node | None = None
        self._is_recording = False

    @property
    def is_attached(self) -> bool:
        return self._node is not None

    def begin(self) -> None:
        """Record the events of groups, from the start of a node on."""
        self._is_recording = True

    def attach(self, node: Node) -> None:
        """Record what a node that has started deletes, too."""
        self._node = node
        node.actors.system.trace(self._on_trace)

    def end(self) -> None:
        """Stop recording, before the node ends."""
        self._is_recording = False
        if self._node is not None:
            self._node.actors.system.trace(None)
        self._node = None

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        if self._is_recording:
            for event in events:
                self._record_timer(group_id, event)
                self._record(group_id, event)

    def _record(self, group_id: str, event: GroupEvent) -> None:
        member = self._timeline.short(event.member_id) if event.member_id else ""
        reason = f"'{event.client_reason}'" if event.client_reason else ""
        if event.kind is Kind.STATE_CHANGED:
            change, cause = f"{event.state}, {event.generation_text}", (event.reason.value, member, reason)
        else:
            is_added = event.kind is Kind.MEMBER_ADDED
            change = f"{member} is {'a' if is_added else 'no longer a'} member"
            cause = event.reason.value, "", reason
        what = f"{change}: {', '.join(filter(None, cause))}"
        kind = "state" if event.kind is Kind.STATE_CHANGED else "member"
        self._timeline.note(kind, what, group_id, "" if kind == "state" else event.client_id)

    def _record_timer(self, group_id: str, event: GroupEvent) -> None:
        """Record the timer that caused an event."""
        if event.kind is Kind.MEMBER_REMOVED and event.reason is Reason.SESSION_EXPIRED:
            text = f"the session of {self._timeline.short(event.member_id)} has ended"
        elif event.kind is Kind.STATE_CHANGED and event.reason in TIMER_TEXTS:
            text = TIMER_TEXTS[event.reason]
        else:
            return
        self._timeline.note("timer", text, group_id)

    def _on_trace(self, traced: Traced) -> None:
        if isinstance(traced.message, Append) and traced.moment == "sent":
            self._record_appends(traced.message)

    def _record_appends(self, message: Append) -> None:
        deleted = [
            record for record in message.entry.records if isinstance(record, OffsetRecord) and record.value is None
        ]
        if deleted:
            partitions = [f"{record.topic}-{record.partition}" for record in deleted[:PARTITIONS_SHOWN]]
            omitted = [f"and {len(deleted) - PARTITIONS_SHOWN} more"] if len(deleted) > PARTITIONS_SHOWN else []
            self._timeline.note("offsets", f"deletes {', '.join((*partitions, *omitted))}", deleted[0].group_id)
        if isinstance(message.context, DeleteContext) and message.context.ends_group:
            self._timeline.note("state", "the group is deleted", group_id_of(message.entry.records[0]) or "")
        for record in message.entry.records:
            if isinstance(record, TransactionRecord) and record.value is not None:
                self._timeline.note("state", f"transaction {record.transactional_id}: {_state_of(record.value)}")


def _state_of(value: TransactionValue) -> str:
    """Kafka's name of the state, such as "PrepareAbort"."""
    return "".join(word.capitalize() for word in TransactionState(value.state).name.split("_"))
