"""The engines under test, each as a function that opens stores of nodes that share their data."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn

import pytest

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.store import Store
from callboard.runtime.testing.simulation.loop import run as run_in_virtual_time

from .memory_store import Memory, MemoryStore
from .simulated_store import SimulatedStore, StoreFaults

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
    run_loop: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run

    def run(self, body: Callable[[Opener], Awaitable[None]]) -> None:
        """Run a test on an event loop, and close all stores that it has opened."""
        self.run_loop(asyncio.wait_for(self._run(body), DEADLINE_S))

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


def simulated_case() -> EngineCase:
    """What the seeds of the cluster run on. Its slow operations overtake each other, and each one is answered."""

    def make_opener() -> Opener:
        store = SimulatedStore(random.Random(7), StoreFaults(slow=0.2, latency_s=0.02))
        return lambda client: store.client()

    return EngineCase("simulated", make_opener, run_loop=run_in_virtual_time)


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
