"""TimerActor: each deadline is delivered once, never early, one message per owner and turn, with one loop timer."""

from __future__ import annotations

import random
from asyncio import AbstractEventLoop
from collections.abc import Callable, Hashable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pykka
import pytest

from callboard.actors.base import running_on
from callboard.actors.timer.actor import TURN_LIMIT, TimerActor
from callboard.actors.timer.messages import Cancel, Expired, Schedule, Wake
from callboard.actors.timer.timers import Timers
from callboard.runtime.engine.alarm import LoopAlarm
from callboard.runtime.engine.simulation import Simulation

Deliveries = list[tuple[int, tuple[Hashable, ...]]]


class FakeClock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        raise AssertionError("deadlines have nothing to do with the wall clock")


class FakeAlarm:
    def __init__(self) -> None:
        self.due_ms: int | None = None
        self.settings: list[int] = []

    def set(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self.settings.append(due_ms)

    def clear(self) -> None:
        self.due_ms = None


class Owner:
    """Records the messages that it gets."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.heard: Deliveries = []
        self.is_dead = False

    def tell(self, message: Expired) -> None:
        if self.is_dead:
            raise pykka.ActorDeadError("gone")
        self.heard.append((self.clock.now_ms, message.names))


class TimerHarness:
    """A TimerActor whose clock and alarm the test controls."""

    def __init__(self, simulation: Simulation, now_ms: int = 1000) -> None:
        self.clock = FakeClock(now_ms)
        self.alarm = FakeAlarm()
        self.actor = TimerActor(self.clock, self.alarm)
        self._simulation = simulation

    def owner(self) -> Owner:
        return Owner(self.clock)

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.actor.on_receive(message)

    def fire_alarm(self) -> None:
        """Fire the alarm at its time, or now if its time has passed."""
        assert self.alarm.due_ms is not None
        self.clock.now_ms = max(self.clock.now_ms, self.alarm.due_ms)
        self.alarm.due_ms = None
        self.tell(Wake(self.clock.now_ms))

    def run_turn(self) -> bool:
        """Handle the message that the actor has sent to itself. False if there is none."""
        if not self._simulation._after_turn:
            return False
        *_, message = self._simulation._after_turn.popleft()
        self.tell(message)
        return True

    def advance_to(self, until_ms: int) -> None:
        while self.alarm.due_ms is not None and self.alarm.due_ms <= until_ms:
            self.fire_alarm()
        self.clock.now_ms = max(self.clock.now_ms, until_ms)


@pytest.fixture
def actor_system() -> Iterator[TimerHarness]:
    simulation = Simulation()
    with running_on(simulation):
        yield TimerHarness(simulation)


def test_deadline_is_delivered_once_when_due(actor_system: TimerHarness) -> None:
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "session", 46_000))
    actor_system.advance_to(45_999)
    assert owner.heard == []
    actor_system.advance_to(10**9)
    assert owner.heard == [(46_000, ("session",))]
    assert actor_system.alarm.due_ms is None


@pytest.mark.parametrize("due_ms", [2001, 2009, 2010, 47_001, 47_009])
def test_deadline_is_delivered_at_its_millisecond(actor_system: TimerHarness, due_ms: int) -> None:
    """This holds for near and far deadlines: a client may sleep for its session timeout and then check."""
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "session", due_ms))
    actor_system.advance_to(due_ms - 1)
    actor_system.tell(Wake(actor_system.clock.now_ms))
    assert owner.heard == []
    actor_system.advance_to(due_ms)
    assert owner.heard == [(due_ms, ("session",))]


def test_due_deadlines_of_owner_are_delivered_in_one_message(actor_system: TimerHarness) -> None:
    """The names are in order of due time. Each owner gets only its own deadlines."""
    first_owner, second_owner = actor_system.owner(), actor_system.owner()
    actor_system.tell(
        Schedule(first_owner, "b", 2020), Schedule(second_owner, "x", 2000), Schedule(first_owner, "a", 2010)
    )
    actor_system.clock.now_ms = 5000
    actor_system.fire_alarm()
    assert first_owner.heard == [(5000, ("a", "b"))]
    assert second_owner.heard == [(5000, ("x",))]


def test_schedule_replaces_deadline_of_same_name(actor_system: TimerHarness) -> None:
    first_owner, second_owner = actor_system.owner(), actor_system.owner()
    actor_system.tell(
        Schedule(first_owner, "session", 2000),
        Schedule(second_owner, "session", 4000),
        Schedule(first_owner, "session", 3000),
    )
    actor_system.advance_to(5000)
    assert first_owner.heard == [(3000, ("session",))]
    assert second_owner.heard == [(4000, ("session",))]


def test_cancelled_deadline_is_not_delivered(actor_system: TimerHarness) -> None:
    """Cancelling an unknown deadline, or twice, does nothing."""
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "session", 2000), Schedule(owner, "rebalance", 3000))
    actor_system.tell(Cancel(owner, "session"), Cancel(owner, "session"), Cancel(actor_system.owner(), "session"))
    actor_system.advance_to(5000)
    assert owner.heard == [(3000, ("rebalance",))]


def test_alarm_is_set_only_for_earlier_deadline_or_after_it_fired(actor_system: TimerHarness) -> None:
    owner = actor_system.owner()
    for name, due_ms in enumerate((5000, 6000, 5000, 4000, 4500)):
        actor_system.tell(Schedule(owner, name, due_ms))
    actor_system.tell(Cancel(owner, 3))
    assert actor_system.alarm.settings == [5000, 4000]
    actor_system.advance_to(10_000)
    assert actor_system.alarm.settings == [5000, 4000, 4500, 5000, 6000]
    assert [names for _, names in owner.heard] == [(4,), (0, 2), (1,)]


def test_alarm_is_not_set_again_to_same_time(actor_system: TimerHarness) -> None:
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "a", 2001), Schedule(owner, "b", 2001), Schedule(actor_system.owner(), "a", 2001))
    assert actor_system.alarm.settings == [2001]


def test_early_wake_delivers_nothing(actor_system: TimerHarness) -> None:
    owner = actor_system.owner()
    actor_system.tell(Wake(actor_system.clock.now_ms))
    assert actor_system.alarm.settings == []
    actor_system.tell(Schedule(owner, "session", 2000), Wake(1000), Wake(1000))
    assert owner.heard == []
    actor_system.advance_to(2000)
    assert owner.heard == [(2000, ("session",))]


def test_deadline_in_past_is_delivered_at_once(actor_system: TimerHarness) -> None:
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "session", 3))
    actor_system.advance_to(actor_system.clock.now_ms)
    assert owner.heard == [(1000, ("session",))]


def test_many_due_deadlines_are_delivered_over_several_turns(actor_system: TimerHarness) -> None:
    """The work per turn is limited. The rest follows after other actors had a turn; the alarm is not needed for it."""
    owners = [actor_system.owner() for _ in range(2 * TURN_LIMIT + 1)]
    actor_system.tell(*(Schedule(owner, "session", 2000) for owner in owners), Schedule(owners[0], "later", 2001))
    actor_system.fire_alarm()
    delivered = [sum(len(owner.heard) for owner in owners)]
    actor_system.clock.now_ms = 5000
    while actor_system.run_turn():
        delivered.append(sum(len(owner.heard) for owner in owners))
    assert delivered == [TURN_LIMIT, 2 * TURN_LIMIT, 2 * TURN_LIMIT + 1]
    assert actor_system.alarm.due_ms == 2001, "it was not due when the alarm fired"


def test_deadlines_of_dead_owner_are_dropped(actor_system: TimerHarness) -> None:
    dead_owner, live_owner = actor_system.owner(), actor_system.owner()
    dead_owner.is_dead = True
    actor_system.tell(
        Schedule(dead_owner, "session", 2000),
        Schedule(dead_owner, "later", 9000),
        Schedule(live_owner, "session", 2000),
    )
    actor_system.advance_to(2000)
    assert live_owner.heard == [(2000, ("session",))]
    assert actor_system.alarm.due_ms is None, "deadlines of dead owners set no alarm"


def test_owner_can_schedule_again_in_handler(actor_system: TimerHarness) -> None:
    """Groups do this after heartbeats have moved deadlines."""
    owner = actor_system.owner()
    actor_system.tell(Schedule(owner, "session", 2000))
    actor_system.advance_to(2000)
    actor_system.tell(Schedule(owner, "session", 3500))
    actor_system.advance_to(4000)
    assert owner.heard == [(2000, ("session",)), (3500, ("session",))]


def test_stop_clears_alarm(actor_system: TimerHarness) -> None:
    actor_system.tell(Schedule(actor_system.owner(), "session", 2000))
    actor_system.actor.on_stop()
    assert actor_system.alarm.due_ms is None


@pytest.mark.parametrize("seed", range(3))
def test_random_deadlines_are_delivered_on_time(actor_system: TimerHarness, seed: int) -> None:
    """Random owners schedule, move and cancel deadlines over hours. The others are delivered on time."""
    rng = random.Random(seed)
    owners = [actor_system.owner() for _ in range(8)]
    scheduled: dict[tuple[int, int], int] = {}
    delivered = 0
    for _ in range(5000):
        number, name = rng.randrange(8), rng.randrange(6)
        due_ms = actor_system.clock.now_ms + rng.choice(
            (0, rng.randrange(100), rng.randrange(50_000), rng.randrange(10**7))
        )
        if rng.random() < 0.7:
            actor_system.tell(Schedule(owners[number], name, due_ms))
            scheduled[number, name] = due_ms
        else:
            actor_system.tell(Cancel(owners[number], name))
            scheduled.pop((number, name), None)
        actor_system.advance_to(actor_system.clock.now_ms + rng.choice((0, 0, 1, rng.randrange(3000))))
        for number, owner in enumerate(owners):
            for at_ms, names in owner.heard:
                for expired_name in names:
                    due_ms = scheduled.pop((number, int(str(expired_name))))
                    assert at_ms == due_ms
                    delivered += 1
            owner.heard.clear()
        assert all(due_ms > actor_system.clock.now_ms for due_ms in scheduled.values())
    assert delivered > 1000


class Handle:
    """The result of ``call_later``."""

    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_live = True

    def cancel(self) -> None:
        self.is_live = False


class FakeLoop:
    """The part of an event loop that an alarm uses. It stores handles that were not cancelled."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.handles: list[Handle] = []

    def call_later(self, in_s: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(Handle(self.clock.now_ms / 1000 + in_s, callback))
        return self.handles[-1]

    def live(self) -> list[Handle]:
        self.handles = [handle for handle in self.handles if handle.is_live]
        return self.handles

    def run_until(self, until_ms: int) -> Iterator[None]:
        """Run the handles in order of their time; yields after each."""
        while due_handles := [handle for handle in self.live() if handle.at_s <= until_ms / 1000]:
            handle = min(due_handles, key=lambda pending: pending.at_s)
            handle.is_live = False
            self.clock.now_ms = max(self.clock.now_ms, round(handle.at_s * 1000))
            handle.callback()
            yield
        self.clock.now_ms = max(self.clock.now_ms, until_ms)


@pytest.mark.parametrize("seed", range(3))
def test_all_deadlines_use_one_loop_timer(seed: int) -> None:
    """With the real alarm: the loop has one handle, or none if there are no deadlines."""
    rng = random.Random(seed)
    clock = FakeClock(1000)
    loop = FakeLoop(clock)
    alarm = LoopAlarm(cast(AbstractEventLoop, loop), clock)
    with running_on(Simulation()):
        timer = TimerActor(clock, alarm)
    alarm.actor = cast(Any, SimpleNamespace(tell=timer.on_receive))
    owners = [Owner(clock) for _ in range(20)]
    for _ in range(2000):
        owner, name = rng.choice(owners), rng.randrange(10)
        if rng.random() < 0.7:
            timer.on_receive(Schedule(owner, name, clock.now_ms + rng.choice((rng.randrange(300), 10**5, 10**6))))
        else:
            timer.on_receive(Cancel(owner, name))
        assert len(loop.live()) <= 1
        assert loop.live() or not len(timer._timers), "deadlines without a loop timer"
        for _ in loop.run_until(clock.now_ms + rng.choice((0, 0, 7, 10**4))):
            assert len(loop.live()) <= 1
    assert sum(len(owner.heard) for owner in owners) > 100
    timer.on_stop()
    assert loop.live() == []


@pytest.mark.parametrize("seed", range(3))
def test_pop_expired_at_every_millisecond_is_on_time(seed: int) -> None:
    """``Timers`` alone: neither early nor late, for near and far deadlines."""
    rng = random.Random(seed)
    timers = Timers(0)
    due_ms: dict[tuple[int, int], int] = {}
    expired_count = 0
    for now_ms in range(100_000):
        for owner, names in timers.pop_expired(now_ms).items():
            for name in names:
                assert due_ms.pop((owner, int(str(name)))) == now_ms
                expired_count += 1
        for _ in range(rng.randrange(3)):
            key = rng.randrange(30), rng.randrange(30)
            if rng.random() < 0.2:
                assert timers.cancel(*key) == (due_ms.pop(key, None) is not None)
            else:  # after this tick's turn, so deadlines begin at the next tick
                due_ms[key] = now_ms + 1 + rng.choice((rng.randrange(50), rng.randrange(100_000), 10**7))
                timers.schedule(*key, due_ms[key])
        assert len(timers) == len(due_ms)
    assert expired_count > 1000
    assert all(due_at_ms > now_ms for due_at_ms in due_ms.values()), "remaining deadlines are not due"
    timers.check()


def test_map_and_wheel_stay_consistent() -> None:
    """``Timers`` alone, with its invariants checked after every step."""
    rng = random.Random(1)
    timers = Timers(0)
    now_ms = 0
    for _ in range(2000):
        owner, name = rng.randrange(5), rng.randrange(5)
        kind = rng.randrange(10)
        if kind < 6:
            timers.schedule(owner, name, now_ms + rng.randrange(200_000))
        elif kind == 6:
            count_before = len(timers)
            assert timers.cancel(owner, name) == (len(timers) < count_before)
        elif kind == 7:
            timers.remove_owner(owner)
            assert not timers.cancel(owner, name)
        else:
            now_ms += rng.randrange(20_000)
            timers.pop_expired(now_ms, rng.choice((None, 1, 3)))
        if rng.randrange(20) == 0:
            timers.check()
    timers.pop_expired(now_ms + 10**6)
    timers.check()
    assert len(timers) == 0
    assert timers.next_due_ms() is None
