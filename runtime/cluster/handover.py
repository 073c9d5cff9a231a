"""Handover: gives partitions of a session to other nodes, a few at once, while it goes on with the others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence

from .keys import manifest_key
from .register import Register, planned_owners
from .session_environment import SessionEnvironment
from .session_log import SessionLog
from .store import Store

PARTITIONS_AT_ONCE = 8
BATCHES = 12
"""So many at least, while there are enough partitions: those of a batch are not served until they are loaded, and a
node that has joined loads what all others give it at the same time."""
PATIENCE_PER_TTL = 4
"""A batch is given this part of a TTL after the one before it at the latest: the next owner of that one may be dead."""
FROM_GIVER_TO_TAKER = 2
"""The giver creates one more manifest, and the next owner the one after it."""
TAKEN_PAUSE_S = 0.02

Change = Callable[[Callable[[Register], Register | None]], Awaitable[Register | None]]


def batch_size(count: int) -> int:
    """How many of ``count`` partitions are given away at once."""
    return min(PARTITIONS_AT_ONCE, max(1, math.ceil(count / BATCHES)))


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
        size = batch_size(len(partitions))
        for first in range(0, len(partitions), size):
            if not await self._give_at_once(partitions[first : first + size]):
                break

    async def _give_at_once(self, partitions: Collection[int]) -> bool:
        """Whether there is a node to give more to. Others that leave as well load nothing: nobody waits for them."""
        held, session = self._log.held, self._log.session
        manifests = {p: manifest_key(p, held[p].manifest.version + FROM_GIVER_TO_TAKER) for p in partitions}
        await self.close(partitions)

        def with_other_owners(register: Register) -> Register | None:
            wanted = planned_owners(register)
            owned = [partition for partition in partitions if register.owners[partition] == session]
            return register.given({partition: wanted[partition] for partition in owned}) if owned else None

        changed = await self._change(with_other_owners)
        if changed is None:
            return True
        taking = {other for other, node in changed.nodes.items() if other != session and not node.is_draining}
        if awaited := [key for partition, key in manifests.items() if changed.owners[partition] in taking]:
            await self._wait_for(awaited)
        return bool(taking)

    async def _wait_for(self, keys: Sequence[str]) -> None:
        """Until the next owners have created these manifests, for a short time at most. So no loads wait for others."""
        now = self._environment.now
        until_s = now() + self._environment.ttl_s / PATIENCE_PER_TTL
        while None in await self._store.get(keys) and now() < until_s:
            await self._environment.sleep(TAKEN_PAUSE_S)

    async def close(self, partitions: Collection[int]) -> None:
        """Let the listener stop, then write the last manifests. Raises Fenced."""
        self._giving = {partition: asyncio.Event() for partition in partitions if partition in self._log.held}
        self._lose(partitions)
        for is_released in self._giving.values():
            await is_released.wait()
        await self._log.close(partitions)
