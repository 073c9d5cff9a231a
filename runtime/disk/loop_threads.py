"""Threads for the log that run short calls on the event loop: then a round is written without another thread.

The log's thread and the event loop compete for the GIL: the log's thread needs it three times in each round, and waits
until the loop releases it. So the loop itself writes short rounds to the page cache, and the kernel syncs them.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import NamedTuple

from ..common.logs import get_logger
from .disk import Disk
from .kernel_sync import KernelSync, error_of_sync
from .threads import Call, JobPool, LogWork, OwnThreads, Then, Threads, always_long, failure_of

log = get_logger("callboard.log")


def new_threads(loop: AbstractEventLoop, disk: Disk) -> Threads:
    """The threads of a log: ``LoopThreads`` on a system that can sync in the background, else ``OwnThreads``.

    A subclass of ``Disk`` syncs in its own way, for example later, or with errors.
    """
    if type(disk) is Disk:
        try:
            return LoopThreads(loop, KernelSync.take())
        except OSError as error:
            log.debug("a thread syncs the journal, not the kernel in the background", reason=str(error))
    return OwnThreads()


class _Waiting(NamedTuple):
    """``call``: None for the work that is due."""

    call: Call | None
    is_short: Callable[[], bool]


class _SyncInProgress(NamedTuple):
    fd: int
    then: Then


class _Alarm:
    """Wakes the log's thread: when it has to run calls, or when work is due."""

    def __init__(self) -> None:
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        self._until_s = -inf

    def set(self, until_s: float) -> None:
        """The thread is going to sleep until this time. Called with the lock held, as ``set_earlier``."""
        self._until_s = until_s

    def set_earlier(self, until_s: float) -> None:
        """Wake the thread if it would sleep for longer."""
        if until_s < self._until_s:
            self._until_s = until_s
            self._wakes.put(False)

    def wake(self, *, has_calls: bool) -> None:
        self._wakes.put(has_calls)

    def sleep(self, seconds: float) -> bool:
        """Sleep until the alarm. Returns whether the thread has to run calls."""
        try:
            return self._wakes.get(timeout=None if seconds == inf else max(0.0, seconds))
        except Empty:
            return False


