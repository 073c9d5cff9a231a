"""The effects of a pure decision: records to append, replies to send, alarms to schedule. The actor applies them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..records import Record
from ..steps import SHORT_WORK_ITEMS, Steps, run_steps
from .event_log import GroupHistory
from .events import GroupEvent
from .rebalance_notes import REFUSALS_KEPT, Note, Refusal


class ExpiredCounts(NamedTuple):
    """Numbers of expired offsets and groups (KIP-211) whose deletion is durable."""

    offsets: int = 0
    groups: int = 0  # groups that lost at least one offset or were deleted
    deleted_groups: int = 0

    def with_batch(self, offsets: int, *, is_last: bool, ends_group: bool) -> ExpiredCounts:
        """Add a batch of tombstones of a group. ``is_last``: no more batches of this group follow."""
        return ExpiredCounts(self.offsets + offsets, self.groups + is_last, self.deleted_groups + ends_group)

    def since(self, earlier: ExpiredCounts) -> ExpiredCounts:
        return ExpiredCounts(*(now - before for now, before in zip(self, earlier, strict=True)))


class GroupCounters:
    """Event counters of all groups of a coordinator since its start, for metrics."""

    __slots__ = ("commits", "expired", "expired_sessions")

    def __init__(self) -> None:
        self.commits = 0  # requests with at least one offset that was stored
        self.expired_sessions = 0
        self.expired = ExpiredCounts()


class Answer(NamedTuple):
    reply: ReplyTo
    value: Any


class Effects:
    """Filled by one decision. ``records`` are appended together; ``context`` is returned with their outcome.

    ``background``: work that would block, each of which returns a request to the group. ``requeued``: requests that
    have waited, which the actor handles again, before those in its mailbox.

    ``work``: parts of the decision that take long. The actor does them in steps, in this order, before it handles the
    next message.
    """

    __slots__ = (
        *("alarms", "answers", "background", "context", "counters", "events", "history", "notes", "records"),
        *("requeued", "work"),
    )

    def __init__(self, counters: GroupCounters | None = None, history: GroupHistory | None = None) -> None:
        """``history``: where the events go."""
        self.counters = counters or GroupCounters()
        self.history = history
        self.records: tuple[Record, ...] = ()
        self.context: Any = None
        self.answers: list[Answer] = []
        self.alarms: dict[Hashable, int | None] = {}
        self.events: list[GroupEvent] = []
        self.notes: list[Note] = []  # for the flight recorder
        self.background: list[Callable[[], Any]] = []
        self.requeued: list[tuple[Any, ReplyTo]] = []
        self.work: deque[Steps[None]] = deque()

    def run(self, steps: Steps[None], size: int) -> None:
        """Run a part of the decision: now, or if it handles many items, in steps. ``size``: how many."""
        if size > SHORT_WORK_ITEMS or self.work:
            self.work.append(steps)
        else:
            run_steps(steps)

    def finish_work(self) -> None:
        """Do the work that is left without a pause."""
        while self.work:
            run_steps(self.work.popleft())

    def answer(self, reply: ReplyTo | None, value: Any) -> None:
        """Reply to a parked request. Does nothing if ``reply`` is None: there is no parked request."""
        if reply is not None:
            self.answers.append(Answer(reply, value))

    def last_events(self) -> str:
        """The last events of the group, to explain an error."""
        return "; ".join(map(str, (*self.kept_events, *self.events))) or "none"

    @property
    def kept_events(self) -> tuple[GroupEvent, ...]:
        """The last events of earlier turns."""
        return () if self.history is None else tuple(self.history.events)

    def note_refusal(self, refusal: Refusal) -> None:
        """Heartbeats that are answered at once have no effects, so notes of them stay until the next turn. Few do."""
        if len(self.notes) < REFUSALS_KEPT:
            self.notes.append(refusal)

    def report_events(self) -> None:
        """Report the events and notes since the last call, of which there is at least one."""
        events, self.events = self.events, []
        notes, self.notes = self.notes, []
        if self.history is not None:
            self.history.note(notes)
            if events:
                self.history.add(events)

    def forget_events(self) -> None:
        """Drop the events when the group leaves memory."""
        if self.history is not None:
            self.history.clear()

    def append_record(self, record: Record, context: Any = None) -> None:
        self.records = (*self.records, record)
        self.context = context


class Deadline:
    """A named deadline with an alarm that is rescheduled as rarely as possible.

    Postponing a deadline (a heartbeat) does not touch the alarm: it fires at the old time and is scheduled again for
    the remaining time. So a session needs one alarm per session timeout, not one per heartbeat.
    """

    __slots__ = ("due_ms", "name", "scheduled_ms")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.due_ms: int | None = None
        self.scheduled_ms: int | None = None

    def set(self, due_ms: int, effects: Effects) -> None:
        self.due_ms = due_ms
        if self.scheduled_ms is None or self.scheduled_ms > due_ms:
            self.scheduled_ms = due_ms
            effects.alarms[self.name] = due_ms

    def cancel(self, effects: Effects) -> None:
        self.due_ms = None
        if self.scheduled_ms is not None:
            self.scheduled_ms = None
            effects.alarms[self.name] = None

    def handle_alarm(self, now_ms: int, effects: Effects) -> bool:
        """Handle the alarm. True if the deadline has passed; an early alarm is rescheduled, a cancelled one ignored.

        An alarm for an earlier time is early even if the deadline is over now: the requests that came before the
        deadline, and may postpone it, are certain to be read only before the alarm for its own time.
        """
        alarm_ms, self.scheduled_ms = self.scheduled_ms, None
        if self.due_ms is None:
            return False
        if self.due_ms > (now_ms if alarm_ms is None else min(now_ms, alarm_ms)):
            self.set(self.due_ms, effects)
            return False
        self.due_ms = None
        return True
