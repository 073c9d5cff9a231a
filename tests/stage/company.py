"""Company: one ``ClassicGroup`` and everything that a shell would do for it, without any actor.

Alarms ring to the millisecond when the test moves the clock. Records are durable at once, or, with ``holds_back``, when
the test says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.effects import Effects
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, LeavingMember, Left
from callboard.actors.records import GroupRecord, GroupValue

from . import requests
from .ports import GroupRules, Place, SeededRandom, TestClock


class OnItsWay(NamedTuple):
    """A record that was handed over and is not durable yet."""

    record: GroupRecord
    context: Any


class Company:
    """A group, its clock, its alarms and its records. ``Members.check`` runs after every step."""

    def __init__(self, *, holds_back: bool = False, now_ms: int = 1_000_000, seed: int = 0) -> None:
        self.rules = GroupRules()
        self.clock = TestClock(now_ms)
        self.random = SeededRandom(seed)
        self.holds_back = holds_back
        self.alarms: dict[Hashable, int] = {}
        self.on_its_way: deque[OnItsWay] = deque()
        self.durable: list[GroupValue] = []
        self.group = self.fresh_group()

    def fresh_group(self) -> ClassicGroup:
        return ClassicGroup(requests.GROUP, self.rules, self.clock, self.random)

    # Requests --------------------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", **options: Any) -> Place:
        place, effects = Place(), Effects()
        self.group.join(requests.join(member_id, **options), place, effects)
        self._carry_out(effects)
        return place

    def sync(
        self, member_id: str, generation_id: int, assignments: Mapping[str, bytes] | None = None, **options: Any
    ) -> Place:
        place, effects = Place(), Effects()
        self.group.sync(requests.sync(member_id, generation_id, assignments, **options), place, effects)
        self._carry_out(effects)
        return place

    def heartbeat(self, member_id: str, generation_id: int, **options: Any) -> ErrorCode:
        effects = Effects()
        answer = self.group.heartbeat(requests.heartbeat(member_id, generation_id, **options), effects)
        self._carry_out(effects)
        return answer

    def leave(self, *who: str | LeavingMember) -> Left:
        effects = Effects()
        answer = self.group.leave(requests.leave(*who), effects)
        self._carry_out(effects)
        return answer

    def commit(self, **options: Any) -> ErrorCode:
        effects = Effects()
        answer = self.group.commit_error(requests.commit(**options), effects)
        self._carry_out(effects)
        return answer

    def close(self, error: ErrorCode) -> None:
        effects = Effects()
        self.group.close(error, effects)
        self._carry_out(effects)

    def load(self, value: GroupValue) -> None:
        """A new group, as it is after a start from the log."""
        self.group, self.alarms = self.fresh_group(), {}
        self.on_its_way.clear()
        effects = Effects()
        self.group.load(value, effects)
        self._carry_out(effects)

    # The log ---------------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """The oldest record on its way is durable now."""
        sent, effects = self.on_its_way.popleft(), Effects()
        assert sent.record.value is not None
        self.durable.append(sent.record.value)
        self.group.appended(sent.record.value, sent.context, effects)
        self._carry_out(effects)

    def fail(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The oldest record on its way could not be kept."""
        sent, effects = self.on_its_way.popleft(), Effects()
        self.group.append_failed(sent.context, error, effects)
        self._carry_out(effects)

    # Time ------------------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        return min(self.alarms.values(), default=None)

    def advance(self, ms: int) -> None:
        """Move the clock, and ring what is due on the way, each at its time."""
        until_ms = self.clock.now_ms + ms
        while (due_ms := self.next_due_ms) is not None and due_ms <= until_ms:
            self.clock.now_ms = max(self.clock.now_ms, due_ms)
            self.ring()
        self.clock.now_ms = until_ms

    def ring(self) -> None:
        """Deliver all alarms that are due now, in one turn."""
        effects = Effects()
        due = [name for name, due_ms in self.alarms.items() if due_ms <= self.clock.now_ms]
        for name in sorted(due, key=lambda one: self.alarms[one]):
            del self.alarms[name]
        for name in due:
            assert isinstance(name, tuple)
            self.group.expired(name, effects)
        self._carry_out(effects)

    def advance_to_next_alarm(self) -> None:
        assert self.next_due_ms is not None, "no alarm is set"
        self.advance(max(self.next_due_ms - self.clock.now_ms, 0))

    # Short ways ------------------------------------------------------------------------------------------------------

    def gather(self, *options: dict[str, Any]) -> list[Joined]:
        """Members join an empty group; returns their answers, the leader's first. CompletingRebalance afterwards."""
        places = [self.join(**{"client": f"m{number}", **one}) for number, one in enumerate(options)]
        while any(place.is_waiting for place in places):
            self.advance_to_next_alarm()
        assert all(place.error is ErrorCode.NONE for place in places)
        return [place.value for place in places]

    def form(self, *options: dict[str, Any]) -> list[Joined]:
        """The same, and a durable assignment for everyone: ``b"of " + member id``. Stable afterwards."""
        joined = self.gather(*options)
        self.assign(joined)
        assert self.state() is State.STABLE
        return joined

    def assign(self, joined: list[Joined]) -> list[Place]:
        """All members of a generation sync, the leader too."""
        parts = {one.member_id: b"of " + one.member_id.encode() for one in joined}
        places = []
        for one in joined:
            is_leader = one.leader == one.member_id
            instance = self.group.members.by_id[one.member_id].group_instance_id
            places.append(self.sync(one.member_id, one.generation_id, parts if is_leader else None, instance=instance))
        return places

    def state(self) -> State:
        return self.group.state

    @property
    def generation(self) -> int:
        return self.group.generation

    def _carry_out(self, effects: Effects) -> None:
        for name, due_ms in effects.alarms.items():
            if due_ms is None:
                self.alarms.pop(name, None)
            else:
                self.alarms[name] = due_ms
        assert len(effects.records) <= 1, "two records of a group in one turn"
        for record in effects.records:
            assert isinstance(record, GroupRecord)
            self.on_its_way.append(OnItsWay(record, effects.context))
        for reply, value in effects.answers:
            reply.set(value)
        self.group.members.check()
        while self.on_its_way and not self.holds_back:
            self.keep()
