"""SimulatedGroup: one ``ClassicGroup`` whose effects are applied without an actor.

Alarms fire to the millisecond when the test moves the clock. Records are durable at once; with ``holds_appends`` the
test makes them durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from callboard.actors.base import DEFERRED
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.contexts import ResetContext
from callboard.actors.group.effects import Effects
from callboard.actors.group.events import GroupEvent, Reason
from callboard.actors.group.rebalance_notes import Note
from callboard.actors.group.states import State
from callboard.actors.messages import Described, DescribeGroup, Joined, LeavingMember, Left
from callboard.actors.records import GroupRecord, GroupValue

from . import requests
from .ports import FakeGroupSettings, RecordedReply, SeededRandom, TestClock


class PendingAppend(NamedTuple):
    """A record that is not durable yet."""

    record: GroupRecord
    context: Any


class SimulatedGroup:
    """A group with its own clock, alarms and records. ``ClassicGroup.check`` runs after every step."""

    def __init__(self, *, holds_appends: bool = False, now_ms: int = 1_000_000, seed: int = 0) -> None:
        self.settings = FakeGroupSettings()
        self.clock = TestClock(now_ms)
        self.random = SeededRandom(seed)
        self.holds_appends = holds_appends
        self.alarms: dict[Hashable, int] = {}
        self.pending_appends: deque[PendingAppend] = deque()
        self.durable: list[GroupValue] = []
        self.events: list[GroupEvent] = []
        self.turns: list[tuple[list[Note], list[GroupEvent]]] = []
        self.group = self.new_group()
        self._generation = 0

    def new_group(self) -> ClassicGroup:
        return ClassicGroup(requests.GROUP, self.settings, self.clock, self.random)

    # Requests --------------------------------------------------------------------------------------------------------

    def handle(self, request: Any) -> Any:
        """Returns the reply, or the ``RecordedReply`` that gets it."""
        reply, effects = RecordedReply(), Effects()
        result = self.group.handle(request, reply, effects)
        self._apply(effects)
        return reply if result is DEFERRED else result

    def join(self, member_id: str = "", **options: Any) -> RecordedReply:
        reply = self.handle(requests.join(member_id, **options))
        assert isinstance(reply, RecordedReply)
        return reply

    def sync(
        self, member_id: str, generation_id: int, assignments: Mapping[str, bytes] | None = None, **options: Any
    ) -> RecordedReply:
        reply = self.handle(requests.sync(member_id, generation_id, assignments, **options))
        assert isinstance(reply, RecordedReply)
        return reply

    def heartbeat(self, member_id: str, generation_id: int, **options: Any) -> ErrorCode:
        return self._code(requests.heartbeat(member_id, generation_id, **options))

    def leave(self, *members: str | LeavingMember) -> Left:
        """The reply. If the group becomes empty, its actor sends it when the record is durable."""
        effects = Effects()
        left = self.group.handle(requests.leave(*members), None, effects)
        self._apply(effects)
        assert isinstance(left, Left)
        return left

    def commit(self, **options: Any) -> ErrorCode:
        return self._code(requests.commit(**options))

    def describe(self) -> Described:
        described = self.handle(DescribeGroup(requests.GROUP))
        assert isinstance(described, Described)
        return described

    def _code(self, request: Any) -> ErrorCode:
        error = self.handle(request)
        assert isinstance(error, ErrorCode)
        return error

    def close(self, error: ErrorCode, reason: Reason = Reason.SERVER_STOPS) -> None:
        effects = Effects()
        self.group.close(error, reason, effects)
        self._apply(effects)

    def load(self, value: GroupValue) -> None:
        """Replace the group by one that is loaded from a record, as at a server start."""
        self.group, self.alarms, self._generation = self.new_group(), {}, 0
        self.pending_appends.clear()
        effects = Effects()
        self.group.load(value, effects)
        effects.finish_work()
        self._apply(effects)

    # The log ---------------------------------------------------------------------------------------------------------

    def complete_append(self) -> None:
        """Make the oldest pending record durable."""
        pending, effects = self.pending_appends.popleft(), Effects()
        assert pending.record.value is not None
        self.durable.append(pending.record.value)
        if isinstance(pending.context, ResetContext):
            pending.context.answer(ErrorCode.NONE)
        self.group.appended(pending.record.value, pending.context, effects)
        self._apply(effects)

    def fail(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Fail the append of the oldest pending record."""
        pending, effects = self.pending_appends.popleft(), Effects()
        self.group.append_failed(pending.context, error, effects)
        self._apply(effects)

    # Time ------------------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        return min(self.alarms.values(), default=None)

    def advance(self, ms: int) -> None:
        """Move the clock. Alarms fire on the way, each at its time."""
        until_ms = self.clock.now_ms + ms
        while (due_ms := self.next_due_ms) is not None and due_ms <= until_ms:
            self.clock.now_ms = max(self.clock.now_ms, due_ms)
            self.fire_alarms()
        self.clock.now_ms = until_ms

    def fire_alarms(self) -> None:
        """Fire all alarms that are due now, in one turn."""
        effects = Effects()
        due = [name for name, due_ms in self.alarms.items() if due_ms <= self.clock.now_ms]
        for name in sorted(due, key=lambda alarm_name: self.alarms[alarm_name]):
            del self.alarms[name]
        for name in due:
            assert isinstance(name, tuple)
            self.group.expired(name, effects)
        self._apply(effects)

    def advance_to_next_alarm(self) -> None:
        assert self.next_due_ms is not None, "no alarm is set"
        self.advance(max(self.next_due_ms - self.clock.now_ms, 0))

    # Shortcuts -------------------------------------------------------------------------------------------------------

    def join_all(self, *options: dict[str, Any]) -> list[Joined]:
        """Members join; the group is CompletingRebalance afterwards. Returns the replies, the leader first."""
        replies = [
            self.join(**{"client": f"m{number}", **member_options}) for number, member_options in enumerate(options)
        ]
        while any(reply.is_waiting for reply in replies):
            self.advance_to_next_alarm()
        assert all(reply.error is ErrorCode.NONE for reply in replies)
        return [reply.value for reply in replies]

    def form_group(self, *options: dict[str, Any]) -> list[Joined]:
        """Members join and sync; the group is Stable afterwards. The assignments are ``b"of " + member_id``."""
        members = self.join_all(*options)
        self.assign(members)
        assert self.state() is State.STABLE
        return members

    def assign(self, members: list[Joined]) -> list[RecordedReply]:
        """All members of a generation, including the leader, sync."""
        assignments = {member.member_id: b"of " + member.member_id.encode() for member in members}
        replies = []
        for member in members:
            is_leader = member.leader == member.member_id
            instance = self.group.members.by_id[member.member_id].group_instance_id
            replies.append(
                self.sync(member.member_id, member.generation_id, assignments if is_leader else None, instance=instance)
            )
        return replies

    def state(self) -> State:
        return self.group.state

    @property
    def generation(self) -> int:
        return self.group.generation

    def _apply(self, effects: Effects) -> None:
        self.events += effects.events
        self.turns.append((effects.notes, effects.events))
        for name, due_ms in effects.alarms.items():
            if due_ms is None:
                self.alarms.pop(name, None)
            else:
                self.alarms[name] = due_ms
        assert len(effects.records) <= 1, "two records of a group in one turn"
        for record in effects.records:
            assert isinstance(record, GroupRecord)
            self.pending_appends.append(PendingAppend(record, effects.context))
        for reply, value in effects.answers:
            reply.set(value)
        self.group.check()
        assert self.group.generation >= self._generation, "the generation decreases"
        self._generation = self.group.generation
        while self.pending_appends and not self.holds_appends:
            self.complete_append()
