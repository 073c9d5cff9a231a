"""The timing wheel compared with a sorted list: the same steps return the same deadlines in the same order.

Small wheels (pages of one to eight ticks) cross every boundary within a few steps; larger ones, up to the default size,
run the same steps scaled to their pages. A failure names the seed.

The random walks have 200,000 steps in total; ``CALLBOARD_WHEEL_STEPS`` sets the number (about 8 s per million), and
``CALLBOARD_WHEEL_SEED`` selects other walks. ``make soak`` runs many.
"""

from __future__ import annotations

import os
import random
import sys
from bisect import insort
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.timer import wheel as wheel_module
from callboard.actors.timer.wheel import PAGE_BITS, PAGES, SPREAD, Timer, TimingWheel

DAY_TICKS = 24 * 3600 * 1000
CENTURY_TICKS = 36525 * DAY_TICKS

FIRST_SEED = 5 * int(os.environ.get("CALLBOARD_WHEEL_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + 5)
SMALL_WALKS = [(bits, spread, seed) for bits in (0, 1, 2, 3) for spread in (1, 2, 7) for seed in SEEDS]
LARGE_WALKS = [
    (bits, spread, seed) for bits, spread in ((5, 3), (8, 50), (PAGE_BITS, 2), (PAGE_BITS, SPREAD)) for seed in SEEDS
]
STEPS = int(os.environ.get("CALLBOARD_WHEEL_STEPS", "200000"))
STEPS_A_WALK = -(-STEPS // len(SMALL_WALKS + LARGE_WALKS))


class WheelAndModel:
    """A wheel and its model, a list of (due tick, serial number, name); each step is applied to both."""

    def __init__(self, names: int, page_bits: int, spread: int, now: int = 0) -> None:
        self.wheel = TimingWheel(now, page_bits, spread)
        self.model: list[tuple[int, int, int]] = []
        self.deadlines = [Timer("owner", name) for name in range(names)]
        self.keys: dict[int, tuple[int, int, int]] = {}
        self.serial = 0
        self.now = now

    def add(self, name: int, due: int) -> None:
        deadline = self.deadlines[name]
        self.wheel.add(deadline, due)
        if name in self.keys:
            self.model.remove(self.keys[name])
        assert due <= deadline.due_tick <= max(due, self.now)
        self.serial += 1
        self.keys[name] = key = (deadline.due_tick, self.serial, name)
        insort(self.model, key)

    def cancel(self, name: int) -> None:
        key = self.keys.pop(name, None)
        assert self.wheel.cancel(self.deadlines[name]) == (key is not None)
        if key:
            self.model.remove(key)

    def renew(self, name: int, due: int) -> None:
        """Move a scheduled deadline."""
        if name in self.keys:
            self.add(name, due)

    def advance(self, now: int, limit: int | None = None) -> None:
        given_names = [deadline.name for deadline in self.wheel.advance(now, limit)]
        self.now = max(self.now, now)
        due = [name for due, _, name in self.model if due <= now][:limit]
        assert given_names == due[: len(given_names)]
        del self.model[: len(given_names)]
        for name in due[: len(given_names)]:
            del self.keys[name]
        if len(given_names) < len(due):
            assert limit is not None, "without a limit all due deadlines must be returned"
            assert self.next_tick() <= now, "deadlines beyond the limit are due now"

    def catch_up(self, now: int, limit: int) -> None:
        """Advance in bounded calls until no due deadline is left, as an owner does after a stall."""
        calls, spread, scheduled_count = 0, self.wheel._spread, len(self.model)
        while self.model and self.model[0][0] <= now:
            self.advance(now, limit)
            calls += 1
            assert calls <= 2 * scheduled_count + scheduled_count // spread + 1, (
                "a call that returns no deadline must move a page"
            )

    def next_tick(self) -> int:
        tick = self.wheel.next_tick()
        assert tick is not None
        return tick

    def check(self) -> None:
        assert len(self.wheel) == len(self.model)
        if self.model:
            assert self.next_tick() <= self.model[0][0], "the next tick is later than the first deadline"
        else:
            assert self.wheel.next_tick() is None
        self.wheel.check()

    def drain(self) -> None:
        """Advance until all scheduled deadlines are returned."""
        self.advance(self.model[-1][0] if self.model else self.now)
        assert len(self.wheel) == 0
        self.check()


class Steps:
    """Random steps, mostly at page boundaries, at equal ticks, in bursts and with jumps."""

    def __init__(self, seed: int, wheel_and_model: WheelAndModel, page: int) -> None:
        self.random = random.Random(seed)
        self.pair = wheel_and_model
        self.page = page

    def due(self) -> int:
        rng, now, page = self.random, self.pair.now, self.page
        kind = rng.randrange(8)
        if kind == 0:
            return now + rng.randint(-3, 3)
        if kind < 4:
            return now + rng.randrange(page * PAGES)
        if kind < 6:
            return (now // page + rng.randrange(PAGES + 3)) * page + rng.randint(-1, 1)
        if kind == 6 and self.pair.model:
            return rng.choice(self.pair.model)[0]
        return now + rng.randrange(rng.choice((100 * page, 7 * DAY_TICKS)))

    def jump(self) -> int:
        rng, wheel_and_model, page = self.random, self.pair, self.page
        kind = rng.randrange(400)
        if kind < 200:
            return wheel_and_model.now + rng.randrange(3)
        if kind < 260 and wheel_and_model.model:
            return wheel_and_model.next_tick()
        if kind < 340:
            return (wheel_and_model.now // page + 1) * page + rng.randint(-1, 1)
        if kind < 390:
            return wheel_and_model.now + rng.randrange(page * 2)
        return wheel_and_model.now + rng.choice((-page, -1, page * PAGES, page * (PAGES + 1), DAY_TICKS))

    def stall(self) -> int:
        """The process was suspended for about the length of the ring, or for days."""
        ring_ticks = self.page * PAGES
        return self.pair.now + self.random.choice(
            (ring_ticks - 1, ring_ticks, ring_ticks + 1, 2 * ring_ticks, 3 * DAY_TICKS)
        )

    def step(self) -> None:
        rng, wheel_and_model = self.random, self.pair
        name = rng.randrange(len(wheel_and_model.deadlines))
        kind = rng.randrange(400)
        if kind < 170:
            wheel_and_model.add(name, self.due())
        elif kind < 200:
            wheel_and_model.renew(name, self.due())
        elif kind < 215:
            due = self.due()
            for _ in range(rng.randrange(len(wheel_and_model.deadlines) // 3)):
                wheel_and_model.add(rng.randrange(len(wheel_and_model.deadlines)), due)
        elif kind < 270:
            wheel_and_model.cancel(name)
        elif kind < 335:
            wheel_and_model.advance(self.jump(), rng.choice((1, 2, 5)))
        elif kind < 398:
            wheel_and_model.advance(self.jump())
        elif kind < 399:
            wheel_and_model.catch_up(self.stall(), rng.choice((1, 2, 5)))
        else:
            wheel_and_model.advance(self.stall())


def run_random_steps(page_bits: int, spread: int, seed: int, names: int, check_every: int) -> None:
    wheel_and_model = WheelAndModel(names, page_bits, spread, now=seed * 1_000_003 - 20)
    steps = Steps(seed, wheel_and_model, 1 << page_bits)
    for number in range(STEPS_A_WALK):
        try:
            steps.step()
            if number % check_every == 0:
                wheel_and_model.check()
        except AssertionError as error:
            raise AssertionError(f"{page_bits=}, {spread=}, {seed=}, step {number}: {error}") from error
    wheel_and_model.drain()


@pytest.mark.parametrize(("page_bits", "spread", "seed"), SMALL_WALKS)
def test_small_wheel_equals_sorted_list(page_bits: int, spread: int, seed: int) -> None:
    run_random_steps(page_bits, spread, seed, names=40, check_every=5)


@pytest.mark.parametrize(("page_bits", "spread", "seed"), LARGE_WALKS)
def test_large_wheel_equals_sorted_list(page_bits: int, spread: int, seed: int) -> None:
    """Up to the default size. Checking its ring is slow, so it is checked less often."""
    run_random_steps(page_bits, spread, seed, names=200, check_every=1 << min(page_bits, 8))


NAMES = st.integers(0, 5)
STEP_TUPLES = st.one_of(
    st.tuples(st.just("add"), NAMES, st.integers(-2, 40)),
    st.tuples(st.just("cancel"), NAMES),
    st.tuples(st.just("advance"), st.integers(-1, 30), st.sampled_from([None, 1, 2])),
)


@settings(max_examples=300)
@given(st.lists(STEP_TUPLES, max_size=30))
def test_random_steps_return_deadlines_in_order(steps: list[tuple[str, int, int]]) -> None:
    """Compares wheel and list with steps from hypothesis, which shrinks a failing sequence."""
    wheel_and_model = WheelAndModel(6, page_bits=1, spread=1)
    for step, value, *more_values in steps:
        if step == "add":
            wheel_and_model.add(value, wheel_and_model.now + more_values[0])
        elif step == "cancel":
            wheel_and_model.cancel(value)
        else:
            wheel_and_model.advance(wheel_and_model.now + value, more_values[0])
        wheel_and_model.check()
    wheel_and_model.drain()


def test_waiting_for_next_tick_is_never_late_and_rarely_early() -> None:
    """Advancing to the next tick returns each deadline at its tick, with at most one idle call per page or spread."""
    rng = random.Random(3)
    wheel = TimingWheel(0, page_bits=4, spread=4)
    due_ticks = [*sorted(rng.randrange(5000) for _ in range(300)), DAY_TICKS, 30 * DAY_TICKS]
    for due_tick in due_ticks:
        wheel.add(Timer(None, due_tick), due_tick)
    returned_at = []
    calls = 0
    while (tick := wheel.next_tick()) is not None:
        calls += 1
        returned_at += [(tick, deadline.name) for deadline in wheel.advance(tick)]
    assert returned_at == [(due_tick, due_tick) for due_tick in due_ticks]
    assert calls <= len(set(due_ticks)) + len({due_tick >> 4 for due_tick in due_ticks}) + len(due_ticks) / 4


class MoveCountingWheel(TimingWheel):
    """Counts the deadlines that move from the upper level to the ring."""

    moved = 0

    def _lower_list(self, head: Timer, budget: int) -> int:
        moved = super()._lower_list(head, budget)
        self.moved += moved
        return moved


def test_full_page_moves_down_in_small_steps() -> None:
    """20,000 deadlines at one far tick: each call moves at most ``spread``, and all are in the ring in time."""
    wheel = MoveCountingWheel()
    due = 50 << PAGE_BITS
    for name in range(20_000):
        wheel.add(Timer(None, name), due)
    assert wheel.next_tick() == (50 - PAGES + 1) << PAGE_BITS, "moving begins before the page of the deadlines"
    while (tick := wheel.next_tick()) is not None and tick < due:
        moved_before = wheel.moved
        assert wheel.advance(tick) == []
        assert 0 < wheel.moved - moved_before <= SPREAD
        assert wheel.next_tick() != tick, "the remaining deadlines move at later ticks"
    moved_before = wheel.moved
    assert [deadline.name for deadline in wheel.advance(due)] == list(range(20_000))
    assert moved_before == wheel.moved == 20_000


def test_consecutive_full_pages_share_one_budget() -> None:
    """A jump brings several pages into range at once; a call still moves at most ``spread``."""
    wheel = MoveCountingWheel(0, page_bits=3, spread=100)
    for name in range(384):
        wheel.add(Timer(None, name), 1000 + name % 32)
    assert wheel.advance(999, limit=1) == []
    assert wheel.moved == 100


def test_limit_bounds_work_after_long_pause() -> None:
    """After a pause beyond a full page each call moves and returns little, and the order is preserved."""
    wheel = MoveCountingWheel(0, page_bits=3, spread=10)
    for name in range(1000):
        wheel.add(Timer(None, name), 1000 + name % 8)
    names: list[object] = []
    calls = 0
    while (tick := wheel.next_tick()) is not None and tick <= 5000:
        calls += 1
        returned = wheel.advance(5000, limit=7)
        assert len(returned) <= 7
        assert wheel.moved <= 2 * 10 * calls
        names += [deadline.name for deadline in returned]
    assert names == sorted(range(1000), key=lambda name: name % 8)
    assert calls >= 1000 / 7


def lines_run(call: Callable[[], object]) -> int:
    """The number of lines of the wheel's code that a call executes. Loops show in it, even fast ones."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != wheel_module.__file__:
            return None
        count += event == "line"
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous_trace)
    return count


def test_line_counter_counts_every_line() -> None:
    """Checks ``lines_run`` for the next tests: one more deadline executes more lines."""

    def lines(count: int) -> int:
        wheel = TimingWheel()
        for name in range(count):
            wheel.add(Timer(None, name), name)
        return lines_run(lambda: wheel.advance(count))

    assert lines(10) >= lines(9) + 10
    assert lines(100) >= 100 * 10


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("scheduled_count", [(), (10**15,), (10**15, 10**15 + 1, 10**16)])
def test_cost_of_empty_time_is_constant(scheduled_count: tuple[int, ...], limit: int | None) -> None:
    """A day and a century execute the same small number of lines and visit no deadline."""

    def lines(span: int) -> int:
        wheel = TimingWheel()
        for due in scheduled_count:
            wheel.add(Timer(None, due), due)
        line_count = lines_run(lambda: wheel.advance(span, limit))
        assert len(wheel) == len(scheduled_count)
        wheel.check()
        return line_count

    assert lines(DAY_TICKS) == lines(CENTURY_TICKS) < 60
    assert lines(1) < 60


def test_cost_of_time_depends_only_on_deadlines() -> None:
    """A hundred single deadlines execute the same number of lines, spread over a day or a century."""

    def lines(count: int, span: int) -> int:
        wheel = TimingWheel()
        for name in range(count):
            wheel.add(Timer(None, name), (name + 1) * span // count)
        returned: list[Timer] = []
        line_count = lines_run(lambda: returned.extend(wheel.advance(span)))
        assert [deadline.name for deadline in returned] == list(range(count))
        return line_count

    assert lines(300, DAY_TICKS) == pytest.approx(3 * lines(100, DAY_TICKS), rel=0.01)
    assert lines(300, CENTURY_TICKS) == pytest.approx(lines(300, DAY_TICKS), rel=0.01)


def test_cost_of_add_move_and_cancel_is_constant() -> None:
    """The cost is O(1): 100,000 other deadlines (near, far, at the same tick) do not change it."""

    def lines(other_count: int, due_tick: int) -> tuple[int, int, int]:
        wheel = TimingWheel()
        for name in range(other_count):
            wheel.add(Timer(None, name), (due_tick, name % 5000, DAY_TICKS + name)[name % 3])
        wheel.add(Timer(None, "so that the list is not empty"), due_tick)
        deadline = Timer(None, "session")
        return (
            lines_run(lambda: wheel.add(deadline, due_tick)),
            lines_run(lambda: wheel.add(deadline, due_tick)),
            lines_run(lambda: wheel.cancel(deadline)),
        )

    for due_tick in (3000, DAY_TICKS // 2):
        assert lines(0, due_tick) == lines(100_000, due_tick)


def test_advance_far_ahead() -> None:
    """A loop over these ticks, or even over their pages, would not end."""
    wheel = TimingWheel()
    wheel.advance(10**15)
    deadline = Timer(None, "far")
    wheel.add(deadline, 10**18)
    assert wheel.advance(10**18 - 1) == []
    assert wheel.next_tick() == 10**18
    assert wheel.advance(10**18) == [deadline]


def test_deadline_in_past_is_returned_by_next_advance() -> None:
    wheel = TimingWheel(100)
    wheel.advance(100)
    past, present = Timer(None, "late"), Timer(None, "now")
    wheel.add(past, 5)
    wheel.add(present, 100)
    assert wheel.next_tick() == 100
    assert wheel.advance(100) == [past, present]


def test_add_moves_scheduled_deadline() -> None:
    wheel = TimingWheel()
    deadline = Timer(None, "session")
    for due in (10, 10**9, 5, 20):
        wheel.add(deadline, due)
    assert len(wheel) == 1
    assert wheel.advance(19) == []
    assert wheel.advance(20) == [deadline]
    assert deadline not in wheel
    wheel.add(deadline, 30)
    assert deadline in wheel
    assert wheel.advance(30) == [deadline]


def test_cancelled_deadline_is_not_returned() -> None:
    wheel = TimingWheel()
    near_deadline, far_deadline = Timer(None, "near"), Timer(None, "far")
    wheel.add(near_deadline, 3)
    wheel.add(far_deadline, DAY_TICKS)
    assert wheel.cancel(near_deadline)
    assert wheel.cancel(far_deadline)
    assert not wheel.cancel(far_deadline)
    wheel.check()
    assert wheel.next_tick() is None
    assert wheel.advance(2 * DAY_TICKS) == []


def test_advance_to_earlier_tick_returns_nothing() -> None:
    wheel = TimingWheel()
    wheel.advance(500)
    deadline = Timer(None, "session")
    wheel.add(deadline, 400)
    assert wheel.advance(450) == []
    assert wheel.advance(500) == [deadline]


@pytest.mark.parametrize("due", [3000, DAY_TICKS])
def test_deadlines_of_one_tick_share_one_int(due: int) -> None:
    """Saves 32 bytes per deadline, in the ring and in the upper level."""
    wheel = TimingWheel()
    first_deadline, second_deadline = Timer(None, 1), Timer(None, 2)
    wheel.add(first_deadline, int(str(due)))
    wheel.add(second_deadline, int(str(due)))
    assert first_deadline.due_tick is second_deadline.due_tick


@pytest.mark.parametrize("limit", [0, -1])
def test_advance_with_limit_0_raises(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit is {limit}; expected at least 1"):
        TimingWheel().advance(1, limit)


def test_check_finds_deadline_in_wrong_slot() -> None:
    """Checks that ``check`` fails if an invariant is violated."""
    wheel = TimingWheel()
    deadline = Timer(None, "session")
    wheel.add(deadline, 10)
    wheel.check()
    deadline.due_tick = 11
    with pytest.raises(AssertionError, match="due at 11, in slot 10"):
        wheel.check()
