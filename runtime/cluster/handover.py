"""Handover: gives partitions of a session to other nodes, a few at once, while it goes on with the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from .keys import manifest_key
from .register import Register, planned_owners
from .session_environment import LOOKS_PER_TTL, SessionEnvironment
from .session_log import SessionLog
from .store import Store

PARTITIONS_AT_ONCE = 8
"""Few, because none of them is served before the next owners have loaded them."""
FROM_GIVER_TO_TAKER = 2
"""The giver creates one more manifest, and the next owner the one after it."""
TAKEN_PAUSE_S = 0.02

Change = Callable[[Callable[[Register], Register | None]], Awaitable[object]]


class Handover:
    """``store`` is patient. ``lose`` tells the listener; ``change`` changes the register."""

    def __init__(
        self,
        store: Store,
        environment: SessionEnvironment,
        log: SessionLog,
        lose: Callable[[Collection[int]], None],
        change: Change,
    ) -> None:
        self._store = store
        self._environment = environment
        self._log = log
        self._lose = lose
        self._change = change
        self._giving: dict[int, asyncio.Event] = {}  # set when nothing is appended to the partition any more

    def surplus(self, register: Register) -> list[int]:
        """The partitions that are loaded and that other nodes should have."""
        wanted = planned_owners(register)
        return [partition for partition in self._log.held if wanted[partition] != self._log.session]

    def release(self, partition: int) -> None:
        """Nothing is appended to the partition any more."""
        if partition in self._giving:
            self._giving[partition].set()

    async def give(self, partitions: Sequence[int]) -> None:
        """A checkpoint before shortens the time in which nobody serves them. Raises Fenced."""
        await self._log.checkpoint()
        for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
            await self._give_at_once(partitions[first : first + PARTITIONS_AT_ONCE])

    async def _give_at_once(self, partitions: Collection[int]) -> None:
        held, session = self._log.held, self._log.session
        manifests = [manifest_key(p, held[p].manifest.version + FROM_GIVER_TO_TAKER) for p in partitions]
        await self.close(partitions)

        def with_other_owners(register: Register) -> Register | None:
            wanted = planned_owners(register)
            owned = [partition for partition in partitions if register.owners[partition] == session]
            return register.given({partition: wanted[partition] for partition in owned}) if owned else None

        await self._change(with_other_owners)
        await self._wait_for(manifests)

    async def _wait_for(self, keys: Sequence[str]) -> None:
        """Until the next owners have created these manifests, for a short time at most. So no loads wait for others."""
        now = self._environment.now
        until_s = now() + self._environment.ttl_s / LOOKS_PER_TTL
        while None in await self._store.get(keys) and now() < until_s:
            await self._environment.sleep(TAKEN_PAUSE_S)

    async def close(self, partitions: Collection[int]) -> None:
        """Let the listener stop, then write the last manifests. Raises Fenced."""
        self._giving = {partition: asyncio.Event() for partition in partitions if partition in self._log.held}
        self._lose(partitions)
        for is_released in self._giving.values():
            await is_released.wait()
        await self._log.close(partitions)
