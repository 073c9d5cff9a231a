"""Members find the servers of a cluster: several addresses, servers that are frozen or gone, groups that move."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from harness import async_test

from callboard.actors.messages import DescribeGroup
from callboard.runtime.client import reaching
from callboard.runtime.client.connection import ChannelLost, Connection, connect_to
from callboard.runtime.client.security import NO_SECURITY, ClientSecurity
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.member.tcp import TcpConnector

DEADLINE_S = 60.0


@asynccontextmanager
async def frozen_server() -> AsyncIterator[str]:
    """The address of a server that accepts connections and answers nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


class ScriptedServer:
    """Answers one connection's requests with what the test gives."""

    def __init__(self, address: Any, coordinators: list[Any]) -> None:
        self.address = address
        self.security = NO_SECURITY
        self.coordinators = coordinators
        self.lookups = 0

    async def ask_in_time(self, name: str, values: Any) -> Any:
        assert name == "find_coordinator"
        self.lookups += 1
        address = self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]

        class Response:
            error_code = 0
            host, port = address

        return Response


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "HEAD_START_S", 0.01)
    monkeypatch.setattr(reaching, "FIND_AGAIN_S", 0.01)


@async_test
async def test_frozen_server_does_not_delay_the_next_address() -> None:
    async with Coordinator(listen="127.0.0.1:0") as coordinator, frozen_server() as frozen:
        connector = TcpConnector(f"{frozen},{coordinator.bootstrap}")
        connection = await connector.connect_to_any("me")
        assert str(connection.address) == coordinator.bootstrap
        connection.close()


@async_test
async def test_server_that_answered_last_is_asked_first() -> None:
    async with Coordinator(listen="127.0.0.1:0") as coordinator, frozen_server() as frozen:
        connector = TcpConnector(f"{frozen},{coordinator.bootstrap}")
        (await connector.connect_to_any("me")).close()
        tried: list[str] = []

        async def record(address: Any, client_id: str, security: ClientSecurity) -> Connection:
            tried.append(str(address))
            return await connect_to(address, client_id, security)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reaching, "connect_to", record)
            patch.setattr(reaching, "HEAD_START_S", DEADLINE_S)
            (await connector.connect_to_any("me")).close()
        assert tried == [coordinator.bootstrap]


@async_test
async def test_other_servers_are_learned_from_the_first_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only address that was given may be gone later."""
    async with Coordinator(listen="127.0.0.1:0") as first, Coordinator(listen="127.0.0.1:0") as second:
        connector = TcpConnector(first.bootstrap)
        host, port = second.bootstrap.split(":")
        brokers = reaching.broker_addresses

        async def with_second(connection: Connection) -> list[Any]:
            [own] = await brokers(connection)
            return [own, type(own)(host, int(port))]

        monkeypatch.setattr("callboard.runtime.member.tcp.broker_addresses", with_second)
        (await connector.connect_to_any("me")).close()
        await first.stop()
        connection = await connector.connect_to_any("me")
        assert str(connection.address) == second.bootstrap
        connection.close()


@async_test
async def test_all_addresses_fail_with_the_last_error() -> None:
    with pytest.raises(ChannelLost, match=r"cannot reach 127\.0\.0\.1:2"):
        await TcpConnector("127.0.0.1:1,127.0.0.1:2").connect_to_any("me")


@pytest.mark.parametrize("is_known", [False, True])
@async_test
async def test_group_that_moves_while_its_frozen_coordinator_is_waited_for(is_known: bool) -> None:
    """To another server, or to the one that was asked."""
    async with Coordinator(listen="127.0.0.1:0") as coordinator, frozen_server() as frozen:
        host, port = coordinator.bootstrap.split(":")
        frozen_host, frozen_port = frozen.split(":")
        alive, dead = (host, int(port)), (frozen_host, int(frozen_port))
        known: Any = ScriptedServer(alive if is_known else ("elsewhere", 1), [dead, dead, dead, alive])
        async with asyncio.timeout(DEADLINE_S):
            connection = await reaching.connect_to_coordinator(known, "g", "me")
        assert (connection is known) == is_known
        assert connection.address == alive
        if not is_known:
            connection.close()


@async_test
async def test_search_that_is_cancelled_leaves_no_connection() -> None:
    async with Coordinator(listen="127.0.0.1:0") as coordinator:
        await coordinator.loaded()
        channel = await TcpConnector(coordinator.bootstrap).open("me")
        asking = asyncio.ensure_future(channel.ask(DescribeGroup("g")))
        await wait_for(lambda: coordinator.stats().connections > 0)
        channel.close()
        await asyncio.wait({asking}, timeout=DEADLINE_S)
        assert asking.done()
        await wait_for(lambda: coordinator.stats().connections == 0)


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
