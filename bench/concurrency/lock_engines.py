"""Engines with locks: a pool of threads takes requests from one queue and handles each under a lock.

The three differ in which groups share a lock. To measure the wait without distorting it, a thread first tries without
waiting, which is all that an uncontended lock costs, and reads the clock only when somebody else is inside.
Answers are given after the lock is let go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol
from zlib import crc32

from callboard.actors.engine_ports import ReplyTo
from callboard.bench.concurrency.cell import Answers, Append, Cell, Request, deliver
from callboard.bench.concurrency.engines import BARRIER_S, WORKERS, Engine
from callboard.bench.concurrency.services import ThreadTimer

STRIPES = 64


class Lock(Protocol):
    """``threading.RLock``, of which the standard library gives no class to name."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Waits:
    """How long one thread has waited for locks."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def acquire(self, lock: Lock) -> None:
        if not lock.acquire(blocking=False):
            began = perf_counter()
            lock.acquire()
            self.seconds += perf_counter() - began


class LockEngine(Engine):
    """A pool of threads, and for each cell a lock. The writer's and the timer's threads take the locks themselves."""

    workers = WORKERS

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._seats: dict[str, tuple[Cell, Lock]] = {}
        self._queue: SimpleQueue[tuple[Request, ReplyTo] | threading.Barrier | None] = SimpleQueue()
        self._writers_waits, self._timers_waits = Waits(), Waits()
        self._waits = [self._writers_waits, self._timers_waits, *(Waits() for _ in range(self.workers))]
        self._threads = [
            threading.Thread(target=self._work, args=(waits,), name="worker", daemon=True) for waits in self._waits[2:]
        ]
        for thread in self._threads:
            thread.start()

    def lock_for(self, cell: Cell) -> Lock:
        raise NotImplementedError

    def seat(self, cell: Cell) -> None:
        self._seats[cell.group_id] = (cell, self.lock_for(cell))

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._queue.put((request, reply_to))

    def written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self.turn(append.cell, self._writers_waits, append.cell.written, append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self.turn(cell, self._timers_waits, cell.expired, names)

    def turn(self, cell: Cell, waits: Waits, decide: Callable[..., Answers], *message: Any) -> None:
        """Inside of the lock, decide; outside of it, answer."""
        lock = self._seats[cell.group_id][1]
        waits.acquire(lock)
        try:
            answers = decide(*message)
        finally:
            lock.release()
        deliver(answers)

    def _work(self, waits: Waits) -> None:
        take, seats = self._queue.get, self._seats
        while (task := take()) is not None:
            if isinstance(task, threading.Barrier):
                _wait(task)
                continue
            request, reply_to = task
            cell, lock = seats[request.group_id]
            waits.acquire(lock)
            try:
                answers = cell.handle(request, reply_to)
            finally:
                lock.release()
            deliver(answers)

    def barrier(self) -> bool:
        """Every worker comes to the barrier only when it has done what it took before."""
        barrier = threading.Barrier(self.workers + 1)
        for _ in range(self.workers):
            self._queue.put(barrier)
        return _wait(barrier)

    def end(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(BARRIER_S)

    @property
    def lock_wait_s(self) -> float:
        return sum(waits.seconds for waits in self._waits)

    def watch(self) -> None:
        for waits in self._waits:
            waits.seconds = 0.0


def _wait(barrier: threading.Barrier) -> bool:
    try:
        barrier.wait(BARRIER_S)
    except threading.BrokenBarrierError:
        return False
    return True


class LockGroup(LockEngine):
    """One RLock a group."""

    def lock_for(self, cell: Cell) -> Lock:
        return threading.RLock()


class LockGlobal(LockEngine):
    """One RLock for all."""

    def prepare(self) -> None:
        super().prepare()
        self._lock = threading.RLock()

    def lock_for(self, cell: Cell) -> Lock:
        return self._lock


class LockStriped(LockEngine):
    """64 RLocks; a group's is chosen by its name."""

    def prepare(self) -> None:
        super().prepare()
        self._locks = [threading.RLock() for _ in range(STRIPES)]

    def lock_for(self, cell: Cell) -> Lock:
        return self._locks[crc32(cell.group_id.encode()) % STRIPES]
