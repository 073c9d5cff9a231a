"""The TimerActor: owners hear of each deadline once, never early, one message a turn; one wake-up serves them all."""

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

Heard = list[tuple[int, tuple[Hashable, ...]]]


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
    """Stands for an ActorRef: it is told, and notes when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.heard: Heard = []
        self.is_dead = False

    def tell(self, message: Expired) -> None:
        if self.is_dead:
            raise pykka.ActorDeadError("gone")
        self.heard.append((self.clock.now_ms, message.names))


class Stage:
    """A TimerActor whose clock and alarm are in our hands."""

    def __init__(self, now_ms: int = 1000) -> None:
        self.clock = FakeClock(now_ms)
        self.alarm = FakeAlarm()
        self.actor = TimerActor(self.clock, self.alarm)

    def owner(self) -> Owner:
        return Owner(self.clock)

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.actor.on_receive(message)

    def ring(self) -> None:
        """The alarm goes off: at its time, or now when that is past."""
        assert self.alarm.due_ms is not None
        self.clock.now_ms = max(self.clock.now_ms, self.alarm.due_ms)
        self.alarm.due_ms = None
        self.tell(Wake())

    def play(self, until_ms: int) -> None:
        while self.alarm.due_ms is not None and self.alarm.due_ms <= until_ms:
            self.ring()
        self.clock.now_ms = max(self.clock.now_ms, until_ms)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_on(Simulation()):
        yield Stage()


def test_an_owner_hears_of_its_deadline_when_it_is_due_and_only_once(stage: Stage) -> None:
    owner = stage.owner()
    stage.tell(Schedule(owner, "session", 46_000))
    stage.play(45_999)
    assert owner.heard == []
    stage.play(10**9)
    assert owner.heard == [(46_000, ("session",))]
    assert stage.alarm.due_ms is None


@pytest.mark.parametrize("due_ms", [2001, 2009, 2010, 47_001, 47_009])
def test_a_deadline_is_told_at_its_millisecond(stage: Stage, due_ms: int) -> None:
    """Near or far, round or not: a client may sleep for its session timeout and then look."""
    owner = stage.owner()
    stage.tell(Schedule(owner, "session", due_ms))
    stage.play(due_ms - 1)
    stage.tell(Wake())
    assert owner.heard == []
    stage.play(due_ms)
    assert owner.heard == [(due_ms, ("session",))]


def test_all_names_of_an_owner_come_in_one_message(stage: Stage) -> None:
    """In order of their deadlines; each owner gets its own."""
    one, two = stage.owner(), stage.owner()
    stage.tell(Schedule(one, "b", 2020), Schedule(two, "x", 2000), Schedule(one, "a", 2010))
    stage.clock.now_ms = 5000
    stage.ring()
    assert one.heard == [(5000, ("a", "b"))]
    assert two.heard == [(5000, ("x",))]


def test_a_deadline_of_the_same_name_replaces_the_one_before(stage: Stage) -> None:
    one, two = stage.owner(), stage.owner()
    stage.tell(Schedule(one, "session", 2000), Schedule(two, "session", 4000), Schedule(one, "session", 3000))
    stage.play(5000)
    assert one.heard == [(3000, ("session",))]
    assert two.heard == [(4000, ("session",))]


def test_a_cancelled_deadline_is_not_heard_of(stage: Stage) -> None:
    """Neither is one cancelled that was never filed, or twice."""
    owner = stage.owner()
    stage.tell(Schedule(owner, "session", 2000), Schedule(owner, "rebalance", 3000))
    stage.tell(Cancel(owner, "session"), Cancel(owner, "session"), Cancel(stage.owner(), "session"))
    stage.play(5000)
    assert owner.heard == [(3000, ("rebalance",))]


def test_the_alarm_is_set_only_to_an_earlier_deadline_or_after_it_rang(stage: Stage) -> None:
    owner = stage.owner()
    for name, due_ms in enumerate((5000, 6000, 5000, 4000, 4500)):
        stage.tell(Schedule(owner, name, due_ms))
    stage.tell(Cancel(owner, 3))
    assert stage.alarm.settings == [5000, 4000]
    stage.play(10_000)
    assert stage.alarm.settings == [5000, 4000, 4500, 5000, 6000]
    assert [names for _, names in owner.heard] == [(4,), (0, 2), (1,)]


def test_the_alarm_is_not_set_again_to_the_same_time(stage: Stage) -> None:
    owner = stage.owner()
    stage.tell(Schedule(owner, "a", 2001), Schedule(owner, "b", 2001), Schedule(stage.owner(), "a", 2001))
    assert stage.alarm.settings == [2001]


def test_a_wake_up_for_nothing_does_no_harm(stage: Stage) -> None:
    owner = stage.owner()
    stage.tell(Wake())
    assert stage.alarm.settings == []
    stage.tell(Schedule(owner, "session", 2000), Wake(), Wake())
    assert owner.heard == []
    stage.play(2000)
    assert owner.heard == [(2000, ("session",))]


def test_a_deadline_in_the_past_is_told_at_once(stage: Stage) -> None:
    owner = stage.owner()
    stage.tell(Schedule(owner, "session", 3))
    stage.play(stage.clock.now_ms)
    assert owner.heard == [(1000, ("session",))]


def test_a_crowd_is_told_over_several_turns(stage: Stage) -> None:
    """A turn is bounded; the alarm rings again at once, so that others have their turns between."""
    owners = [stage.owner() for _ in range(2 * TURN_LIMIT + 1)]
    stage.tell(*(Schedule(owner, "session", 2000) for owner in owners))
    told = []
    while stage.alarm.due_ms is not None:
        stage.ring()
        told.append(sum(len(owner.heard) for owner in owners))
    assert told == [TURN_LIMIT, 2 * TURN_LIMIT, 2 * TURN_LIMIT + 1]
    assert stage.clock.now_ms == 2000


def test_a_dead_owner_is_forgotten_and_the_others_are_told(stage: Stage) -> None:
    dead, alive = stage.owner(), stage.owner()
    dead.is_dead = True
    stage.tell(Schedule(dead, "session", 2000), Schedule(dead, "later", 9000), Schedule(alive, "session", 2000))
    stage.play(2000)
    assert alive.heard == [(2000, ("session",))]
    assert stage.alarm.due_ms is None, "nobody waits for what the dead had filed"


def test_an_owner_may_file_again_when_it_is_told(stage: Stage) -> None:
    """As groups do for members whose heartbeats have moved their deadlines."""
    owner = stage.owner()
    stage.tell(Schedule(owner, "session", 2000))
    stage.play(2000)
    stage.tell(Schedule(owner, "session", 3500))
    stage.play(4000)
    assert owner.heard == [(2000, ("session",)), (3500, ("session",))]


def test_the_alarm_is_cleared_when_the_actor_stops(stage: Stage) -> None:
    stage.tell(Schedule(stage.owner(), "session", 2000))
    stage.actor.on_stop()
    assert stage.alarm.due_ms is None


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_early_late_or_left_out(stage: Stage, seed: int) -> None:
    """Random owners file, move and cancel over hours; each deadline that stood is told on time, and no other."""
    rnd = random.Random(seed)
    owners = [stage.owner() for _ in range(8)]
    wanted: dict[tuple[int, int], int] = {}
    told = 0
    for _ in range(5000):
        number, name = rnd.randrange(8), rnd.randrange(6)
        due_ms = stage.clock.now_ms + rnd.choice((0, rnd.randrange(100), rnd.randrange(50_000), rnd.randrange(10**7)))
        if rnd.random() < 0.7:
            stage.tell(Schedule(owners[number], name, due_ms))
            wanted[number, name] = due_ms
        else:
            stage.tell(Cancel(owners[number], name))
            wanted.pop((number, name), None)
        stage.play(stage.clock.now_ms + rnd.choice((0, 0, 1, rnd.randrange(3000))))
        for number, owner in enumerate(owners):
            for at_ms, names in owner.heard:
                for heard in names:
                    due_ms = wanted.pop((number, int(str(heard))))
                    assert at_ms == due_ms
                    told += 1
            owner.heard.clear()
        assert all(due_ms > stage.clock.now_ms for due_ms in wanted.values())
    assert told > 1000


class Handle:
    """What ``call_later`` gives."""

    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_live = True

    def cancel(self) -> None:
        self.is_live = False


class FakeLoop:
    """An event loop as far as an alarm needs it: it keeps what was asked for and not cancelled."""

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
        """Let the handles run in order of their time; yields after each."""
        while due := [handle for handle in self.live() if handle.at_s <= until_ms / 1000]:
            handle = min(due, key=lambda each: each.at_s)
            handle.is_live = False
            self.clock.now_ms = max(self.clock.now_ms, round(handle.at_s * 1000))
            handle.callback()
            yield
        self.clock.now_ms = max(self.clock.now_ms, until_ms)


@pytest.mark.parametrize("seed", range(3))
def test_one_wake_up_on_the_loop_serves_all(seed: int) -> None:
    """The real alarm: whatever is filed, moved, cancelled or due, the loop holds one handle, or none for nobody."""
    rnd = random.Random(seed)
    clock = FakeClock(1000)
    loop = FakeLoop(clock)
    alarm = LoopAlarm(cast(AbstractEventLoop, loop), clock)
    with running_on(Simulation()):
        timer = TimerActor(clock, alarm)
    alarm.actor = cast(Any, SimpleNamespace(tell=timer.on_receive))
    owners = [Owner(clock) for _ in range(20)]
    for _ in range(2000):
        owner, name = rnd.choice(owners), rnd.randrange(10)
        if rnd.random() < 0.7:
            timer.on_receive(Schedule(owner, name, clock.now_ms + rnd.choice((rnd.randrange(300), 10**5, 10**6))))
        else:
            timer.on_receive(Cancel(owner, name))
        assert len(loop.live()) <= 1
        assert loop.live() or not len(timer._timers), "somebody waits and nobody would wake up"
        for _ in loop.run_until(clock.now_ms + rnd.choice((0, 0, 7, 10**4))):
            assert len(loop.live()) <= 1
    assert sum(len(owner.heard) for owner in owners) > 100
    timer.on_stop()
    assert loop.live() == []


@pytest.mark.parametrize("seed", range(3))
def test_who_asks_at_every_millisecond_hears_on_time(seed: int) -> None:
    """The pure part alone: neither early nor late, whatever lies between, near or hours away."""
    rnd = random.Random(seed)
    timers = Timers(0)
    due_ms: dict[tuple[int, int], int] = {}
    heard = 0
    for now_ms in range(100_000):
        for owner, names in timers.expired(now_ms).items():
            for name in names:
                assert due_ms.pop((owner, int(str(name)))) == now_ms
                heard += 1
        for _ in range(rnd.randrange(3)):
            key = rnd.randrange(30), rnd.randrange(30)
            if rnd.random() < 0.2:
                assert timers.cancel(*key) == (due_ms.pop(key, None) is not None)
            else:  # after this tick's turn: the present is over
                due_ms[key] = now_ms + 1 + rnd.choice((rnd.randrange(50), rnd.randrange(100_000), 10**7))
                timers.schedule(*key, due_ms[key])
        assert len(timers) == len(due_ms)
    assert heard > 1000
    assert all(due > now_ms for due in due_ms.values()), "what is still filed is not due"
    timers.check()


def test_timers_keep_map_and_wheel_together() -> None:
    """The pure part, step by step, with its own invariants."""
    rnd = random.Random(1)
    timers = Timers(0)
    now_ms = 0
    for _ in range(2000):
        owner, name = rnd.randrange(5), rnd.randrange(5)
        kind = rnd.randrange(10)
        if kind < 6:
            timers.schedule(owner, name, now_ms + rnd.randrange(200_000))
        elif kind == 6:
            before = len(timers)
            assert timers.cancel(owner, name) == (len(timers) < before)
        elif kind == 7:
            timers.forget(owner)
            assert not timers.cancel(owner, name)
        else:
            now_ms += rnd.randrange(20_000)
            timers.expired(now_ms, rnd.choice((None, 1, 3)))
        if rnd.randrange(20) == 0:
            timers.check()
    timers.expired(now_ms + 10**6)
    timers.check()
    assert len(timers) == 0
    assert timers.next_due_ms() is None
