"""A thread waits for what another thread's event loop runs, and does not wait for ever if that loop ends.

What is handed to a loop in the moment in which it closes is never run, and its future never done.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import TypeVar

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
