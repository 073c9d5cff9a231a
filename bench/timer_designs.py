"""The designs that ``callboard bench timers`` compares, and one design's work in a process of its own.

``python -m callboard.bench.timer_designs DESIGN WORK COUNT`` prints its figures as a line of JSON. Every design files
the same deadlines, and each that comes out is checked: at its tick, once, and none is missing.

Deadlines are in ticks of a millisecond. They are handed in from arrays, so that a design pays for what numbers
it keeps.
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
APPROACH_TICKS = 70_000  # before the first deadline; the wheel's ring begins to fill 65,536 ticks before
JUMPS = 1000
FAR_FUTURE_TICK = 10**12
SEED = 5


class Work(NamedTuple):
    """When deadlines are due, in ticks.

    ``in_order``: filed in order of due, as deadlines are that all have the same timeout. ``sleeps``: who waits asks
    when to wake up, instead of at each tick.
    """

    first: int
    last: int
    in_order: bool = False
    sleeps: bool = False


WORKS = {
    "near": Work(5_000, 45_000),
    "hour": Work(3_605_000, 3_645_000, in_order=True),
    "week": Work(1, 7 * DAY_TICKS, sleeps=True),
}
EMPTY = "empty"


class Design:
    """What all designs do. ``add`` files or moves an item, ``drop`` cancels one; both are called directly."""

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
        """Take out what is due; ``names`` says what that was."""
        raise NotImplementedError

    def names(self, fired: Any) -> list[int]:
        return [item.name for item in fired]

    def next_tick(self) -> int | None:
        raise NotImplementedError

    def close(self) -> None:
        """The design is not needed any more."""


class Held:
    """What an owner holds for a deadline, whatever files it. Designs that keep more in it have a subclass."""

    __slots__ = ("name", "owner")

    def __init__(self, name: int) -> None:
        self.owner = None
        self.name = name


class Objects(Design):
    """Objects that nobody files: what the others' bytes are counted from, and what the measuring loop costs."""

    def __init__(self, count: int) -> None:
        self.items = [Held(name) for name in range(count)]
        self.add = lambda item, due: item.name
        self.drop = lambda item: item.name


class Wheel(Design):
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
    """The wheel under ``Deadline``: renewing moves a number, and an early alarm is re-filed."""

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


class NamedTimers(Design):
    """``actors/timer/timers.py``: named deadlines of owners that hold nothing themselves."""

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


class Dated(Held):
    """An item that knows when it is due; -1 when it is not filed."""

    __slots__ = ("due",)

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.due = -1


class Heap(Design):
    """``heapq`` with lazy deletion: what was cancelled or moved stays in the heap until it comes to the top."""

    items: list[Dated]

    def __init__(self, count: int) -> None:
        self.items = [Dated(name) for name in range(count)]
        self.heap: list[tuple[int, int]] = []
        self.add = self.push
        self.drop = self.disown

    def push(self, item: Dated, due: int) -> None:
        item.due = due
        heappush(self.heap, (due, item.name))

    def disown(self, item: Dated) -> None:
        item.due = -1

    def advance(self, tick: int) -> list[Dated]:
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


class Buckets(Design):
    """A ``SortedDict`` of ticks; for each the dict of the items that are due then."""

    items: list[Dated]

    def __init__(self, count: int) -> None:
        self.items = [Dated(name) for name in range(count)]
        self.buckets: SortedDict[int, dict[Dated, None]] = SortedDict()
        self.add = self.file
        self.drop = self.take

    def file(self, item: Dated, due: int) -> None:
        if item.due >= 0:
            self.take(item)
        bucket = self.buckets.get(due)
        if bucket is None:
            bucket = self.buckets[due] = {}
        bucket[item] = None
        item.due = due

    def take(self, item: Dated) -> None:
        bucket = self.buckets[item.due]
        del bucket[item]
        if not bucket:
            del self.buckets[item.due]
        item.due = -1

    def advance(self, tick: int) -> list[Dated]:
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


class Handled(Held):
    __slots__ = ("handle",)

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.handle: asyncio.TimerHandle | None = None


class SetLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is set."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class LoopTimers(Design):
    """``loop.call_at``: an asyncio timer for each deadline. Expiring holds one turn of the loop a tick."""

    items: list[Handled]

    def __init__(self, count: int) -> None:
        self.items = [Handled(name) for name in range(count)]
        self.loop = SetLoop()
        self.fired: list[Handled] = []
        self.add = self.call
        self.drop = self.take

    def call(self, item: Handled, due: int) -> None:
        if item.handle is not None:
            item.handle.cancel()
        item.handle = self.loop.call_at(due * TICK_S, self.fire, item)

    def fire(self, item: Handled) -> None:
        item.handle = None
        self.fired.append(item)

    def take(self, item: Handled) -> None:
        assert item.handle is not None
        item.handle.cancel()
        item.handle = None

    def advance(self, tick: int) -> list[Handled]:
        self.fired = []
        self.loop.now_s = tick * TICK_S
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return self.fired

    def close(self) -> None:
        self.loop.close()


DESIGNS: dict[str, Callable[[int], Design]] = {
    "objects": Objects,
    "wheel": Wheel,
    "lazy": LazyWheel,
    "timers": NamedTimers,
    "heap": Heap,
    "buckets": Buckets,
    "asyncio": LoopTimers,
}

# Measuring ------------------------------------------------------------------------------------------------------------


def measure(name: str, work: Work, count: int) -> dict[str, float]:
    """Fill, renew all, let all expire, fill again, cancel all. Times in ns an operation, bytes for each item."""
    dues, renewed, order = _plan(work, count)
    before = _resident()
    design = DESIGNS[name](count)
    figures = {"insert_ns": _timed(count, lambda: design.fill(dues))}
    figures["bytes"] = (_resident() - before) / count
    gc.freeze()  # as a server does that has loaded its state
    figures["renew_ns"] = _timed(count, lambda: design.renew(order, renewed))
    figures["renewed_bytes"] = (_resident() - before) / count
    if isinstance(design, Objects):
        figures["cancel_ns"] = _timed(count, lambda: design.cancel(order))
        return figures
    figures |= _expire(design, work, renewed)
    end = work.last + RENEWAL_TICKS_MAX
    design.fill(array("q", (end + due for due in dues)))
    figures["cancel_ns"] = _timed(count, lambda: design.cancel(order))
    if left := design.names(design.advance(2 * end)):
        raise BenchError(f"{name}: {len(left)} came out although all were cancelled")
    design.close()
    return figures


def measure_empty(name: str) -> dict[str, float]:
    """A day in which nothing is due, and a tick in which nothing is: ns a call, with nothing filed and with one."""
    figures = {}
    for filed in (0, 1):
        design = DESIGNS[name](1)
        if filed:
            design.fill([FAR_FUTURE_TICK])
        figures[f"day_{filed}_ns"] = _jump(design, 0, DAY_TICKS)
        figures[f"tick_{filed}_ns"] = _jump(design, (JUMPS + 1) * DAY_TICKS, 1)
    return figures


def _plan(work: Work, count: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """When items are due at first, when after renewal, and in which order they are renewed and cancelled."""
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


def _expire(design: Design, work: Work, dues: Sequence[int]) -> dict[str, float]:
    """Let time pass until nothing is left. Times are the thread's CPU time: other programs do not lengthen a tick."""
    came = array("q", (-1 for _ in dues))
    spent: list[int] = []
    for tick in _ticks(design, work):
        start = thread_time_ns()
        fired = design.advance(tick)
        spent.append(thread_time_ns() - start)
        for name in design.names(fired):
            if came[name] >= 0:
                raise BenchError(f"{type(design).__name__}: item {name} came twice, at {came[name]} and {tick}")
            came[name] = tick
    _check(design, came, dues)
    return {"expire_ns": sum(spent) / len(dues), "worst_ms": max(spent) / 1e6, "wake_ups": len(spent) / len(dues)}


def _ticks(design: Design, work: Work) -> Iterator[int]:
    if not work.sleeps:
        yield from range(max(1, work.first - APPROACH_TICKS), work.last + RENEWAL_TICKS_MAX)
        return
    while (tick := design.next_tick()) is not None:
        yield tick


def _check(design: Design, came: Sequence[int], dues: Sequence[int]) -> None:
    """Raises BenchError unless each came out at its tick: neither early, nor late, nor never (-1)."""
    for name, (tick, due) in enumerate(zip(came, dues, strict=True)):
        if tick != due:
            raise BenchError(f"{type(design).__name__}: item {name} is due at {due} and came at {tick}")


def _jump(design: Design, start: int, step: int) -> float:
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
