"""How many operations of the store three nodes cause, in virtual time: when they are idle, and by takeovers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from callboard.runtime.cluster.engines import OBJECTS
from callboard.runtime.cluster.session_environment import SessionEnvironment

from .scale import KINDS, Scale, Size

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
