"""KeptPage: a page of metrics that is made once for all who ask for it at the same time, or soon afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

PAGE_KEPT_S = 1.0


class KeptPage:
    """A page that is made once for all who ask for it at the same time, or within ``PAGE_KEPT_S`` afterwards.

    So the cost of scrapes does not depend on their number. All methods are called on one loop.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, bytes]], clock_s: Callable[[], float]) -> None:
        self._make = make
        self._clock_s = clock_s
        self._making: asyncio.Task[bytes] | None = None
        self._page = b""
        self._kept_until_s = -inf

    async def get(self) -> bytes:
        if self._clock_s() < self._kept_until_s:
            return self._page
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._remake())
        return await asyncio.shield(self._making)  # one who stops waiting must not cancel it for the others

    async def _remake(self) -> bytes:
        try:
            self._page = await self._make()
            self._kept_until_s = self._clock_s() + PAGE_KEPT_S
            return self._page
        finally:
            self._making = None
