"""Operations of a store that end in time, whatever the engine does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..store import StoreUnavailable

T = TypeVar("T")


class Operations:
    """Runs operations of one store, each within a time limit. ``close`` ends them all.

    An operation that has not ended in time is cancelled. It may still have its effect later. Each runs in the task of
    its caller: a round of commits waits for one, and each further task would add two turns of the loop to it.
    """

    def __init__(self, engine: str, limit_s: float) -> None:
        self._engine = engine
        self._limit_s = limit_s
        self._running: set[asyncio.Timeout] = set()
        self._is_closed = False
        self._all_ended = asyncio.Event()

    async def run(self, what: str, operation: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """The operation's result. Raises StoreUnavailable after the limit, and when the store is closed."""
        if self._is_closed:
            operation.close()
            raise self._closed(what)
        limit_s = self._limit_s if limit_s is None else limit_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                self._running.add(limit)
                return await operation
        except TimeoutError:
            if not limit.expired():
                raise
            if self._is_closed:
                raise self._closed(what) from None
            raise StoreUnavailable(f"{self._engine} has not answered a {what} in {limit_s:g} s") from None
        finally:
            self._running.discard(limit)
            if not self._running:
                self._all_ended.set()

    async def close(self) -> None:
        """End all operations and wait until they have ended. A second call does nothing."""
        self._is_closed = True
        for limit in self._running:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        while self._running:
            self._all_ended.clear()
            await self._all_ended.wait()

    def _closed(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store is closed; the outcome of a {what} is unknown")
