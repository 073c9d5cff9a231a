"""A thread waits for what another thread's event loop runs, and does not wait for ever if that loop ends.

What is handed to a loop in the moment in which it closes is never run, and its future never done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_S = 0.5
"""How often a thread that waits looks whether there is still somebody to wait for."""


class LoopClosed(Exception):
    """The loop was closed, and the result will never come."""


def wait_for(future: Future[T], loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> T:
    """The result of what ``run_coroutine_threadsafe`` has begun. Raises what that raises, TimeoutError, LoopClosed."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = LOOK_S if end_s is None else max(end_s - time.monotonic(), 0)
        try:
            return future.result(min(left_s, LOOK_S))
        except TimeoutError:
            if future.done():
                return future.result()  # it came just now, or is itself a TimeoutError
            if loop.is_closed():
                raise LoopClosed("the event loop has ended") from None
            if left_s <= LOOK_S and end_s is not None:
                raise


def run_on_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> T:
    """Run a coroutine on the loop of another thread, and wait for its result.

    Raises what the coroutine raises, CancelledError, TimeoutError, LoopClosed. After an interrupt or a timeout the
    coroutine is cancelled.
    """
    handed_over = _HandedOver(work)
    running: Coroutine[Any, Any, T] = handed_over.run()
    try:
        return wait_for(_submitted(running, loop), loop, timeout_s)
    except BaseException:
        handed_over.give_up(loop)
        raise
    finally:
        if loop.is_closed():  # then neither has ended, or both have
            running.close()
            work.close()


def _submitted(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:
        raise LoopClosed("the event loop has ended") from None


class _HandedOver:
    """A coroutine on its way to a loop in another thread. An interrupt may come before the thread knows its future."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False

    async def run(self) -> Any:
        if self._is_given_up:
            self._work.close()
            raise CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the coroutine, if it has not ended."""
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()
