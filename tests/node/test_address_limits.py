"""The connections of one address are limited: ``max_connections_per_ip`` and its overrides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import NodeHarness, async_test, join_and_sync, join_values, running_node
from harness import frame as request_frame
from peers.wire import Hangup

from callboard.runtime.common.errors import StartError
from callboard.runtime.kafka.connections.connection_phase import Phase
from callboard.runtime.settings.connections import parse_overrides
from callboard.runtime.settings.dynamic import InvalidSetting, parse
from callboard.runtime.settings.table import BY_NAME, Settings

BROKER, SET = 4, 0


async def is_served(harness: NodeHarness) -> bool:
    """Whether a new connection is served. It stays open."""
    client = await harness.connect()
    try:
        await client.ask("api_versions", 0)
    except Hangup:
        return False
    return True


async def wait_for_connections(harness: NodeHarness, count: int) -> None:
    while len(harness.node.connections) != count:
        await asyncio.sleep(0.001)


@async_test
async def test_place_of_a_closed_connection_is_free(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_connections_per_ip=2) as harness:
        first = await harness.connect()
        await first.ask("api_versions", 0)
        assert [await is_served(harness) for _ in range(3)] == [True, False, False]
        await first.close()
        await wait_for_connections(harness, 1)
        assert [await is_served(harness) for _ in range(2)] == [True, False]


@async_test
async def test_client_that_has_disconnected_holds_no_place_while_its_request_is_pending(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_connections_per_ip=2) as harness:
        await join_and_sync(await harness.connect(), "g")
        second = await harness.connect()
        newcomer = await second.ask("join_group", **join_values("g"))
        second.write(request_frame("join_group", **join_values("g", newcomer["member_id"])))
        while not any(connection.requests.calls for connection in harness.node.connections):
            await asyncio.sleep(0.001)
        await second.close()
        while not any(connection.phase is Phase.DETACHED for connection in harness.node.connections):
            await asyncio.sleep(0.001)
        assert len(harness.node.connections) == 2
        assert await is_served(harness)


@async_test
async def test_overrides_count_for_their_addresses_and_change_while_the_server_runs(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "max_connections_per_ip": 0,
        "max_connections_per_ip_overrides": "127.0.0.1:1",
    }
    async with running_node(tmp_path, **settings) as harness:
        client = await harness.connect()
        await client.ask("api_versions", 0)
        assert not await is_served(harness)
        config = {"name": "max.connections.per.ip.overrides", "config_operation": SET, "value": "::ffff:127.0.0.1:2"}
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
        answer = await client.ask("incremental_alter_configs", resources=[resource], validate_only=False)
        assert answer["responses"][0]["error_code"] == "NONE"
        assert [await is_served(harness) for _ in range(2)] == [True, False]


def test_overrides_are_addresses_with_numbers() -> None:
    assert parse_overrides("10.0.0.5:200, 2001:DB8:0::7:50,::ffff:10.0.0.6:0") == {
        "10.0.0.5": 200,
        "2001:db8::7": 50,
        "10.0.0.6": 0,
    }


@pytest.mark.parametrize("text", ["10.0.0.5", "host:5", "10.0.0.5:-1", "10.0.0.5:2147483648", "10.0.0.5:²", ":5"])
def test_other_overrides_are_refused_with_an_example(text: str) -> None:
    expected = "expected ADDRESS:NUMBER,ADDRESS:NUMBER, as in 10.0.0.5:200,2001:db8::7:50"
    with pytest.raises(StartError, match=expected):
        Settings(max_connections_per_ip_overrides=text)
    with pytest.raises(InvalidSetting, match=expected):
        parse(BY_NAME["max_connections_per_ip_overrides"], text)
