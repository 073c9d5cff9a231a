"""What the log's work runs on: its own thread and a small pool, or, for tests and simulations, the caller alone.

The work itself (``writer.RoundWriter``) knows no thread. It is handed calls, one after the other, and hands out jobs,
which may take long and then report by such a call. So the same work runs in a server, where a sync must not hold up the
loop, and step by step on one thread, where a seed decides what comes next.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from queue import Empty, SimpleQueue
from typing import Protocol

Call = Callable[[], None]

POOL_THREADS = 8  # more do not make fifty syncs faster


class Work(Protocol):
    """What runs in one thread, call by call."""

    @property
    def due(self) -> float:
        """When it wants a turn even if no call comes, in seconds of its clock; ``inf`` for never."""

    @property
    def is_closed(self) -> bool:
        """Whether it wants no turn any more."""

    def turn(self, call: Call | None) -> None:
        """Do a call, or, with None, see what is due. Raises nothing."""


class Threads(Protocol):
    """Where a log's work runs. Each log has its own."""

    def start(self, work: Work, clock: Callable[[], float]) -> None:
        """From now on give turns to ``work``."""

    def put(self, call: Call) -> None:
        """Have a call done in the thread of the work, behind those before it. From any thread."""

    def submit(self, job: Call) -> None:
        """Have a job done elsewhere. It raises nothing."""

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        """Do all calls, side by side, to their end; what each raised. From within a job, or before ``start``."""

    def wait(self, event: threading.Event) -> None:
        """Until the work, or a job, has set the event. From outside of both."""

    def close(self) -> None:
        """Until the work is closed and all threads have ended. OffsetsLog calls it even if it never started."""

    def halt(self) -> None:
        """Until what is under way is over; nothing that waits is begun any more."""


class OwnThreads:
    """A thread for the work and a pool for its jobs; the pool is started when it is needed first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._pool = ThreadPoolExecutor(POOL_THREADS, "callboard-log-files")
        self._work: Work
        self._clock: Callable[[], float]
        self._thread: threading.Thread | None = None
        self._is_halted = False

    def start(self, work: Work, clock: Callable[[], float]) -> None:
        self._work, self._clock = work, clock
        self._thread = threading.Thread(target=self._run, name="callboard-log", daemon=True)
        self._thread.start()

    def put(self, call: Call) -> None:
        self._calls.put(call)

    def submit(self, job: Call) -> None:
        self._pool.submit(job)

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        futures = [self._pool.submit(call) for call in calls]
        return [_failure_of(future.result) for future in futures]

    def wait(self, event: threading.Event) -> None:
        event.wait()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown()

    def halt(self) -> None:
        self._is_halted = True
        self._calls.put(_nothing)
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        work = self._work
        while not (work.is_closed or self._is_halted):
            work.turn(self._next(work.due))

    def _next(self, due: float) -> Call | None:
        """What comes next; None when something is due before that."""
        if due == inf:
            return self._calls.get()
        try:
            return self._calls.get(timeout=max(0.0, due - self._clock()))
        except Empty:
            return None


class Inline:
    """No thread at all: everything runs on the thread that calls, and in the same order every time.

    Without ``choose`` a call is done at once, with all jobs that it leads to. With it, calls and jobs wait for
    ``step``, and each time ``choose(n)`` says which of the ``n`` that could be next is: 0 is the next call if there is
    one, then come the jobs in the order in which they were handed out. So ``choose=random.Random(seed).randrange``
    tries another order with every seed, and rounds go on while a checkpoint is still to run.
    """

    def __init__(self, choose: Callable[[int], int] | None = None) -> None:
        self._choose = choose
        self._calls: deque[Call] = deque()
        self._jobs: list[Call] = []
        self._work: Work | None = None
        self._clock: Callable[[], float]
        self._is_running = False

    def start(self, work: Work, clock: Callable[[], float]) -> None:
        self._work, self._clock = work, clock

    def put(self, call: Call) -> None:
        self._calls.append(call)
        self._run_at_once()

    def submit(self, job: Call) -> None:
        self._jobs.append(job)
        self._run_at_once()

    def each(self, calls: Sequence[Call]) -> list[Exception | None]:
        return [_failure_of(call) for call in calls]

    def wait(self, event: threading.Event) -> None:
        while not event.is_set():
            if not self.step():
                raise RuntimeError("the log waits for something that nobody will do")

    def close(self) -> None:
        while self._work is not None and not self._work.is_closed:
            if not self.step():
                raise RuntimeError("the log has nothing left to do and is not closed")

    def halt(self) -> None:
        self._calls.clear()
        self._jobs.clear()

    def step(self) -> bool:
        """Do one thing: a call, a job, or what is due by the clock. False when there is nothing."""
        work = self._work
        ready = len(self._jobs) + bool(self._calls)
        if not ready:
            if work is None or work.is_closed or work.due > self._clock():
                return False
            work.turn(None)
            return True
        index = self._choose(ready) if self._choose is not None else 0
        if self._calls and index == 0:
            assert work is not None, "start comes before the first call"
            work.turn(self._calls.popleft())
        else:
            self._jobs.pop(index - bool(self._calls))()
        return True

    def _run_at_once(self) -> None:
        """Unless ``step`` does it, or one that is under way will."""
        if self._choose is not None or self._is_running:
            return
        self._is_running = True
        try:
            while self._calls or self._jobs:
                self.step()
        finally:
            self._is_running = False


def _nothing() -> None:
    """Wakes a thread, so that it sees what has changed."""


def _failure_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
