"""ThreadPool: threads that also work when the main thread has ended, for as long as the process runs.

Python's own pools refuse all work from then on. But other threads may still use a coordinator, and one may be stopped
in an ``atexit`` function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Work(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.call()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class ThreadPool(ThreadPoolExecutor):
    """A pool of daemon threads, each started with the first work for which no other one is idle.

    It is a ThreadPoolExecutor because ``loop.set_default_executor`` accepts nothing else. Where no thread can be
    started, as at the very end of a process, the caller's thread does the work.
    """

    def __init__(self, threads_max: int | None, name: str) -> None:
        """``threads_max``: None for as many as Python's pools have."""
        super().__init__(threads_max, name)
        self._name = name
        self._threads_max = self._max_workers
        self._workers: list[threading.Thread] = []
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        work = _Work(Future(), lambda: fn(*args, **kwargs))
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"the pool of threads '{self._name}' is closed")
            self._queue.put(work)
            has_thread = self._has_idle_thread() or self._starts_thread() or bool(self._workers)
            if not has_thread:
                self._queue.get()
        if not has_thread:
            work.run()
        return work.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The threads end when all work is done. ``cancel_futures``: work that has not begun is dropped."""
        with self._lock:
            self._is_closed = True
            while cancel_futures:
                try:
                    work = self._queue.get_nowait()
                except Empty:
                    break
                if work is not None:
                    work.future.cancel()
            for _ in self._workers:
                self._queue.put(None)
        if wait:
            for thread in self._workers:
                thread.join()

    def __del__(self) -> None:
        for _ in self._workers:
            self._queue.put(None)

    def _has_idle_thread(self) -> bool:
        return self._idle.acquire(blocking=False)

    def _starts_thread(self) -> bool:
        if len(self._workers) == self._threads_max:
            return False
        name = f"{self._name}_{len(self._workers)}"
        thread = threading.Thread(target=_work, args=(self._queue, self._idle), name=name, daemon=True)
        with suppress(RuntimeError):  # the process ends, or has too many threads
            thread.start()
            self._workers.append(thread)
            return True
        return False


def _work(queue: SimpleQueue[_Work | None], idle: threading.Semaphore) -> None:
    """Without the pool, so that a pool that nobody closes ends its threads when it is deleted."""
    while (work := _next(queue, idle)) is not None:
        work.run()
        del work  # its result may be large


def _next(queue: SimpleQueue[_Work | None], idle: threading.Semaphore) -> _Work | None:
    try:
        return queue.get_nowait()
    except Empty:
        idle.release()
        return queue.get()
