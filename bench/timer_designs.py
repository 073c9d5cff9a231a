"""The designs that ``callboard bench timers`` compares, and the measurement of one design in a process of its own.

``python -m callboard.bench.timer_designs DESIGN WORK COUNT`` prints its figures as a line of JSON. Every design gets
the same deadlines, and every expiry is checked: each timer must expire exactly once, at its tick.

Deadlines are in ticks of a millisecond. They are read from arrays, so that the numbers that a design keeps are
measured as its own memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from time import perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple

from sortedcontainers import SortedDict

from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.timer.timers import Timers
from callboard.actors.timer.wheel import Timer, TimingWheel
from callboard.bench.harness import BenchError, resident_bytes

TICK_S = 0.001
DAY_TICKS = 24 * 3600 * 1000
NAMES_AN_OWNER = 10  # of Timers: members of a group
RENEWAL_TICKS_MAX = 3000  # a heartbeat comes every 3 s
APPROACH_TICKS = 70_000  # simulated before the first deadline; the wheel's ring begins to fill 65,536 ticks before
JUMPS = 1000
FAR_FUTURE_TICK = 10**12
SEED = 5


class TimerWorkload(NamedTuple):
    """When deadlines are due, in ticks.

    ``in_order``: scheduled in the order of expiry, as deadlines with one timeout are. ``waits_for_next``: the owner
    waits for the next deadline instead of checking each tick.
    """

    first: int
    last: int
    in_order: bool = False
    waits_for_next: bool = False


WORKS = {
    "near": TimerWorkload(5_000, 45_000),
    "hour": TimerWorkload(3_605_000, 3_645_000, in_order=True),
    "week": TimerWorkload(1, 7 * DAY_TICKS, waits_for_next=True),
}
EMPTY = "empty"


class TimerDesign:
    """Base of all designs. ``add`` schedules or moves an item, ``drop`` cancels one; both are called directly."""

    items: Sequence[Any]
    add: Callable[[Any, int], object]
    drop: Callable[[Any], object]

    def fill(self, dues: Iterable[int]) -> None:
        add = self.add
        for item, due in zip(self.items, dues, strict=True):
            add(item, due)

    def renew(self, order: Iterable[int], dues: Sequence[int]) -> None:
        add, items = self.add, self.items
        for name in order:
            add(items[name], dues[name])

    def cancel(self, order: Iterable[int]) -> None:
        drop, items = self.drop, self.items
        for name in order:
            drop(items[name])

    def advance(self, tick: int) -> Any:
        """Remove and return the items that are due; ``names`` gives their names."""
        raise NotImplementedError

    def names(self, fired: Any) -> list[int]:
        return [item.name for item in fired]

    def next_tick(self) -> int | None:
        raise NotImplementedError

    def close(self) -> None:
        """Release resources."""


class TimerItem:
    """An owner's object for a deadline. Designs that store more in it have a subclass."""

    __slots__ = ("name", "owner")

    def __init__(self, name: int) -> None:
        self.owner = None
        self.name = name


class Objects(TimerDesign):
    """Objects that are not scheduled: the baseline for memory and for the cost of the measuring loop."""

    def __init__(self, count: int) -> None:
        self.items = [TimerItem(name) for name in range(count)]
        self.add = lambda item, due: item.name
        self.drop = lambda item: item.name


class Wheel(TimerDesign):
    """``actors/timer/wheel.py``."""

    items: list[Timer]

    def __init__(self, count: int) -> None:
        self.wheel = TimingWheel()
        self.items = [Timer(None, name) for name in range(count)]
        self.add = self.wheel.add
        self.drop = self.wheel.cancel
        self.next_tick = self.wheel.next_tick  # type: ignore[method-assign]

    def advance(self, tick: int) -> list[Timer]:
        return self.wheel.advance(tick)


