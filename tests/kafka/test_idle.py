"""A connection that is idle for ``connections_max_idle_ms`` is closed, unless it has a pending request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import HandTimer, MemoryClient, NodeHarness, async_test, frame, join_and_sync, join_values, running_node

from callboard.runtime.kafka.connections.idle import CHECK_INTERVAL_MAX_MS, CHECKS_PER_TIMEOUT, IdleConnectionCloser

IDLE_MS = 600_000
BEAT = frame("heartbeat", 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None)


class Watched:
    """A server whose idle connections are closed by a manual timer."""

    def __init__(self, harness: NodeHarness, max_idle_ms: int = IDLE_MS) -> None:
        self.timer = HandTimer()
        self.watch = IdleConnectionCloser(harness.node.connections, max_idle_ms, self.timer.later)
        self.watch.start()


@pytest.mark.parametrize(
    "heard_at_ms", [0, 1, IDLE_MS // CHECKS_PER_TIMEOUT - 1, IDLE_MS // CHECKS_PER_TIMEOUT, 777_777]
)
@async_test
async def test_idle_connection_is_closed_not_before_timeout(tmp_path: Path, heard_at_ms: int) -> None:
    async with running_node(tmp_path) as harness:
        timer, client = Watched(harness).timer, MemoryClient(harness.node)
        for _ in range(heard_at_ms // 100_000):
            client.feed(BEAT)
            timer.advance(100_000)
        timer.advance(heard_at_ms % 100_000)
        client.feed(BEAT)
        await client.answered(heard_at_ms // 100_000 + 1)
        timer.advance(IDLE_MS - 1)
        assert not client.is_closed
        timer.advance(1 + IDLE_MS // CHECKS_PER_TIMEOUT)
        assert client.is_closed


@async_test
async def test_connection_with_pending_request_is_not_idle(tmp_path: Path) -> None:
    """It is closed after an idle time that begins with its response; other connections are closed before."""
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=0) as harness:
        timer, first = Watched(harness).timer, await harness.connect()
        member = await join_and_sync(first, "g")
        pending, silent = MemoryClient(harness.node), MemoryClient(harness.node)
        pending.feed(frame("join_group", 3, **join_values("g")))
        for _ in range(100):
            timer.advance(IDLE_MS // 10)
            first.write(BEAT)
            await first.receive("heartbeat")
        assert (pending.is_closed, silent.is_closed) == (False, True)
        timer.advance(
            timer.due[0] - timer.now_ms - 1 if timer.due else 0
        )  # the next check directly follows the response
        await first.ask("leave_group", 2, group_id="g", member_id=member.member_id)
        await pending.answered(1)
        timer.advance(IDLE_MS - 1)
        assert not pending.is_closed
        timer.advance(IDLE_MS)
        assert pending.is_closed


@async_test
async def test_incomplete_request_counts_as_activity(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        timer, client = Watched(harness).timer, MemoryClient(harness.node)
        for byte in BEAT[:-1]:
            client.feed(bytes((byte,)))
            timer.advance(IDLE_MS // 2)
        assert not client.is_closed
        timer.advance(2 * IDLE_MS)
        assert client.is_closed


@async_test
async def test_server_closes_idle_connection_and_serves_others(tmp_path: Path) -> None:
    """Over TCP, with the server's timer: a connection with heartbeats stays open, an idle one is closed."""
    async with running_node(tmp_path, connections_max_idle_ms=400) as harness:
        silent, talker = await harness.connect(), await harness.connect()
        hangup = asyncio.ensure_future(silent.responses_until_disconnect())
        while not hangup.done():
            talker.write(BEAT)
            await talker.receive("heartbeat")
        assert await hangup == []
        assert len(harness.node.connections) == 1
        await (await harness.connect()).ask("list_groups")


@pytest.mark.parametrize(("max_idle_ms", "max_checks"), [(1, 1), (3, 3), (4, 4), (IDLE_MS, 4), (2**63 - 1, 2**62)])
def test_check_interval_never_shortens_idle_timeout(max_idle_ms: int, max_checks: int) -> None:
    """All checks together last at least as long as the setting, and no single wait exceeds the limit of event loops."""
    watch: Any = IdleConnectionCloser((), max_idle_ms, HandTimer().later)
    assert 0 < watch._check_interval_ms <= CHECK_INTERVAL_MAX_MS
    assert watch._check_interval_ms * watch._max_idle_checks >= max_idle_ms
    assert watch._max_idle_checks <= max_checks