class LoopThreads(JobPool):
    """Runs short calls on the event loop and all others in a thread, but one after the other and in their order.

    Whoever has taken the work runs calls until none waits, or passes it on if the next call has to run elsewhere. As
    long as the kernel syncs, the work is taken, and no call runs.
    """

    def __init__(self, loop: AbstractEventLoop, kernel_sync: KernelSync) -> None:
        super().__init__()
        self._loop = loop
        self._kernel_sync = kernel_sync
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._is_taken = False
        self._is_passed_to_loop = False
        self._is_halted = False
        self._in_progress: _SyncInProgress | None = None  # only the loop's thread uses it
        self._loop_thread = 0  # its identifier; 0: all calls run in the log's thread
        self._thread: threading.Thread | None = None
        self._alarm = _Alarm()
        self._work: LogWork | None = None
        self._clock: Callable[[], float] = lambda: 0.0  # until ``start``

    # See Threads -----------------------------------------------------------------------------------------------------

    def start(self, work: LogWork, clock: Callable[[], float]) -> None:
        self._work, self._clock = work, clock
        self._thread = threading.Thread(target=self._run, args=(work,), name="callboard-log", daemon=True)
        self._thread.start()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._use_loop)

    def put(self, call: Call | None, is_short: Callable[[], bool] = always_long) -> None:
        """As ``Threads.put``; None for the work that is due."""
        with self._lock:
            self._waiting.append(_Waiting(call, is_short))
            is_free, self._is_taken = not self._is_taken, True
        if is_free:
            self._run_waiting()

    def sync(self, disk: Disk, fd: int, then: Then) -> None:
        if get_ident() == self._loop_thread:
            try:
                self._kernel_sync.start(fd)
            except OSError as error:
                self._loop_thread = 0
                log.info("a thread syncs the journal, not the kernel in the background", reason=str(error))
            else:
                self._in_progress = _SyncInProgress(fd, then)
                return
        then(failure_of(partial(disk.sync, fd)))

    def wait(self, event: threading.Event) -> None:
        """On the loop's thread, or while the loop runs."""
        loop_thread = self._leave_loop()
        event.wait()
        self._loop_thread = loop_thread or self._loop_thread

    def close(self) -> None:
        """On the loop's thread, or while the loop runs."""
        self._end(is_on_loop=self._leave_loop() != 0)

    def halt(self) -> None:
        """On the loop's thread, or while no call can run on it."""
        self._is_halted = True
        self._alarm.wake(has_calls=False)
        self._end(is_on_loop=self._leave_loop() != 0, drops_jobs=True)

    # On the loop -----------------------------------------------------------------------------------------------------

    def _use_loop(self) -> None:
        with suppress(NotImplementedError):
            self._loop.add_reader(self._kernel_sync.fileno(), self._end_sync)
            self._loop_thread = get_ident()

    def _end_sync(self) -> None:
        """Called by the loop when the kernel has signalled the end of a sync."""
        number = None if self._in_progress is None else self._kernel_sync.take_error_number()
        if self._in_progress is None or number is None:
            return
        (fd, then), self._in_progress = self._in_progress, None
        if not self._is_halted:
            self._turn(partial(then, error_of_sync(number, fd)))
        self._run_waiting()

    def _run_passed(self) -> None:
        with self._lock:
            is_passed, self._is_passed_to_loop = self._is_passed_to_loop, False
        if is_passed:
            self._run_waiting()

    def _leave_loop(self) -> int:
        """On the loop's thread: let all calls run in the log's thread from now on. Returns ``_loop_thread``, else 0.

        The loop's thread is about to wait for them, and the loop cannot run meanwhile.
        """
        loop_thread = self._loop_thread
        if get_ident() != loop_thread:
            return 0
        self._loop_thread = 0
        self._run_passed()
        while self._in_progress is not None:
            self._kernel_sync.wait()
            self._end_sync()
        return loop_thread

    # Everywhere ------------------------------------------------------------------------------------------------------

    def _run(self, work: LogWork) -> None:
        """The log's thread."""
        while not (work.is_closed or self._is_halted):
            with self._lock:
                is_due_waiting = any(waiting.call is None for waiting in self._waiting)
                due = inf if is_due_waiting else work.due
                self._alarm.set(due)
            if self._alarm.sleep(due - self._clock()):
                self._run_waiting()
            elif work.due <= self._clock() and not is_due_waiting:
                self.put(None)

    def _run_waiting(self) -> None:
        """Run the next calls as long as they belong in this thread. The work is taken."""
        while (waiting := self._next()) is not None:
            self._turn(waiting.call)
            if self._in_progress is not None:
                return

    def _turn(self, call: Call | None) -> None:
        assert self._work is not None, "start comes before the first call"
        self._work.turn(call)

    def _next(self) -> _Waiting | None:
        """The next call, if it belongs in this thread. Otherwise the work is passed on, or not taken any more."""
        with self._lock:
            if not self._waiting or self._is_halted:
                self._is_taken = False
                if self._work is not None:
                    self._alarm.set_earlier(self._work.due)
                return None
            runs_on_loop = self._loop_thread != 0 and self._waiting[0].is_short()
            if get_ident() == (self._loop_thread if runs_on_loop else self._thread_id):
                return self._waiting.popleft()
            self._is_passed_to_loop = runs_on_loop
        self._pass_on(to_loop=runs_on_loop)
        return None

    def _pass_on(self, *, to_loop: bool) -> None:
        if to_loop:
            try:
                self._loop.call_soon_threadsafe(self._run_passed)
                return
            except RuntimeError:  # the loop is closed
                self._loop_thread = 0
        self._alarm.wake(has_calls=True)

    @property
    def _thread_id(self) -> int:
        return 0 if self._thread is None else self._thread.ident or 0

    # The end ---------------------------------------------------------------------------------------------------------

    def _end(self, *, is_on_loop: bool, drops_jobs: bool = False) -> None:
        """Wait for the threads, and release what the loop watches."""
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=drops_jobs)
        if self._thread is None or is_on_loop:
            self._release()
            return
        try:
            self._loop.call_soon_threadsafe(self._release)
        except RuntimeError:  # the loop is closed
            self._kernel_sync.release()

    def _release(self) -> None:
        if self._thread is not None:
            self._loop.remove_reader(self._kernel_sync.fileno())
        self._kernel_sync.release()
