"""Waiting in a thread for a coroutine on another thread's event loop. The wait ends if that loop is closed.

A coroutine that is submitted in the moment in which the loop closes never runs, and its future is never done.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

CHECK_INTERVAL_S = 0.5
"""How often a waiting thread checks whether the loop is closed."""


_process_ids: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


class LoopClosed(Exception):
    """The loop was closed, and the result will never come."""


class OwnLoop(RuntimeError):
    """The wait is on the thread of the loop that it waits for."""

    def __init__(self) -> None:
        super().__init__(
            "a blocking call on the thread of the event loop that has to answer it would wait for ever: call it in "
            "another thread, as with asyncio.to_thread(), or use the asynchronous form"
        )


class NoAsyncioLoop(RuntimeError):
    """The asynchronous form is used without an asyncio loop, as in a program that trio runs."""

    def __init__(self) -> None:
        super().__init__(
            "no asyncio event loop is running: use the blocking form, callboard.Coordinator.in_thread() or "
            "callboard.connect_in_thread(), and call it in a thread, as with trio.to_thread.run_sync()"
        )


class GreenThreads(RuntimeError):
    """The threads of this process are greenlets, which share one event loop with their callers."""

    def __init__(self, patched_by: str, call: str) -> None:
        super().__init__(
            f"{patched_by} has replaced the threads of this process, and the blocking form needs threads of the "
            f"operating system: patch with {call}, or use the asynchronous form or another process"
        )


class LoopOfParent(RuntimeError):
    """The loop runs in a thread of the parent process. This one was forked, without that thread."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked without the thread that runs the event loop: make a Coordinator here, or reach "
            "that of the parent, which needs listen='127.0.0.1:0', with callboard.connect_in_thread(bootstrap)"
        )


def require_asyncio_loop() -> asyncio.AbstractEventLoop:
    """The running loop. Raises NoAsyncioLoop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise NoAsyncioLoop from None


def require_os_threads() -> None:
    """Raises GreenThreads if gevent or eventlet has patched threads."""
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise GreenThreads("gevent", "monkey.patch_all(thread=False)")
    eventlet: Any = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise GreenThreads("eventlet", "eventlet.monkey_patch(thread=False)")


def serve_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Called where the loop begins to run, so that ``run_on_loop`` recognises it in a forked process."""
    _process_ids[loop] = os.getpid()


def is_of_parent(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop runs in another process, of which this one is a fork: a wait for it would never end."""
    return _process_ids.get(loop) not in (None, os.getpid())


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def wait_for(future: Future[T], loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> T:
    """The result of a future of ``run_coroutine_threadsafe``. Raises its error, TimeoutError or LoopClosed."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = CHECK_INTERVAL_S if end_s is None else max(end_s - time.monotonic(), 0)
        try:
            return future.result(min(left_s, CHECK_INTERVAL_S))
        except TimeoutError:
            if future.done():
                return future.result()  # it has just become done, or its error is a TimeoutError
            if loop.is_closed():
                raise LoopClosed("the event loop has ended") from None
            if left_s <= CHECK_INTERVAL_S and end_s is not None:
                raise


def run_on_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> T:
    """Run a coroutine on the loop of another thread, and wait for its result.

    Raises the coroutine's error, CancelledError, TimeoutError, LoopClosed, LoopOfParent or OwnLoop. After an interrupt
    or a timeout the coroutine is cancelled.
    """
    if is_of_parent(loop):
        work.close()
        raise LoopOfParent
    if _is_running_here(loop):
        work.close()
        raise OwnLoop
    cancellable = _Cancellable(work)
    running: Coroutine[Any, Any, T] = cancellable.run()
    try:
        return wait_for(_submit(running, loop), loop, timeout_s)
    except BaseException:
        cancellable.cancel(loop)
        raise
    finally:
        if loop.is_closed():  # then neither has ended, or both have
            running.close()
            work.close()


def _submit(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:
        raise LoopClosed("the event loop has ended") from None


class _Cancellable:
    """A coroutine that another thread's loop runs. ``cancel`` works even if an interrupt left no future to cancel."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    async def run(self) -> Any:
        if self._is_cancelled:
            self._work.close()
            raise CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the coroutine, if it has not ended."""
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(self._cancel_on_loop)

    def _cancel_on_loop(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