class LazyWheel(Wheel):
    """The wheel with ``Deadline``: renewal changes a number, and an early expiry is rescheduled."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        for item in self.items:
            item.owner = Deadline(item.name)
        self.effects = Effects()
        self.add = self.set_deadline
        self.drop = self.cancel_deadline

    def set_deadline(self, item: Timer, due: int) -> None:
        item.owner.set(due, self.effects)
        if self.effects.alarms:
            self.file()

    def cancel_deadline(self, item: Timer) -> None:
        item.owner.cancel(self.effects)
        self.file()

    def file(self) -> None:
        for name, due_ms in self.effects.alarms.items():
            assert isinstance(name, int)
            if due_ms is None:
                self.wheel.cancel(self.items[name])
            else:
                self.wheel.add(self.items[name], due_ms)
        self.effects.alarms.clear()

    def advance(self, tick: int) -> list[Timer]:
        fired = []
        for item in self.wheel.advance(tick):
            if item.owner.handle_alarm(tick, self.effects):
                fired.append(item)
            elif self.effects.alarms:
                self.file()
        return fired


class NamedTimers(TimerDesign):
    """``actors/timer/timers.py``: deadlines by owner and name, without an object of the owner."""

    items: range

    def __init__(self, count: int) -> None:
        self.timers = Timers(0)
        self.items = range(count)
        self.add = lambda name, due: self.timers.schedule(name // NAMES_AN_OWNER, name, due)
        self.drop = lambda name: self.timers.cancel(name // NAMES_AN_OWNER, name)

    def advance(self, tick: int) -> dict[Any, list[Any]]:
        return self.timers.pop_expired(tick)

    def names(self, fired: dict[Any, list[Any]]) -> list[int]:
        return [name for names in fired.values() for name in names]

    def next_tick(self) -> int | None:
        return self.timers.next_due_ms()


class DatedItem(TimerItem):
    """An item with its deadline; -1 if it is not scheduled."""

    __slots__ = ("due",)

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.due = -1


class Heap(TimerDesign):
    """``heapq`` with lazy deletion: entries that were cancelled or moved stay in the heap until they reach the top."""

    items: list[DatedItem]

    def __init__(self, count: int) -> None:
        self.items = [DatedItem(name) for name in range(count)]
        self.heap: list[tuple[int, int]] = []
        self.add = self.push
        self.drop = self.invalidate

    def push(self, item: DatedItem, due: int) -> None:
        item.due = due
        heappush(self.heap, (due, item.name))

    def invalidate(self, item: DatedItem) -> None:
        item.due = -1

    def advance(self, tick: int) -> list[DatedItem]:
        heap, items, fired = self.heap, self.items, []
        while heap and heap[0][0] <= tick:
            due, name = heappop(heap)
            item = items[name]
            if item.due == due:
                item.due = -1
                fired.append(item)
        return fired

    def next_tick(self) -> int | None:
        heap, items = self.heap, self.items
        while heap and items[heap[0][1]].due != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None


class Buckets(TimerDesign):
    """A ``SortedDict`` from ticks to dicts of the items that are due then."""

    items: list[DatedItem]

    def __init__(self, count: int) -> None:
        self.items = [DatedItem(name) for name in range(count)]
        self.buckets: SortedDict[int, dict[DatedItem, None]] = SortedDict()
        self.add = self.file
        self.drop = self.take

    def file(self, item: DatedItem, due: int) -> None:
        if item.due >= 0:
            self.take(item)
        bucket = self.buckets.get(due)
        if bucket is None:
            bucket = self.buckets[due] = {}
        bucket[item] = None
        item.due = due

    def take(self, item: DatedItem) -> None:
        bucket = self.buckets[item.due]
        del bucket[item]
        if not bucket:
            del self.buckets[item.due]
        item.due = -1

    def advance(self, tick: int) -> list[DatedItem]:
        buckets, fired = self.buckets, []
        while buckets and buckets.peekitem(0)[0] <= tick:
            for item in buckets.popitem(0)[1]:
                item.due = -1
                fired.append(item)
        return fired

    def next_tick(self) -> int | None:
        if not self.buckets:
            return None
        tick: int = self.buckets.peekitem(0)[0]
        return tick


class HandleItem(TimerItem):
    __slots__ = ("handle",)

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.handle: asyncio.TimerHandle | None = None


class ManualClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is set by the caller."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class LoopTimers(TimerDesign):
    """``loop.call_at``: an asyncio timer for each deadline. Expiry includes one loop iteration per tick."""

    items: list[HandleItem]

    def __init__(self, count: int) -> None:
        self.items = [HandleItem(name) for name in range(count)]
        self.loop = ManualClockLoop()
        self.fired: list[HandleItem] = []
        self.add = self.call
        self.drop = self.take

    def call(self, item: HandleItem, due: int) -> None:
        if item.handle is not None:
            item.handle.cancel()
        item.handle = self.loop.call_at(due * TICK_S, self.fire, item)

    def fire(self, item: HandleItem) -> None:
        item.handle = None
        self.fired.append(item)

    def take(self, item: HandleItem) -> None:
        assert item.handle is not None
        item.handle.cancel()
        item.handle = None

    def advance(self, tick: int) -> list[HandleItem]:
        self.fired = []
        self.loop.now_s = tick * TICK_S
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return self.fired

    def close(self) -> None:
        self.loop.close()


DESIGNS: dict[str, Callable[[int], TimerDesign]] = {
    "objects": Objects,
    "wheel": Wheel,
    "lazy": LazyWheel,
    "timers": NamedTimers,
    "heap": Heap,
    "buckets": Buckets,
    "asyncio": LoopTimers,
}

# Measuring ------------------------------------------------------------------------------------------------------------


def measure(name: str, work: TimerWorkload, count: int) -> dict[str, float]:
    """Schedule, renew and expire all items, schedule and cancel them. Times in ns per operation, bytes per item."""
    dues, renewed, order = _plan(work, count)
    bytes_before = _resident()
    design = DESIGNS[name](count)
    figures = {"insert_ns": _timed(count, lambda: design.fill(dues))}
    figures["bytes"] = (_resident() - bytes_before) / count
    gc.freeze()  # as a server does after loading
    figures["renew_ns"] = _timed(count, lambda: design.renew(order, renewed))
    figures["renewed_bytes"] = (_resident() - bytes_before) / count
    if isinstance(design, Objects):
        figures["cancel_ns"] = _timed(count, lambda: design.cancel(order))
        return figures
    figures |= _expire(design, work, renewed)
    end = work.last + RENEWAL_TICKS_MAX
    design.fill(array("q", (end + due for due in dues)))
    figures["cancel_ns"] = _timed(count, lambda: design.cancel(order))
    if unexpired := design.names(design.advance(2 * end)):
        raise BenchError(f"{name}: {len(unexpired)} expired although all were cancelled")
    design.close()
    return figures


def measure_empty(name: str) -> dict[str, float]:
    """Advance by a day and by a tick in which nothing is due, without timers and with one: ns per call."""
    figures = {}
    for filed in (0, 1):
        design = DESIGNS[name](1)
        if filed:
            design.fill([FAR_FUTURE_TICK])
        figures[f"day_{filed}_ns"] = _jump(design, 0, DAY_TICKS)
        figures[f"tick_{filed}_ns"] = _jump(design, (JUMPS + 1) * DAY_TICKS, 1)
    return figures


def _plan(work: TimerWorkload, count: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """The first deadlines, those after renewal, and the order of renewals and cancellations."""
    chance = random.Random(SEED)
    width = work.last - work.first
    if work.in_order:
        dues = array("q", (work.first + width * name // count for name in range(count)))
    else:
        dues = array("q", (work.first + chance.randrange(width) for _ in range(count)))
    renewed = array("q", (due + chance.randint(1, RENEWAL_TICKS_MAX) for due in dues))
    order = array("q", range(count))
    chance.shuffle(order)
    return dues, renewed, order


def _expire(design: TimerDesign, work: TimerWorkload, dues: Sequence[int]) -> dict[str, float]:
    """Advance until no timer is left. Times are the thread's CPU time, which other programs do not lengthen."""
    fired_at = array("q", (-1 for _ in dues))
    spent: list[int] = []
    for tick in _ticks(design, work):
        start = thread_time_ns()
        fired = design.advance(tick)
        spent.append(thread_time_ns() - start)
        for name in design.names(fired):
            if fired_at[name] >= 0:
                raise BenchError(f"{type(design).__name__}: item {name} expired twice, at {fired_at[name]} and {tick}")
            fired_at[name] = tick
    _check(design, fired_at, dues)
    return {"expire_ns": sum(spent) / len(dues), "worst_ms": max(spent) / 1e6, "wake_ups": len(spent) / len(dues)}


