"""A long request leaves nothing behind that only the garbage collector can free.

The collector's generation of old objects runs seldom, so reference cycles of each item, such as an error with the
traceback of the function that keeps it, would fill the memory.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from harness import MemoryClient, NodeHarness, async_test, running_node
from peers.wire import message_type
from request_helpers import encode_request
from request_shapes import each_request, shapes

from callboard.runtime.kafka.api import Api

ITEMS = 500
IDLE_TURNS = 300  # without a response: the request is parked
UNREACHABLE_MAX = 250
"""Objects in cycles of the connection and the request, whatever its items are."""


async def unreachable_after(harness: NodeHarness, data: bytes) -> int:
    """The number of objects in cycles that a request leaves. No collection has run meanwhile: all are young."""
    client, idle_turns = MemoryClient(harness.node), 0
    client.feed(data)
    while not (client.transport.written or client.is_closed) and idle_turns < IDLE_TURNS:
        await asyncio.sleep(0)
        idle_turns = 0 if len(harness.node.services.slices) else idle_turns + 1
    client.close()
    return gc.collect(0)


@each_request
@async_test
async def test_long_request_leaves_no_cycles_of_items(tmp_path: Path, api: Api, version: int) -> None:
    flexible = message_type(api.name, version, "request").__flexible__
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        left = {}
        requests = {s.name: encode_request(api.key, version, s.body, flexible) for s in shapes(api, version, ITEMS)}
        gc.disable()
        try:
            gc.collect()
            for name, data in requests.items():
                left[name] = await unreachable_after(harness, data)
        finally:
            gc.enable()
    assert {name: count for name, count in left.items() if count > UNREACHABLE_MAX} == {}
