"""SimulatedStore: the store of a simulated cluster, in virtual time.

Effects land some time after they were sent, and answers arrive some time after that. A request or an answer may be
slow or lost; an effect may land long after the sender gave up, and a create twice. A node may be cut off from the
store. Values that were stored are never lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, NamedTuple, TypeVar

from callboard.runtime.cluster.store import StoreUnavailable, check_key

T = TypeVar("T")
TIMEOUT_S = 1.0


class StoreFaults(NamedTuple):
    """Probabilities per operation, and times in seconds."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    conflict: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    twice: float = 0.0
    latency_s: float = 0.002
    late_s: float = 15.0


class SimulatedStore:
    """``values`` by key; ``deleted``: keys that were deleted, with their last value.

    ``operations`` and ``changes``: how many there were, and how many changes were announced.
    """

    def __init__(self, draw: random.Random, faults: StoreFaults) -> None:
        self.values: dict[str, bytes] = {}
        self.deleted: dict[str, bytes] = {}
        self.faults = faults
        self.operations = self.changes = 0
        self.waiters: list[asyncio.Future[None]] = []
        self._draw = draw

    def latency_s(self) -> float:
        return self.faults.latency_s * (0.2 + 1.6 * self._draw.random())

    def happens(self, probability: float) -> bool:
        return probability > 0 and self._draw.random() < probability

    def lateness_s(self) -> float:
        return self.faults.late_s * self._draw.random() ** 2

    def slowness_s(self) -> tuple[float, float]:
        """How much longer a request takes, and its answer. A slow operation is still answered in time."""
        if not self.happens(self.faults.slow):
            return 0.0, 0.0
        slow_s = 0.7 * TIMEOUT_S * self._draw.random()
        return (slow_s, 0.0) if self.happens(0.5) else (0.0, slow_s)

    def client(self) -> NodeStore:
        return NodeStore(self)

    # Effects ---------------------------------------------------------------------------------------------------------

    def create(self, key: str, value: bytes) -> bool:
        return self.values.setdefault(key, value) is value

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def list(self, prefix: str, after: str) -> list[str]:
        return sorted([key for key in self.values if key.startswith(prefix) and key > after])

    def delete(self, key: str) -> None:
        if key in self.values:
            self.deleted[key] = self.values.pop(key)

    def announce(self) -> None:
        self.changes += 1
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class NodeStore:
    """``Store`` as one node sees it. ``is_cut``: nothing reaches the store, and no answer comes back."""

    def __init__(self, store: SimulatedStore) -> None:
        self.is_cut = False
        self._store = store
        self._seen_changes = store.changes
        self._is_closed = False
        self._answers: dict[asyncio.Future[Any], None] = {}  # those on their way, in their order

    async def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        self._check_open()
        if self._store.happens(self._store.faults.conflict):
            await asyncio.sleep(self._store.latency_s())
            return False  # as S3's 409: nothing landed
        may_land_twice = self._store.happens(self._store.faults.twice)
        return await self._do(lambda: self._store.create(key, value), may_be_late=True, may_land_twice=may_land_twice)

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._do(lambda: self._store.get(keys))

    async def put(self, key: str, value: bytes) -> None:
        check_key(key)
        await self._do(lambda: self._store.put(key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await self._do(lambda: self._store.list(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        """Each key goes at its own time, also if the answer is lost."""
        await self._do(lambda: self._delete_each(keys), may_be_late=True)

    def _delete_each(self, keys: Sequence[str]) -> None:
        loop, store = asyncio.get_running_loop(), self._store
        for key in keys:
            lasts_s = store.lateness_s() if store.happens(store.faults.late) else 0.0
            loop.call_later(lasts_s, store.delete, key, context=Context())

    async def sync(self) -> None:
        await self._do(lambda: None)

    async def announce_change(self) -> None:
        await self._do(self._store.announce)

    async def wait_for_change(self, timeout_s: float) -> None:
        self._check_open()
        if self.is_cut or self._seen_changes == self._store.changes:
            waiter = asyncio.get_running_loop().create_future()
            if not self.is_cut:
                self._store.waiters.append(waiter)
            await asyncio.wait({waiter}, timeout=timeout_s)
        self._seen_changes = self._store.changes

    async def close(self) -> None:
        self._is_closed = True
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the store was closed"))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store was closed")

    async def _do(self, effect: Callable[[], T], *, may_be_late: bool = False, may_land_twice: bool = False) -> T:
        """Send an operation. The effect is the store's, so it lands also if the node is frozen or dead by then.

        Every answer that arrives does so before the timeout, so only an operation without one needs a timer.
        """
        self._check_open()
        store, loop, sender = self._store, asyncio.get_running_loop(), copy_context()
        timeout_at_s = loop.time() + TIMEOUT_S
        store.operations += 1
        answer: asyncio.Future[T] = loop.create_future()
        self._answers[answer] = None
        slow_request_s, slow_answer_s = store.slowness_s()

        def land(answers: bool) -> None:
            result = effect()
            if answers:
                loop.call_later(slow_answer_s + store.latency_s() / 2, arrive, result, context=Context())

        def arrive(result: T) -> None:
            if self.is_cut:
                loop.call_at(timeout_at_s, _give_up, answer, context=sender)
            elif not answer.done():
                answer.set_result(result)

        answers = False
        if not self.is_cut and not store.happens(store.faults.lost_request):
            is_late = may_be_late and store.happens(store.faults.late)
            answers = not is_late and not store.happens(store.faults.lost_answer)
            lands_s = slow_request_s + (store.lateness_s() if is_late else store.latency_s() / 2)
            loop.call_later(lands_s, land, answers, context=Context())
            if may_land_twice:
                loop.call_later(lands_s + store.lateness_s(), land, False, context=Context())
        if not answers:
            loop.call_at(timeout_at_s, _give_up, answer, context=sender)
        try:
            return await answer
        finally:
            del self._answers[answer]


def _give_up(answer: asyncio.Future[T]) -> None:
    if not answer.done():
        answer.set_exception(StoreUnavailable("no answer in time"))
