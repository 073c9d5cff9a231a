"""Records events of the coordinator in the timeline: timers, states, members, deleted offsets.

It traces the messages of the node's actors (``System.trace``), and compares a group with its recorded state after each
message. It does not affect the node.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ....actors.group.actor import IDLE, GroupActor
from ....actors.group.classic import ClassicGroup
from ....actors.messages import Append
from ....actors.records import GroupRecord, OffsetRecord, TransactionRecord, TransactionValue
from ....actors.timer.messages import Expired
from ....actors.transactions.rules import TransactionState
from ...engine.mailbox import Mailbox, mailbox_of
from ...engine.trace import Traced
from ...node.node import Node
from .timeline import Timeline

PARTITIONS_SHOWN = 3
TIMER_TEXTS = {
    "join": "the rebalance timeout of JoinGroup has expired",
    "sync": "the rebalance timeout of SyncGroup has expired",
}


class RecordedGroup(NamedTuple):
    """The recorded state of a group."""

    state: str
    generation: int
    members: tuple[str, ...]


NO_GROUP = RecordedGroup("", 0, ())


class TimelineRecorder:
    """The recorder of one node. ``record_changes`` records the changes since its last call."""

    def __init__(self, node: Node, timeline: Timeline) -> None:
        self._node = node
        self._timeline = timeline
        self._loop = asyncio.get_running_loop()
        self._mailboxes: dict[str, tuple[str, Mailbox]] = {}  # by label: group id and mailbox
        self._recorded: dict[str, RecordedGroup] = {}
        self._touched: dict[str, Mailbox] = {}
        timeline.before_event = self.record_changes
        node.actors.system.trace(self._on_trace)

    def record_changes(self) -> None:
        changed_groups, self._touched = self._touched, {}
        for group_id, mailbox in changed_groups.items():
            group = _group_in(mailbox)
            if group is not None:
                self._compare(group_id, group)

    def end(self) -> None:
        """Stop recording, before the node ends."""
        self._node.actors.system.trace(None)
        self._timeline.before_event = _do_nothing
        self._touched.clear()

    def _on_trace(self, traced: Traced) -> None:
        if not traced.receiver.startswith(GroupActor.__name__):
            if isinstance(traced.message, Append) and traced.moment == "sent":
                self._record_appends(traced.message)
            return
        if traced.moment != "handled":
            return
        self.record_changes()
        group_id, mailbox = self._find(traced.receiver)
        group = _group_in(mailbox) if mailbox is not None else None
        if mailbox is None or group is None:
            return
        if isinstance(traced.message, Expired):
            self._record_timers(group_id, group, traced.message)
        if not self._touched:
            self._loop.call_soon(self.record_changes)
        self._touched[group_id] = mailbox

    def _find(self, label: str) -> tuple[str, Mailbox | None]:
        if label not in self._mailboxes:
            groups = self._node.groups.groups
            self._mailboxes = {ref.actor_inbox.label: (name, mailbox_of(ref)) for name, ref in groups.items()}
        return self._mailboxes.get(label, ("", None))

    def _compare(self, group_id: str, group: ClassicGroup) -> None:
        before_event = self._recorded.get(group_id, NO_GROUP)
        now = RecordedGroup(group.state.value, group.generation, tuple(group.members.by_id))
        self._recorded[group_id] = now
        note, short = self._timeline.note, self._timeline.short
        for member_id in now.members:
            if member_id not in before_event.members:
                note("member", f"{short(member_id)} is a member", group_id, group.members.by_id[member_id].client_id)
        for member_id in before_event.members:
            if member_id not in now.members:
                note("member", f"{short(member_id)} is no longer a member", group_id)
        if (now.state, now.generation) != (before_event.state, before_event.generation):
            note("state", f"{now.state}, generation {now.generation}", group_id)

    def _record_timers(self, group_id: str, group: ClassicGroup, message: Expired) -> None:
        now_ms = group.clock.monotonic_ms()
        for name in message.names:
            if not isinstance(name, tuple) or name == IDLE:
                continue
            deadline = group.deadlines.find(group, name)
            if deadline is None or deadline.due_ms is None or deadline.due_ms > now_ms:
                continue  # it was postponed meanwhile
            text = TIMER_TEXTS.get(name[0]) or f"the session of {self._timeline.short(name[1])} has ended"
            self._timeline.note("timer", text, group_id)

    def _record_appends(self, message: Append) -> None:
        deleted = [
            record for record in message.entry.records if isinstance(record, OffsetRecord) and record.value is None
        ]
        if deleted:
            partitions = [f"{record.topic}-{record.partition}" for record in deleted[:PARTITIONS_SHOWN]]
            omitted = [f"and {len(deleted) - PARTITIONS_SHOWN} more"] if len(deleted) > PARTITIONS_SHOWN else []
            self._timeline.note("offsets", f"deletes {', '.join((*partitions, *omitted))}", deleted[0].group_id)
        for record in message.entry.records:
            if isinstance(record, GroupRecord) and record.value is None:
                self._timeline.note("state", "the group is deleted", record.group_id)
            if isinstance(record, TransactionRecord) and record.value is not None:
                self._timeline.note("state", f"transaction {record.transactional_id}: {_state_of(record.value)}")


def _group_in(mailbox: Mailbox) -> ClassicGroup | None:
    actor = mailbox.actor
    group = actor._group if isinstance(actor, GroupActor) else None
    return group if isinstance(group, ClassicGroup) else None


def _state_of(value: TransactionValue) -> str:
    """Kafka's name of the state, such as "PrepareAbort"."""
    return "".join(word.capitalize() for word in TransactionState(value.state).name.split("_"))


def _do_nothing() -> None:
    """Does nothing, after the recorder has ended."""
