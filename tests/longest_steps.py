"""The longest step of a request, in executed lines of Python."""

from __future__ import annotations

import asyncio

from harness import MemoryClient, NodeHarness
from work_counter import WorkCounter

IDLE_TURNS = 50  # without a response: the request is parked, such as a JoinGroup


async def send(harness: NodeHarness, data: bytes, counter: WorkCounter) -> None:
    """Send a request on a connection of its own. Count the steps until it is answered, refused or parked, and freed."""
    client, slices, idle_turns = MemoryClient(harness.node), harness.node.services.slices, 0
    client.feed(data)
    while len(slices) or (not (client.transport.written or client.is_closed) and idle_turns < IDLE_TURNS):
        await asyncio.sleep(0)
        counter.end_piece()
        idle_turns = 0 if len(slices) else idle_turns + 1
    client.close()


async def longest_step(harness: NodeHarness, data: bytes, *, is_warm: bool = False) -> int:
    """The executed lines of the longest step of a request, when its code is loaded and caches are filled.

    ``is_warm``: they are already, by a similar request.
    """
    if not is_warm:
        await send(harness, data, WorkCounter())
    counter = WorkCounter()
    with counter.counting():
        await send(harness, data, counter)
    return counter.longest
