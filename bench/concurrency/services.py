"""What every engine has beside its groups: a clock, a writer that takes a millisecond a round, a timer on the wheel.

The writer is one thread for every engine, as a disk needs one: it gathers records while it "syncs" (sleeps) and then
hands the whole round back. So a commit costs each engine the same wait, and group commit is the same. The timer runs
where its engine's groups run: on the loop without a lock, or on a thread of its own behind a small lock.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from callboard.actors.timer.timers import Timers
from callboard.bench.concurrency.cell import Alarms, Append, Cell

ROUND_S = 0.001
"""What a round of the writer takes: a write and a sync on a decent disk."""

EXPIRED_A_TURN = 1000
"""Deadlines that the timer hands out before others have their turn, as TimerActor does."""

SETTLE_S = 30.0
"""How long to wait for a service that has nothing more to do to say so."""


class LabClock:
    """Stands still until ``begin``, so that no session runs out while groups are made."""

    def __init__(self) -> None:
        self._began_ns: int | None = None

    def begin(self) -> None:
        self._began_ns = time.monotonic_ns()

    def monotonic_ms(self) -> int:
        began_ns = self._began_ns
        return 0 if began_ns is None else (time.monotonic_ns() - began_ns) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Writer:
    """Group commit: what gathers while a round is written goes into the next. ``written`` is called on its thread."""

    def __init__(self, written: Callable[[Sequence[Append]], None], round_s: float = ROUND_S) -> None:
        self._queue: SimpleQueue[Append | threading.Event | None] = SimpleQueue()
        self.append: Callable[[Append], None] = self._queue.put
        self._written = written
        self._round_s = round_s
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def settle(self) -> bool:
        """Wait until what was appended before is written and handed back; False if that takes too long."""
        reached = threading.Event()
        self._queue.put(reached)
        return reached.wait(SETTLE_S)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(SETTLE_S)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            gathered = [first, *self._more()]
            appends = [each for each in gathered if isinstance(each, Append)]
            if appends:
                time.sleep(self._round_s)
                self._written(appends)
            for each in gathered:
                if isinstance(each, threading.Event):
                    each.set()

    def _more(self) -> list[Append | threading.Event]:
        """What else has gathered. The order to end waits for its turn."""
        found: list[Append | threading.Event] = []
        with suppress(Empty):
            while (each := self._queue.get_nowait()) is not None:
                found.append(each)
            self._queue.put(None)
        return found


Expired = Callable[[Cell, Sequence[Hashable]], None]


def _file(timers: Timers, cell: Cell, alarms: Alarms) -> None:
    for name, due_ms in alarms.items():
        if due_ms is None:
            timers.cancel(cell, name)
        else:
            timers.schedule(cell, name, due_ms)


def _earliest(alarms: Alarms) -> int | None:
    return min((due_ms for due_ms in alarms.values() if due_ms is not None), default=None)


class ThreadTimer:
    """The wheel behind a lock. Its thread calls ``expired`` without holding it."""

    def __init__(self, clock: LabClock, expired: Expired) -> None:
        self._clock = clock
        self._expired = expired
        self._timers = Timers(clock.monotonic_ms())
        self._changed = threading.Condition()
        self._wake_ms: int | None = None
        self._settling: list[threading.Event] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="timer", daemon=True)
        self._thread.start()

    def file(self, cell: Cell, alarms: Alarms) -> None:
        due_ms = _earliest(alarms)
        with self._changed:
            _file(self._timers, cell, alarms)
            if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
                self._wake_ms = due_ms
                self._changed.notify()

    def settle(self) -> bool:
        """Wait until everything that is due has been handed out; False if that takes too long."""
        reached = threading.Event()
        with self._changed:
            self._settling.append(reached)
            self._changed.notify()
        return reached.wait(SETTLE_S)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(SETTLE_S)

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                found = self._timers.pop_expired(self._clock.monotonic_ms(), EXPIRED_A_TURN)
                if not found:
                    self._wait()
            for cell, names in found.items():
                self._expired(cell, names)

    def _wait(self) -> None:
        for reached in self._settling:
            reached.set()
        self._settling.clear()
        self._wake_ms = self._timers.next_due_ms()
        if self._closed:
            return
        if self._wake_ms is None:
            self._changed.wait()
        else:
            self._changed.wait(max(self._wake_ms - self._clock.monotonic_ms(), 1) / 1000)


class LoopTimer:
    """The wheel on a loop: one thread touches it, one wake-up of the loop serves all deadlines."""

    def __init__(self, loop: AbstractEventLoop, clock: LabClock, expired: Expired) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = expired
        self._timers = Timers(clock.monotonic_ms())
        self._wake_ms: int | None = None
        self._handle: TimerHandle | None = None

    def file(self, cell: Cell, alarms: Alarms) -> None:
        _file(self._timers, cell, alarms)
        self._wake_at(_earliest(alarms))

    def settle(self) -> bool:
        """Hand out everything that is due. Called on the loop."""
        while found := self._timers.pop_expired(self._clock.monotonic_ms()):
            self._tell(found)
        return True

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        self._wake_ms = None
        self._tell(self._timers.pop_expired(self._clock.monotonic_ms(), EXPIRED_A_TURN))
        self._wake_at(self._timers.next_due_ms())

    def _tell(self, found: dict[Cell, list[Hashable]]) -> None:
        for cell, names in found.items():
            self._expired(cell, names)

    def _wake_at(self, due_ms: int | None) -> None:
        if due_ms is None or (self._wake_ms is not None and self._wake_ms <= due_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._wake_ms = due_ms
        self._handle = self._loop.call_later((due_ms - self._clock.monotonic_ms()) / 1000, self._ring)
