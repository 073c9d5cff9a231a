"""Threads for the log: its own thread and a small pool, or, for tests and simulations, only the caller's thread.

``writer.RoundWriter`` is independent of threads. It receives calls one after the other, and submits jobs, which may
take long and report their result by such a call. So the same code runs in a server, where a sync must not block the
loop, and step by step on one thread, in an order that a seed decides.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Protocol

from ..common.thread_pool import ThreadPool
from .disk import Disk

Call = Callable[[], None]
Then = Callable[[Exception | None], None]
"""Continues after a sync: with its error, or with None."""

POOL_THREADS = 8  # more threads do not make fifty syncs faster


class LogWork(Protocol):
    """The state machine of a log, which runs in one thread, one call after the other."""

    @property
    def due(self) -> float:
        """When it needs a turn without a call, in seconds of its clock; ``inf`` for never."""

    @property
    def is_closed(self) -> bool:
        """Whether it needs no more turns."""

    def turn(self, call: Call | None) -> None:
        """Run a call, or with None the work that is due. Raises nothing."""


def always_long() -> bool:
    """Of a call that may block."""
    return False


class Threads(Protocol):
    """Runs the work of one log."""

    def start(self, work: LogWork, clock: Callable[[], float]) -> None:
        """Give turns to ``work`` from now on."""

    def put(self, call: Call, is_short: Callable[[], bool] = always_long) -> None:
        """Run a call in a turn of the work, after all earlier calls. May be called from any thread.

        ``is_short`` is asked immediately before: whether the call only takes microseconds, except for a ``sync``.
        """

    def sync(self, disk: Disk, fd: int, then: Then) -> None:
        """Make a file's content durable, then call ``then``, in a turn. No other turn comes before that.

        To be called in a turn, as its last step.
        """

    def submit(self, job: Call) -> None:
        """Run a job in another thread. The job raises nothing."""

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        """Run all calls concurrently and wait for them. Returns the error of each. For jobs, and before ``start``."""

    def wait(self, event: threading.Event) -> None:
        """Wait until the work or a job has set the event. Must not be called by either of them."""

    def close(self) -> None:
        """Wait until the work is closed and all threads have ended. OffsetsLog calls it even without ``start``."""

    def halt(self) -> None:
        """Wait for running calls and jobs, and drop the others."""


class JobPool:
    """A pool of threads for jobs. It starts with the first one."""

    def __init__(self) -> None:
        self._pool = ThreadPool(POOL_THREADS, "callboard-log-files")

    def submit(self, job: Call) -> None:
        self._pool.submit(job)

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        futures = [self._pool.submit(call) for call in calls]
        return [failure_of(future.result) for future in futures]


class OwnThreads(JobPool):
    """A thread for the work and a pool for its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_halted = False

    def start(self, work: LogWork, clock: Callable[[], float]) -> None:
        self._thread = threading.Thread(target=self._run, args=(work, clock), name="callboard-log", daemon=True)
        self._thread.start()

    def put(self, call: Call, is_short: Callable[[], bool] = always_long) -> None:
        self._calls.put(call)

    def sync(self, disk: Disk, fd: int, then: Then) -> None:
        then(failure_of(partial(disk.sync, fd)))

    def wait(self, event: threading.Event) -> None:
        event.wait()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown()

    def halt(self) -> None:
        self._is_halted = True
        self._calls.put(_do_nothing)
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, work: LogWork, clock: Callable[[], float]) -> None:
        while not (work.is_closed or self._is_halted):
            work.turn(self._next(work.due, clock))

    def _next(self, due: float, clock: Callable[[], float]) -> Call | None:
        """The next call; None if work is due before it comes."""
        if due == inf:
            return self._calls.get()
        left_s = due - clock()
        try:
            return self._calls.get(timeout=left_s) if left_s > 0 else None
        except Empty:
            return None


class InlineThreads:
    """No threads: everything runs on the caller's thread, in a deterministic order.

    Without ``choose`` a call runs at once, with all jobs that it submits. With ``choose``, calls and jobs wait for
    ``step``, and ``choose(n)`` selects one of ``n`` candidates: 0 is the sync in progress, or else the next call if
    there is one, followed by the jobs in the order of their submission. So ``choose=random.Random(seed).randrange``
    tests another order with every seed, in which rounds may run before a pending checkpoint.
    """

    def __init__(self, choose: Callable[[int], int] | None = None) -> None:
        self._choose = choose
        self._calls: deque[Call] = deque()
        self._sync: Call | None = None  # the end of the sync in progress, which comes before all calls
        self._jobs: list[Call] = []
        self._work: LogWork | None = None
        self._clock: Callable[[], float] = lambda: 0.0  # until ``start``
        self._is_running = False

    def start(self, work: LogWork, clock: Callable[[], float]) -> None:
        self._work, self._clock = work, clock

    def put(self, call: Call, is_short: Callable[[], bool] = always_long) -> None:
        self._calls.append(call)
        self._run_at_once()

    def sync(self, disk: Disk, fd: int, then: Then) -> None:
        def finish() -> None:
            then(failure_of(partial(disk.sync, fd)))

        if self._choose is None:
            finish()
        else:
            self._sync = finish

    def submit(self, job: Call) -> None:
        self._jobs.append(job)
        self._run_at_once()

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        return [failure_of(call) for call in calls]

    def wait(self, event: threading.Event) -> None:
        while not event.is_set():
            if not self.step():
                raise RuntimeError("the log waits for an event, but nothing is left to run")

    def close(self) -> None:
        while self._work is not None and not self._work.is_closed:
            if not self.step():
                raise RuntimeError("nothing is left to run, and the log is not closed")

    def halt(self) -> None:
        self._calls.clear()
        self._sync = None
        self._jobs.clear()

    def step(self) -> bool:
        """Run one call, the end of a sync, one job, or the work that is due. False if there is nothing to run."""
        has_call = self._sync is not None or bool(self._calls)
        ready = len(self._jobs) + has_call
        if not ready:
            return self._run_due_work()
        index = self._choose(ready) if self._choose is not None else 0
        if has_call and index == 0:
            self._run_call()
        else:
            self._jobs.pop(index - has_call)()
        return True

    def _run_call(self) -> None:
        assert self._work is not None, "start comes before the first call"
        is_due = self._work.due <= self._clock()
        call, self._sync = self._sync or self._calls.popleft(), None
        self._work.turn(call)
        if is_due and self._sync is None:
            self._run_due_work()

    def _run_due_work(self) -> bool:
        work = self._work
        if work is None or work.is_closed or work.due > self._clock():
            return False
        work.turn(None)
        return True

    def _run_at_once(self) -> None:
        """Run everything now, unless ``step`` controls the order or an outer call already does it."""
        if self._choose is not None or self._is_running:
            return
        self._is_running = True
        try:
            while self._calls or self._jobs:
                self.step()
        finally:
            self._is_running = False


def _do_nothing() -> None:
    """A call that only wakes the thread, so that it checks its state."""


def failure_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
