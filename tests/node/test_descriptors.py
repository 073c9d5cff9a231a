"""Many client connections must not use up the file descriptors that the log needs."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from pathlib import Path

import pytest
from harness import async_test, commit_values, offsets, running_node

from callboard.runtime.common.errors import StartError
from callboard.runtime.node.connection_limit import (
    CONNECTIONS_MIN,
    HTTP_FILES,
    RESERVE,
    DescriptorLimit,
    connections_max,
    raise_limit,
)


def set_limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """Simulate the limits of open files. Returns the list of limits, to which each setrlimit appends."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, pair: limits.append(pair))
    return limits


@async_test
async def test_connection_above_limit_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Open connections are served. After one of them is closed, a new one is accepted."""
    async with running_node(tmp_path) as harness:
        client, other = await harness.connect(), await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g", offset=1))
        await other.ask("offset_commit", 9, **commit_values("g", offset=2))
        harness.node.connection_limit.maximum = 2
        for _ in range(3):
            assert await (await harness.connect()).responses_until_disconnect() == []
        [line] = caplog.messages
        assert line.startswith("2 connections use all file descriptors")
        assert await offsets(client, "g") == {("t", 0): 2}
        await other.close()
        while len(harness.node.connections) > 1:
            await offsets(client, "g")
        assert await offsets(await harness.connect(), "g") == {("t", 0): 2}


@async_test
async def test_burst_of_connections_uses_no_reserved_descriptors(tmp_path: Path) -> None:
    """Connections that are accepted at once and then closed use only descriptors of the reserve."""
    async with running_node(tmp_path) as harness:
        harness.node.connection_limit.maximum = 3
        await asyncio.sleep(0)
        before = count_open_files()
        burst = [socket.create_connection(("127.0.0.1", harness.port)) for _ in range(200)]
        maximum = 0
        for _ in range(50):
            maximum = max(maximum, count_open_files() - before - len(burst))
            await asyncio.sleep(0)
        for client_socket in burst:
            client_socket.close()
        assert 0 < maximum <= 3 + RESERVE // 4


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_refused_connections_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    connection_limit = DescriptorLimit(1, lambda: now_ms)
    assert not connection_limit.is_reached(0, "first")
    for now_ms in (0, 1, 59_999, 60_000, 60_001):
        assert connection_limit.is_reached(1, f"at {now_ms}")
    assert [
        peer for line in caplog.messages for peer in ("at 0", "at 60000") if f"connection of {peer} is" in line
    ] == [
        "at 0",
        "at 60000",
    ]
    assert len(caplog.messages) == 2


def test_connections_max_reserves_descriptors_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, 1024, 1024)
    assert connections_max(100) == 1024 - 200 - RESERVE
    assert connections_max(100, has_http=True) == 1024 - 200 - RESERVE - HTTP_FILES
    set_limits(monkeypatch, resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert connections_max(100) == sys.maxsize


def test_connections_max_below_minimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    minimum = 200 + RESERVE + CONNECTIONS_MIN
    set_limits(monkeypatch, minimum, minimum)
    assert connections_max(100) == CONNECTIONS_MIN
    set_limits(monkeypatch, minimum - 1, minimum - 1)
    with pytest.raises(
        StartError, match=f"may open {minimum - 1} files, expected {minimum} or more for 100 partitions"
    ):
        connections_max(100)


def test_raise_limit_sets_soft_limit_to_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set_limits(monkeypatch, 1024, 4096)[0] == (1024, 4096)
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (4096, 4096)
    limits = set_limits(monkeypatch, 1024, resource.RLIM_INFINITY)
    raise_limit()
    assert limits[1:] == [(2**20, resource.RLIM_INFINITY)]
    raise_limit()
    assert len(limits) == 2
