"""ScaleStore: a simulated store for many nodes. It counts the operations, the keys and the bytes of each kind."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence

from .simulated_store import NodeStore, SimulatedStore, StoreFaults


class ScaleStore(SimulatedStore):
    """``counts``: operations by kind, and also ``keys read``, ``bytes read``, ``bytes written``."""

    def __init__(self, draw: random.Random, latency_s: float) -> None:
        super().__init__(draw, StoreFaults(latency_s=latency_s))
        self.counts: Counter[str] = Counter()
        self._keys: list[str] = []

    def client(self) -> NodeStore:
        return CountingStore(self)

    def create(self, key: str, value: bytes) -> bool:
        self._note_write("create", key, value)
        return super().create(key, value)

    def put(self, key: str, value: bytes) -> None:
        self._note_write("put", key, value)
        super().put(key, value)

    def _note_write(self, kind: str, key: str, value: bytes) -> None:
        self.counts[kind] += 1
        self.counts["bytes written"] += len(value)
        if key not in self.values:
            insort(self._keys, key)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values = super().get(keys)
        self.counts["get"] += 1
        self.counts["keys read"] += len(keys)
        self.counts["bytes read"] += sum(len(value) for value in values if value is not None)
        return values

    def list(self, prefix: str, after: str) -> list[str]:
        self.counts["list"] += 1
        keys = self._keys
        return keys[max(bisect_left(keys, prefix), bisect_right(keys, after)) : bisect_left(keys, prefix + "\x7f")]

    def delete(self, key: str) -> None:
        if key in self.values:
            del self._keys[bisect_left(self._keys, key)]
            del self.values[key]  # and not kept as the values of other simulations


class CountingStore(NodeStore):
    async def delete(self, keys: Sequence[str]) -> None:
        counts: Counter[str] = self._store.counts  # type: ignore[attr-defined]
        counts["delete"] += 1
        await super().delete(keys)
