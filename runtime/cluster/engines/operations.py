"""Operations of a store that end in time, whatever the engine does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..store import StoreUnavailable

T = TypeVar("T")


class Operations:
    """Runs operations of one store, each within a time limit. ``close`` ends them all.

    An operation that has not ended in time is cancelled. It may still have its effect later.
    """

    def __init__(self, engine: str, limit_s: float) -> None:
        self._engine = engine
        self._limit_s = limit_s
        self._running: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Future[None] | None = None

    async def run(self, what: str, operation: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """The operation's result. Raises StoreUnavailable after the limit, and when the store is closed."""
        limit_s = self._limit_s if limit_s is None else limit_s
        closing = self._closing_future()
        if closing.done():
            operation.close()
            raise self._closed(what)
        task = asyncio.create_task(operation)
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            either: set[asyncio.Future[Any]] = {task, closing}
            await asyncio.wait(either, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if task.done() and not task.cancelled():
            return task.result()
        if closing.done():
            raise self._closed(what)
        raise StoreUnavailable(f"{self._engine} has not answered a {what} in {limit_s:g} s")

    async def close(self) -> None:
        """End all operations and wait until they have ended. A second call does nothing."""
        closing = self._closing_future()
        if not closing.done():
            closing.set_result(None)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _closing_future(self) -> asyncio.Future[None]:
        """Made at first use, because there may be no event loop before."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        return self._closing

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

    def _closed(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store is closed; the outcome of a {what} is unknown")
