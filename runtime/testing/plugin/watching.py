"""Records in the timeline: timers, states, members, offsets that are deleted.

It listens to the messages of the node's actors (``System.trace``), and looks at a group when it has handled one. It
changes nothing.
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

PLACES_SHOWN = 3
WORDS = {
    "join": "the time to join is over",
    "sync": "the time to ask for an assignment is over",
}


class Seen(NamedTuple):
    """A group as it was at the last look."""

    state: str
    generation: int
    members: tuple[str, ...]


NOTHING = Seen("", 0, ())


class Watcher:
    """One node's. ``look`` writes down what has changed since the last look."""

    def __init__(self, node: Node, timeline: Timeline) -> None:
        self._node = node
        self._timeline = timeline
        self._loop = asyncio.get_running_loop()
        self._mailboxes: dict[str, tuple[str, Mailbox]] = {}  # by label: the group's id, and where it lives
        self._seen: dict[str, Seen] = {}
        self._touched: dict[str, Mailbox] = {}
        timeline.before = self.look
        node.system.trace(self._hear)

    def look(self) -> None:
        touched, self._touched = self._touched, {}
        for group_id, mailbox in touched.items():
            group = _group_in(mailbox)
            if group is not None:
                self._compare(group_id, group)

    def end(self) -> None:
        """What a node does to end is of no interest."""
        self._node.system.trace(None)
        self._timeline.before = _nothing
        self._touched.clear()

    def _hear(self, traced: Traced) -> None:
        if not traced.receiver.startswith(GroupActor.__name__):
            if isinstance(traced.message, Append) and traced.moment == "sent":
                self._appends(traced.message)
            return
        if traced.moment != "handled":
            return
        self.look()
        group_id, mailbox = self._find(traced.receiver)
        group = _group_in(mailbox) if mailbox is not None else None
        if mailbox is None or group is None:
            return
        if isinstance(traced.message, Expired):
            self._rings(group_id, group, traced.message)
        if not self._touched:
            self._loop.call_soon(self.look)
        self._touched[group_id] = mailbox

    def _find(self, label: str) -> tuple[str, Mailbox | None]:
        if label not in self._mailboxes:
            groups = self._node.groups.groups
            self._mailboxes = {ref.actor_inbox.label: (name, mailbox_of(ref)) for name, ref in groups.items()}
        return self._mailboxes.get(label, ("", None))

    def _compare(self, group_id: str, group: ClassicGroup) -> None:
        before = self._seen.get(group_id, NOTHING)
        now = Seen(group.state.value, group.generation, tuple(group.members.by_id))
        self._seen[group_id] = now
        note, short = self._timeline.note, self._timeline.short
        for member_id in now.members:
            if member_id not in before.members:
                note("member", f"{short(member_id)} is a member", group_id, group.members.by_id[member_id].client_id)
        for member_id in before.members:
            if member_id not in now.members:
                note("member", f"{short(member_id)} is no member any more", group_id)
        if (now.state, now.generation) != (before.state, before.generation):
            note("state", f"{now.state}, generation {now.generation}", group_id)

    def _rings(self, group_id: str, group: ClassicGroup, message: Expired) -> None:
        now_ms = group.clock.monotonic_ms()
        for name in message.names:
            if not isinstance(name, tuple) or name == IDLE:
                continue
            deadline = group._deadline(name)
            if deadline is None or deadline.due_ms is None or deadline.due_ms > now_ms:
                continue  # it was put off meanwhile
            told = WORDS.get(name[0]) or f"the session of {self._timeline.short(name[1])} has ended"
            self._timeline.note("timer", told, group_id)

    def _appends(self, message: Append) -> None:
        gone = [one for one in message.entry.records if isinstance(one, OffsetRecord) and one.value is None]
        if gone:
            places = [f"{one.topic}-{one.partition}" for one in gone[:PLACES_SHOWN]]
            more = [f"and {len(gone) - PLACES_SHOWN} more"] if len(gone) > PLACES_SHOWN else []
            self._timeline.note("offsets", f"deletes {', '.join((*places, *more))}", gone[0].group_id)
        for one in message.entry.records:
            if isinstance(one, GroupRecord) and one.value is None:
                self._timeline.note("state", "the group is deleted", one.group_id)
            if isinstance(one, TransactionRecord) and one.value is not None:
                self._timeline.note("state", f"transaction {one.transactional_id}: {_state_of(one.value)}")


def _group_in(mailbox: Mailbox) -> ClassicGroup | None:
    actor = mailbox.actor
    return actor._group if isinstance(actor, GroupActor) else None


def _state_of(value: TransactionValue) -> str:
    """As Kafka writes it, "PrepareAbort"."""
    return "".join(word.capitalize() for word in TransactionState(value.state).name.split("_"))


def _nothing() -> None:
    """Nobody looks."""
