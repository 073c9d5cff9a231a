"""A store in memory, which several nodes of one process share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from callboard.runtime.cluster.store import StoreUnavailable, check_key


class Memory:
    """What the stores of all nodes have in common."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changes = 0
        self.changed = asyncio.Condition()


class MemoryStore:
    """A ``Store`` of one node. Each operation takes a turn of the loop, so concurrent ones interleave."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._seen_changes = 0
        self._is_closed = False

    async def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        await self._turn()
        return self._memory.values.setdefault(key, value) is value

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        await self._turn()
        return [self._memory.values.get(key) for key in keys]

    async def put(self, key: str, value: bytes) -> None:
        check_key(key)
        await self._turn()
        self._memory.values[key] = value

    async def list(self, prefix: str, after: str = "") -> list[str]:
        await self._turn()
        return sorted(key for key in self._memory.values if key.startswith(prefix) and key > after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._turn()
        for key in keys:
            self._memory.values.pop(key, None)

    async def sync(self) -> None:
        await self._turn()

    async def announce_change(self) -> None:
        await self._turn()
        async with self._memory.changed:
            self._memory.changes += 1
            self._memory.changed.notify_all()

    async def wait_for_change(self, timeout_s: float) -> None:
        await self._turn()
        try:
            async with asyncio.timeout(timeout_s), self._memory.changed:
                await self._memory.changed.wait_for(lambda: self._memory.changes > self._seen_changes)
        except TimeoutError:
            pass
        self._seen_changes = self._memory.changes

    async def close(self) -> None:
        self._is_closed = True

    async def _turn(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        await asyncio.sleep(0)
