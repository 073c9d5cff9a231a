"""BackgroundThread: one thread for work of groups that would block the event loop."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Job = tuple[Callable[[], Any], Callable[[Any], None]]


class BackgroundThread:
    """``BackgroundWork`` in a daemon thread, one piece of work after the other. It starts with the first."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if self._thread is None and not self._start():
            done(work())
        else:
            self._queue.put((work, done))

    def _start(self) -> bool:
        """False where no thread can be started, as at the very end of a process."""
        thread = threading.Thread(target=_run_all, args=(self._queue,), name="callboard-background", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        weakref.finalize(self, self._queue.put, None)  # the thread ends with the node
        self._thread = thread
        return True

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def end(self) -> None:
        """Wait until all work is done, and end the thread. There must be no work afterwards."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()


def _run_all(queue: SimpleQueue[Job | None]) -> None:
    while (job := queue.get()) is not None:
        work, done = job
        done(work())
