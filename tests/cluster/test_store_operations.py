"""How many operations of the store three nodes cause, in virtual time: when they are idle, and by a takeover."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from .scale import KINDS, Scale, Size

NODES = 3
SIZE = Size(nodes=NODES, partitions=50)
IDLE_S = 60.0
IDLE_OPERATIONS_PER_S = 20
"""The bar of ``faults.bars``, for each node."""
COMMON_CREATES = 6
"""Of a takeover: the tombstone, the seal and the register."""
GETS, LISTS = 60, 10
"""Of a takeover of any number of empty partitions, with the looks of two nodes meanwhile."""


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
