"""ActiveGroup: a group in memory, and the effects of its decisions.

The functions in ``deletion``, ``offset_requests``, ``handlers`` and ``restart`` get it as an argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from contextlib import suppress
from functools import partial
from typing import Any

import pykka

from ..base import ActorRef, requeue_first
from ..errors import ErrorCode
from ..messages import Append, GroupChanged, GroupRequest
from ..new_tuple import new_tuple
from ..ports import Entry
from ..records import Record
from ..steps import Steps, run_steps
from ..timer.messages import Cancel, Schedule
from .commit_guard import CommitGuard
from .contexts import deliver_reply
from .effects import Deadline, Effects
from .environment import GroupEnvironment
from .event_log import GroupHistory
from .events import Reason
from .in_flight import InFlight
from .kind import Group
from .offsets import GroupData

IDLE = ("idle",)
"""The name of the deadline after which a group without members is passivated."""

IDLE_MS = 60_000
"""Groups that are used more often are not worth packing. Idle groups are passivated after one to two times this."""


class ActiveGroup:
    """What the messages to one instance of a ``GroupActor`` read and change.

    ``actor``: its reference. ``group``: the soft state, made from ``data``, the durable state. ``in_flight`` outlives
    the instance. If ``group`` has taken the place of one of another kind, ``appends_before_change`` appends were sent
    before, and ``cancelled_names`` are deadlines of the other one, whose alarms may still come.
    """

    __slots__ = (
        "actor",
        "appends_before_change",
        "appends_before_idle",
        "cancelled_names",
        "counted_offset_bytes",
        "data",
        "effects",
        "environment",
        "group",
        "group_id",
        "guard",
        "idle",
        "in_flight",
        "listed",
        "partition",
    )

    def __init__(
        self, actor: ActorRef, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment
    ) -> None:
        self.actor = actor
        self.group_id = group_id
        self.partition = partition
        self.data = data
        self.environment = environment
        self.effects = Effects(environment.counters, GroupHistory(group_id, environment.event_log))
        self.guard = CommitGuard(is_complete=data.value is None)
        self.in_flight = InFlight()
        self.listed: GroupChanged | None = None
        self.idle = Deadline(IDLE)
        self.appends_before_idle = 0
        self.appends_before_change = 0
        self.cancelled_names: Set[Hashable] = frozenset()
        self.counted_offset_bytes = 0
        """``data.offsets.size_bytes`` when the memory was counted last."""
        self.group = self.make_group()

    def make_group(self) -> Group:
        return self.data.kind.new_group(self.group_id, self.environment)

    @property
    def may_be_passivated(self) -> bool:
        """Whether nothing but ``data`` would be lost with the instance."""
        return self.group.may_be_passivated and self.in_flight.is_idle and self.data.may_be_passivated()

    def apply_effects(self) -> None:
        """Send what the last decisions caused, events first."""
        effects = self.effects
        if effects.events or effects.notes:
            self.guard.note(effects.events)
            effects.report_events()
        if effects.records:
            self.append(effects.records, effects.context)
            effects.records, effects.context = (), None
        if self.idle.due_ms is None and self.may_be_passivated:
            self._schedule_idle_deadline()
        if effects.alarms:
            self._schedule_alarms()
        if effects.background:
            self._run_in_background()
        if effects.requeued:
            requeued, effects.requeued = effects.requeued, []
            requeue_first(self.actor.actor_inbox, requeued)
        if effects.answers:
            answers, effects.answers = effects.answers, []
            for reply, value in answers:
                deliver_reply(reply, value)
        self.count_memory()
        self._report_state()

    def work_in_steps(self) -> Steps[None]:
        """Do what the last decisions have left to be done. The effects are applied after each step."""
        work = self.effects.work
        while work:
            for _ in work.popleft():
                self.apply_effects()
                yield
            self.apply_effects()

    def count_memory(self) -> None:
        """Count the members and offsets. Takes constant time."""
        data = self.data
        self.counted_offset_bytes = data.offsets.size_bytes
        self.environment.memory.set_content(self.group_id, data.size_bytes + self.group.content_bytes)

    def append(self, records: tuple[Record, ...], context: Any) -> None:
        """Append records as one entry. The actor gets ``Written`` with ``context``."""
        entry = new_tuple(Entry, (self.partition, records))
        self.environment.writer.tell(new_tuple(Append, (self.actor, entry, context)))
        self.in_flight.appends_sent += 1  # after tell: if it raises, no outcome will follow

    def close(self, error: ErrorCode, reason: Reason) -> None:
        """Reply to all parked requests with ``error``."""
        run_steps(self.close_in_steps(error, reason))

    def close_in_steps(self, error: ErrorCode, reason: Reason) -> Steps[None]:
        """The same for a group that may have many members."""
        self.idle.cancel(self.effects)
        self.group.close(error, reason, self.effects)
        self.apply_effects()
        yield from self.work_in_steps()

    def handle_idle_deadline(self) -> bool:
        """Whether the group had no members and no appends. Fetches do not count: they activate it again."""
        is_due = self.idle.handle_alarm(self.environment.clock.monotonic_ms(), self.effects)
        if is_due and self.may_be_passivated and self.appends_before_idle == self.in_flight.appends_sent:
            return True
        self.apply_effects()
        return False

    def _schedule_idle_deadline(self) -> None:
        self.appends_before_idle = self.in_flight.appends_sent
        due_ms = self.environment.clock.monotonic_ms() + IDLE_MS
        self.idle.set(max(due_ms, self.guard.end_ms), self.effects)

    def _schedule_alarms(self) -> None:
        alarms, self.effects.alarms = self.effects.alarms, {}
        timer, owner = self.environment.timer, self.actor
        for name, due_ms in alarms.items():
            timer.tell(Cancel(owner, name) if due_ms is None else Schedule(owner, name, due_ms))

    def _run_in_background(self) -> None:
        works, self.effects.background = self.effects.background, []
        for work in works:
            self.environment.consumer_groups.background.run(work, partial(_tell, self.actor))

    def _report_state(self) -> None:
        """Tell the coordinator each change, so that it can list groups without asking them."""
        group, listed = self.group, self.listed
        if listed is not None and listed[1:] == (group.state_name, group.protocol_type or "", group.type):
            return
        self.listed = GroupChanged(self.group_id, group.state_name, group.protocol_type or "", group.type)
        self.environment.coordinator.tell(self.listed)


def _tell(actor: ActorRef, request: GroupRequest) -> None:
    """The group may have been deleted, or its partition lost."""
    with suppress(pykka.ActorDeadError):
        actor.tell(request)
