"""The number of function calls that a frequent request takes. A call takes about 0.1 us of some 25."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from consumer_requests import consumer_heartbeat_values, join
from harness import (
    MemoryClient,
    async_test,
    commit_values,
    frame,
    heartbeat_values,
    join_and_sync,
    running_node,
)

from callboard import actors, runtime

PIPELINED = 16
ROUNDS = 20
HEARTBEAT_CALLS_MAX = 20
CONSUMER_HEARTBEAT_CALLS_MAX = 33
COMMIT_CALLS_MAX = 72  # with its part of 22 calls that write a round, which the loop makes itself
FOLDERS = tuple(str(Path(package.__path__[0]).resolve()) for package in (actors, runtime))


async def send(client: MemoryClient, data: bytes) -> None:
    for _ in range(ROUNDS):
        client.transport.written.clear()
        client.feed(data * PIPELINED)
        await client.answered(PIPELINED)


async def calls_per_request(client: MemoryClient, data: bytes) -> float:
    """Calls of the product's functions in this thread; those of a round are shared by its requests."""
    await send(client, data)  # loads the API and fills caches
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(count)  # of this thread only; cProfile counts all threads from Python 3.12 on
    await send(client, data)
    sys.setprofile(None)
    own = sum(number for path, number in calls.items() if str(Path(path).resolve()).startswith(FOLDERS))
    return own / (PIPELINED * ROUNDS)


@async_test
async def test_heartbeats_and_commits_take_few_calls(tmp_path: Path) -> None:
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        joined = await join(await harness.connect(), "a", "t", group_id="consumers")
        client = MemoryClient(harness.node)
        heartbeats = await calls_per_request(client, frame("heartbeat", 4, **heartbeat_values("g", member)))
        commits = await calls_per_request(client, frame("offset_commit", 8, **commit_values("simple")))
        unchanged = consumer_heartbeat_values("a", joined["member_epoch"], group_id="consumers")
        consumer_heartbeats = await calls_per_request(client, frame("consumer_group_heartbeat", 1, **unchanged))
        assert 15 < heartbeats < HEARTBEAT_CALLS_MAX
        assert 15 < consumer_heartbeats < CONSUMER_HEARTBEAT_CALLS_MAX
        assert 30 < commits < COMMIT_CALLS_MAX
