"""The engines under test, each as a function that opens stores of nodes that share their data."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NoReturn

import pytest

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.store import Store

from .memory_store import Memory, MemoryStore

Opener = Callable[[str], Store]
"""Makes the store of a node, given its name."""

DEADLINE_S = 240.0
NUMBERS = count(1)


@dataclass
class EngineCase:
    """An engine with data that no other test uses, if it keeps to keys with ``session`` in them."""

    name: str
    make_opener: Callable[[], Opener]
    announces: bool = True
    """Whether a waiting node learns of a change at once."""
    session: str = field(default_factory=lambda: f"s{next(NUMBERS)}")

    def run(self, body: Callable[[Opener], Awaitable[None]]) -> None:
        """Run a test on an event loop, and close all stores that it has opened."""
        asyncio.run(asyncio.wait_for(self._run(body), DEADLINE_S))

    async def _run(self, body: Callable[[Opener], Awaitable[None]]) -> None:
        stores: list[Store] = []
        make = self.make_opener()

        def opened(client: str) -> Store:
            stores.append(make(client))
            return stores[-1]

        try:
            await body(opened)
        finally:
            for store in stores:
                await store.close()

    def key(self, name: object) -> str:
        return f"wal/{self.session}/{name}"


def memory_case() -> EngineCase:
    def make_opener() -> Opener:
        memory = Memory()
        return lambda client: MemoryStore(memory)

    return EngineCase("memory", make_opener)


@dataclass
class NetworkCase:
    """An engine behind a port of this machine. ``make``: a store of short time limits, by port and node."""

    name: str
    port: int
    make: Callable[[int, str], Store]
    session: str = field(default_factory=lambda: f"s{next(NUMBERS)}")

    def key(self, name: object) -> str:
        return f"wal/{self.session}/{name}"


def url_case(name: str, url: str, *, announces: bool = True) -> EngineCase:
    return EngineCase(name, lambda: lambda client: open_store(url, client), announces)


def skip_or_fail(reason: str) -> NoReturn:
    """A developer's machine may lack an engine, but CI must not pass without it."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI the tests of the engines are not optional: {reason}")
    pytest.skip(reason)
