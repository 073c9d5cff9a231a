"""Services of every engine: a clock, a writer that takes 1 ms per round, and a timer based on the timing wheel.

The writer is one thread: it gathers records while it "syncs" (sleeps), and then returns the whole round. So the latency
of a commit and group commit are the same for each engine. The timer runs on the engine's loop, without a lock, or on
its own thread with a lock.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from callboard.actors.records import GroupRecord, OffsetRecord
from callboard.actors.timer.timers import Timers
from callboard.bench.concurrency.cell import Alarms, Append, Cell

ROUND_S = 0.001
"""Duration of a writer's round: a write and a sync on a good disk."""

EXPIRED_A_TURN = 1000
"""Maximum number of expiries before other work runs, as in TimerActor."""

SETTLE_S = 30.0
"""How long to wait for a service to become idle."""


class LabClock:
    """A clock that is paused until ``begin``, so that no session expires while groups are created."""

    def __init__(self) -> None:
        self._began_ns: int | None = None

    def begin(self) -> None:
        self._began_ns = time.monotonic_ns()

    def monotonic_ms(self) -> int:
        began_ns = self._began_ns
        return 0 if began_ns is None else (time.monotonic_ns() - began_ns) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class DurableState:
    """What the writer has written: the evidence against an engine that acknowledges records too early.

    The writer's thread changes it before it returns a round; the clients' threads read it.
    """

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}
        """The last written offset, by group and partition."""
        self.generations: dict[str, int] = {}
        """The last written generation, by group."""

    def add(self, append: Append) -> None:
        for record in append.records:
            if isinstance(record, OffsetRecord):
                if record.value is not None:
                    self.offsets[record.group_id, record.partition] = record.value.offset
            elif isinstance(record, GroupRecord) and record.value is not None:
                self.generations[record.group_id] = record.value.generation


class Writer:
    """Group commit: appends during a round go into the next one. ``written`` is called on the writer's thread."""

    def __init__(self, written: Callable[[Sequence[Append]], None], round_s: float = ROUND_S) -> None:
        self._queue: SimpleQueue[Append | threading.Event | None] = SimpleQueue()
        self.append: Callable[[Append], None] = self._queue.put
        self.durable = DurableState()
        self._written = written
        self._round_s = round_s
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def settle(self) -> bool:
        """Wait until earlier appends are written and returned; False after a timeout."""
        written = threading.Event()
        self._queue.put(written)
        return written.wait(SETTLE_S)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(SETTLE_S)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first, *self._more()]
            appends = [item for item in batch if isinstance(item, Append)]
            if appends:
                time.sleep(self._round_s)
                for append in appends:
                    self.durable.add(append)
                self._written(appends)
            for item in batch:
                if isinstance(item, threading.Event):
                    item.set()

    def _more(self) -> list[Append | threading.Event]:
        """All other queued appends. A request to stop stays in the queue."""
        items: list[Append | threading.Event] = []
        with suppress(Empty):
            while (item := self._queue.get_nowait()) is not None:
                items.append(item)
            self._queue.put(None)
        return items


Expired = Callable[[Cell, Sequence[Hashable]], None]


def _schedule(timers: Timers, cell: Cell, alarms: Alarms) -> None:
    for name, due_ms in alarms.items():
        if due_ms is None:
            timers.cancel(cell, name)
        else:
            timers.schedule(cell, name, due_ms)


def _earliest(alarms: Alarms) -> int | None:
    return min((due_ms for due_ms in alarms.values() if due_ms is not None), default=None)


class ThreadTimer:
    """The wheel with a lock, and a thread that calls ``expired`` without holding the lock."""

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

    def schedule(self, cell: Cell, alarms: Alarms) -> None:
        due_ms = _earliest(alarms)
        with self._changed:
            _schedule(self._timers, cell, alarms)
            if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
                self._wake_ms = due_ms
                self._changed.notify()

    def settle(self) -> bool:
        """Wait until all due timers were delivered; False after a timeout."""
        delivered = threading.Event()
        with self._changed:
            self._settling.append(delivered)
            self._changed.notify()
        return delivered.wait(SETTLE_S)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(SETTLE_S)

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                expired = self._timers.pop_expired(self._clock.monotonic_ms(), EXPIRED_A_TURN)
                if not expired:
                    self._wait()
            for cell, names in expired.items():
                self._expired(cell, names)

    def _wait(self) -> None:
        for event in self._settling:
            event.set()
        self._settling.clear()
        self._wake_ms = self._timers.next_due_ms()
        if self._closed:
            return
        if self._wake_ms is None:
            self._changed.wait()
        else:
            self._changed.wait(max(self._wake_ms - self._clock.monotonic_ms(), 1) / 1000)


class LoopTimer:
    """The wheel on an event loop, with one scheduled callback for all deadlines."""

    def __init__(self, loop: AbstractEventLoop, clock: LabClock, expired: Expired) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = expired
        self._timers = Timers(clock.monotonic_ms())
        self._wake_ms: int | None = None
        self._handle: TimerHandle | None = None

    def schedule(self, cell: Cell, alarms: Alarms) -> None:
        _schedule(self._timers, cell, alarms)
        self._wake_at(_earliest(alarms))

    def settle(self) -> bool:
        """Deliver all due timers. Called on the loop."""
        while expired := self._timers.pop_expired(self._clock.monotonic_ms()):
            self._tell(expired)
        return True

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _on_expired(self) -> None:
        self._wake_ms = None
        self._tell(self._timers.pop_expired(self._clock.monotonic_ms(), EXPIRED_A_TURN))
        self._wake_at(self._timers.next_due_ms())

    def _tell(self, expired: dict[Cell, list[Hashable]]) -> None:
        for cell, names in expired.items():
            self._expired(cell, names)

    def _wake_at(self, due_ms: int | None) -> None:
        if due_ms is None or (self._wake_ms is not None and self._wake_ms <= due_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._wake_ms = due_ms
        self._handle = self._loop.call_later((due_ms - self._clock.monotonic_ms()) / 1000, self._on_expired)
