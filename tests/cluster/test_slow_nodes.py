"""Nodes that are slow all the time, as on a machine with far too much to do: they take over from a dead one, too."""

from __future__ import annotations

import asyncio

from callboard.runtime.testing.simulation.loop import Process

from .scale import Scale, Size

NODES = 3
STALL_S, RUN_S = 0.9, 0.3
"""More than half of a session timeout without a step, then some steps."""
SERVED_AGAIN_S = 10.0


async def stall(process: Process) -> None:
    while True:
        process.freeze()
        await asyncio.sleep(STALL_S)
        process.thaw()
        await asyncio.sleep(RUN_S)


def test_survivors_that_are_stalled_again_and_again_take_over() -> None:
    scale = Scale(Size(nodes=NODES, partitions=12))

    async def run() -> float:
        for number in range(NODES):
            scale.start_node(f"n{number}")
        await scale.until(scale.is_balanced)
        stalls = [asyncio.ensure_future(stall(scale.nodes[name][1])) for name in ("n1", "n2")]
        node, process = scale.nodes["n0"]
        partitions = list(node.values)
        process.kill()
        seconds = await scale.until(lambda: scale.are_served(partitions))
        for task in stalls:
            task.cancel()
        return seconds

    try:
        assert scale.loop.run_until_complete(run()) < SERVED_AGAIN_S
    finally:
        scale.loop.end()
