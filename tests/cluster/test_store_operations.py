"""How many operations of the store three nodes cause, in virtual time: when they are idle, and by takeovers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, TypeVar

import pytest

from callboard.runtime.cluster.engines import OBJECTS
from callboard.runtime.cluster.session_environment import SessionEnvironment

from . import scale_store
from .scale import KINDS, Scale, Size
from .scale_store import CountingStore

T = TypeVar("T")

NODES = 3
SIZE = Size(nodes=NODES, partitions=50)
IDLE_S = 60.0
IDLE_OPERATIONS_PER_S = 20
"""The bar of ``faults.bars``, for each node."""
IDLE_LISTS_PER_S = 0.2
"""Of each node. In a bucket a list costs as much as a write."""
COMMON_CREATES = 6
"""Of a takeover: the tombstone, the seal and the register."""
GETS, LISTS = 60, 10
"""Of a takeover of any number of empty partitions, with the looks of two nodes meanwhile."""


BUCKET_SIZE = SIZE._replace(latency_s=0.03)
ROUNDS = 200
"""Of a node that is killed. No checkpoint brings them to segments."""
KEYS_READ = 240
"""Of a takeover from a bucket, where each is a request: packs, the last rounds, manifests, and the looks meanwhile."""
LISTS_FROM_BUCKET = LISTS + 4
"""Two nodes list the packs, and after a long time the versions of the register."""
KILLS = 4
QUIET_S = 10.0
"""The register has not changed for so long, as usual."""
SEQUENTIAL = (13, 16)
"""Operations of a takeover that wait for each other. Of the node that changes the register: tombstone, floor, list of
rounds, last round, seal, counter, register read and changed, list of manifests, manifests, floor, pack, and a manifest.
Of the other one, which may have to write a segment besides and to read one."""
OUTAGE_S = 3.0
"""From a kill to the last partition, in virtual time: no operation waits for another one there."""


class ScaleOnBucket(Scale):
    def _environment(self) -> SessionEnvironment:
        return (
            super()
            ._environment()
            ._replace(checkpoint_interval_s=OBJECTS.checkpoint_interval_s, pack_rounds=OBJECTS.pack_rounds)
        )


def run(work: Callable[[Scale], Awaitable[None]]) -> Counter[str]:
    """The operations by kind, after three nodes have shared the partitions."""
    scale = Scale(SIZE)

    async def settled() -> Counter[str]:
        for number in range(NODES):
            scale.start_node(f"n{number}")
        await scale.until(scale.is_balanced)
        before = scale.store.counts.copy()
        await work(scale)
        return Counter({kind: scale.store.counts[kind] - before[kind] for kind in KINDS})

    try:
        counts: Counter[str] = scale.loop.run_until_complete(settled())
        return counts
    finally:
        scale.loop.end()


def test_idle_node_causes_few_operations() -> None:
    counts = run(lambda _: asyncio.sleep(IDLE_S))
    assert counts.total() / IDLE_S / NODES <= IDLE_OPERATIONS_PER_S, counts
    assert counts["create"] == 0
    assert counts["put"] / IDLE_S / NODES < 3
    assert counts["list"] / IDLE_S / NODES <= IDLE_LISTS_PER_S


def test_takeover_creates_one_manifest_for_each_partition_and_reads_them_together() -> None:
    partitions: list[int] = []

    async def kill(scale: Scale) -> None:
        node, process = scale.nodes["n0"]
        partitions.extend(node.values)
        process.kill()
        await scale.until(lambda: scale.are_served(partitions))

    counts = run(kill)
    assert len(partitions) in (33, 34)
    assert counts["create"] <= len(partitions) + COMMON_CREATES, counts
    assert counts["get"] <= GETS, counts
    assert counts["list"] <= LISTS, counts


async def take_over(scale: Scale, name: str) -> tuple[float, Counter[str]]:
    """The seconds and the operations until others serve what a node had that has written many rounds.

    Then it starts again.
    """
    node, process = scale.nodes[name]
    partition, *_ = partitions = list(node.values)
    for value in range(ROUNDS):
        assert await node.commit(partition, b"key", value)
    before = scale.store.counts.copy()
    process.kill()
    seconds = await scale.until(lambda: scale.are_served(partitions))
    counts = Counter({kind: scale.store.counts[kind] - before[kind] for kind in scale.store.counts})
    assert any(node.values.get(partition) == {b"key": ROUNDS - 1} for node, _ in scale.nodes.values())
    scale.start_node(name)
    await scale.until(scale.is_balanced)
    return seconds, counts


class Operation(NamedTuple):
    client: object
    kind: str
    keys: Sequence[str]
    begun_s: float
    ended_s: float

    def creates(self, prefix: str) -> bool:
        return self.kind == "create" and self.keys[0].startswith(prefix)

    @property
    def is_regular(self) -> bool:
        """A sign of life, a look at the own tombstone, or a look at the others."""
        if self.kind == "put" or len(self.keys) > 1:
            return any(key.startswith("alive/") for key in self.keys)
        return self.kind == "get" and self.keys[0].startswith("out/")


class TimedStore(CountingStore):
    """Notes when each operation began and ended."""

    operations: ClassVar[list[Operation]] = []

    async def create(self, key: str, value: bytes) -> bool:
        return await self._timed("create", [key], super().create(key, value))

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._timed("get", keys, super().get(keys))

    async def put(self, key: str, value: bytes) -> None:
        await self._timed("put", [key], super().put(key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await self._timed("list", [prefix], super().list(prefix, after))

    async def _timed(self, kind: str, keys: Sequence[str], operation: Coroutine[Any, Any, T]) -> T:
        begun_s = asyncio.get_running_loop().time()
        result = await operation
        self.operations.append(Operation(self, kind, keys, begun_s, asyncio.get_running_loop().time()))
        return result


def longest_chain(operations: Sequence[Operation]) -> Sequence[Operation]:
    """As many as possible that follow each other."""
    chain: list[Operation] = []
    for operation in sorted(operations, key=lambda each: each.ended_s):
        if not chain or operation.begun_s >= chain[-1].ended_s:
            chain.append(operation)
    return chain


def of_takeover(operations: Sequence[Operation]) -> Sequence[Operation]:
    """From the tombstone on, without the looks at the others and the signs of life."""
    [start] = [place for place, each in enumerate(operations) if each.creates("out/")]
    return [each for each in operations[start:] if not each.is_regular]


def test_operations_of_a_takeover_that_wait_for_each_other_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the latency of the store, while nobody serves the partitions."""
    monkeypatch.setattr(scale_store, "CountingStore", TimedStore)
    monkeypatch.setattr(TimedStore, "operations", [])
    scale = ScaleOnBucket(BUCKET_SIZE)

    async def kill() -> None:
        for number in range(NODES):
            scale.start_node(f"n{number}")
        await scale.until(scale.is_balanced)
        await asyncio.sleep(QUIET_S)
        node, process = scale.nodes["n0"]
        partition, *_ = partitions = list(node.values)
        for value in range(ROUNDS):
            assert await node.commit(partition, b"key", value)
        TimedStore.operations.clear()
        process.kill()
        await scale.until(lambda: scale.are_served(partitions))

    try:
        scale.loop.run_until_complete(kill())
    finally:
        scale.loop.end()
    by_node = groupby(sorted(TimedStore.operations, key=lambda each: id(each.client)), key=lambda each: each.client)
    of_nodes = [list(operations) for _, operations in by_node]
    chains = [longest_chain(of_takeover(each)) for each in of_nodes if any(one.creates("out/") for one in each)]
    shortest, longest = sorted(chains, key=len)
    assert len(shortest) <= SEQUENTIAL[0], [f"{each.kind} {each.keys[0]}" for each in shortest]
    assert len(longest) <= SEQUENTIAL[1], [f"{each.kind} {each.keys[0]}" for each in longest]


def test_takeover_from_a_bucket_reads_few_values_however_many_there_were_before() -> None:
    scale = ScaleOnBucket(BUCKET_SIZE)

    async def kills() -> list[tuple[float, Counter[str]]]:
        for number in range(NODES):
            scale.start_node(f"n{number}")
        await scale.until(scale.is_balanced)
        return [await take_over(scale, f"n{number % NODES}") for number in range(KILLS)]

    try:
        taken: list[tuple[float, Counter[str]]] = scale.loop.run_until_complete(kills())
    finally:
        scale.loop.end()
    for seconds, counts in taken:
        assert seconds <= OUTAGE_S
        assert counts["keys read"] <= KEYS_READ, counts
        assert counts["list"] <= LISTS_FROM_BUCKET, counts
