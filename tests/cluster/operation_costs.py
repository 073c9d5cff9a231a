"""The CPU time that a node spends on an operation of its store: ``python -m cluster.scale --operations URL``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from callboard.runtime.cluster.engines import open_store

CALLS = 1000
ROUND_BYTES = 5000
"""As large as a round of some fifty commits."""
PREFIX = "wal/cost-of-an-operation/"

Operation = Callable[[int], Awaitable[object]]


async def _measure(url: str) -> None:
    store = open_store(url, "callboard")
    keys = [f"{PREFIX}{number:010d}" for number in range(CALLS)]
    operations: dict[str, Operation] = {
        "create, 5,000 bytes": lambda number: store.create(keys[number], bytes(ROUND_BYTES)),
        "put, 1 byte": lambda _: store.put(f"{PREFIX}counter", b"1"),
        "get of 5 small keys": lambda _: store.get([f"{PREFIX}counter"] * 5),
    }
    try:
        for name, operation in operations.items():
            started_s = time.process_time()
            for number in range(CALLS):
                await operation(number)
            print(f"{name}: {1000 * (time.process_time() - started_s) / CALLS:.2f} ms of CPU")
    finally:
        await store.delete([*keys, f"{PREFIX}counter"])
        await store.close()


def print_operation_costs(url: str) -> None:
    """Its keys are of a session that never existed, and are deleted at the end."""
    asyncio.run(_measure(url))
