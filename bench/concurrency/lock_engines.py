"""Engines with locks: a thread pool takes requests from one queue and handles each under a lock.

The three engines differ in which groups share a lock. To measure waiting times without overhead, a thread first tries
to acquire the lock without blocking, and reads the clock only if the lock is held. Replies are sent after the lock is
released.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
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
    """``threading.RLock``, which is a function without a public class."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class LockWaitTimer:
    """Measures the time that one thread waits for locks."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def acquire(self, lock: Lock) -> None:
        if not lock.acquire(blocking=False):
            began = perf_counter()
            lock.acquire()
            self.seconds += perf_counter() - began


class LockEngine(Engine):
    """A thread pool and a lock for each cell. The threads of the writer and the timer take the locks themselves."""

    workers = WORKERS

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._cells_and_locks: dict[str, tuple[Cell, Lock]] = {}
        self._queue: SimpleQueue[tuple[Request, ReplyTo] | threading.Barrier | None] = SimpleQueue()
        self._writers_waits, self._timers_waits = LockWaitTimer(), LockWaitTimer()
        self._waits = [self._writers_waits, self._timers_waits, *(LockWaitTimer() for _ in range(self.workers))]
        self._threads = [
            threading.Thread(target=self._work, args=(waits,), name="worker", daemon=True) for waits in self._waits[2:]
        ]
        for thread in self._threads:
            thread.start()

    @abstractmethod
    def lock_for(self, cell: Cell) -> Lock:
        """The lock of this cell."""

    def add_cell(self, cell: Cell) -> None:
        self._cells_and_locks[cell.group_id] = (cell, self.lock_for(cell))

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._queue.put((request, reply_to))

    def written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self.turn(append.cell, self._writers_waits, append.cell.written, append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self.turn(cell, self._timers_waits, cell.expired, names)

    def turn(self, cell: Cell, waits: LockWaitTimer, decide: Callable[..., Answers], *message: Any) -> None:
        """Run a turn with the lock held, and send the replies after it is released."""
        lock = self._cells_and_locks[cell.group_id][1]
        waits.acquire(lock)
        try:
            answers = decide(*message)
        finally:
            lock.release()
        deliver(answers)

    def _work(self, waits: LockWaitTimer) -> None:
        take, cells_and_locks = self._queue.get, self._cells_and_locks
        while (task := take()) is not None:
            if isinstance(task, threading.Barrier):
                _wait(task)
                continue
            request, reply_to = task
            cell, lock = cells_and_locks[request.group_id]
            waits.acquire(lock)
            try:
                answers = cell.handle(request, reply_to)
            finally:
                lock.release()
            deliver(answers)

    def barrier(self) -> bool:
        """Each worker reaches the barrier only after finishing its earlier requests."""
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

    def reset_counters(self) -> None:
        for waits in self._waits:
            waits.seconds = 0.0


def _wait(barrier: threading.Barrier) -> bool:
    try:
        barrier.wait(BARRIER_S)
    except threading.BrokenBarrierError:
        return False
    return True


class GroupLockEngine(LockEngine):
    """One RLock per group."""

    def lock_for(self, cell: Cell) -> Lock:
        return threading.RLock()


class GlobalLockEngine(LockEngine):
    """One RLock for all groups."""

    def prepare(self) -> None:
        super().prepare()
        self._lock = threading.RLock()

    def lock_for(self, cell: Cell) -> Lock:
        return self._lock


class StripedLockEngine(LockEngine):
    """64 RLocks, chosen by the hash of the group's name."""

    def prepare(self) -> None:
        super().prepare()
        self._locks = [threading.RLock() for _ in range(STRIPES)]

    def lock_for(self, cell: Cell) -> Lock:
        return self._locks[crc32(cell.group_id.encode()) % STRIPES]