def _ticks(design: TimerDesign, work: TimerWorkload) -> Iterator[int]:
    if not work.waits_for_next:
        yield from range(max(1, work.first - APPROACH_TICKS), work.last + RENEWAL_TICKS_MAX)
        return
    while (tick := design.next_tick()) is not None:
        yield tick


def _check(design: TimerDesign, fired_at: Sequence[int], dues: Sequence[int]) -> None:
    """Raise BenchError unless each timer expired at its tick, neither early, late nor never (-1)."""
    for name, (tick, due) in enumerate(zip(fired_at, dues, strict=True)):
        if tick != due:
            raise BenchError(f"{type(design).__name__}: item {name} is due at {due} and expired at {tick}")


def _jump(design: TimerDesign, start: int, step: int) -> float:
    def jump() -> None:
        for number in range(1, JUMPS + 1):
            design.advance(start + number * step)

    return _timed(JUMPS, jump)


def _timed(count: int, work: Callable[[], object]) -> float:
    start = perf_counter_ns()
    work()
    return (perf_counter_ns() - start) / count


def _resident() -> int:
    gc.collect()
    return resident_bytes(os.getpid()) or 0


def main(argv: Sequence[str]) -> int:
    name, work, count = argv
    print(json.dumps(measure_empty(name) if work == EMPTY else measure(name, WORKS[work], int(count))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
