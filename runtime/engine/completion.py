"""Cleanup that a cancellation of its caller does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Await ``work`` to its end, however often the caller is cancelled meanwhile. Raises CancelledError after that.

    A caller may be cancelled more than once: a cancelled scope of anyio, which FastAPI and Starlette use, cancels its
    tasks again at each of their waits.
    """
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    return task.result()
