"""Requests and answers that the network loses or delays, with every engine that is reached over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from callboard.runtime.cluster.store import Store, StoreUnavailable, settle

from .engine_cases import NetworkCase
from .slow_network import SlowNetwork

DEADLINE_S = 30.0
Body = Callable[[Store, Store, SlowNetwork], Awaitable[None]]


def run(case: NetworkCase, body: Body) -> None:
    """``body`` gets a node behind the network, a node beside it, and the network."""

    async def both() -> None:
        async with SlowNetwork(case.port).running() as network:
            behind, beside = case.make(network.port, "n1"), case.make(case.port, "n2")
            try:
                await behind.create(case.key(0), b"")  # connections are open, statements are prepared
                await behind.put(case.key(0), b"")
                await asyncio.wait_for(body(behind, beside, network), DEADLINE_S)
            finally:
                await behind.close()
                await beside.close()

    asyncio.run(both())


async def settle_behind(network: SlowNetwork, settling: asyncio.Task[bytes], seconds: float) -> bytes:
    """Restore the network while a node settles."""
    await asyncio.sleep(seconds)
    network.loses_answers = network.loses_requests = False
    return await settling


def test_create_whose_answer_is_lost_is_unknown_and_settled_as_ours(network_engine: NetworkCase) -> None:
    key = network_engine.key(1)

    async def body(behind: Store, beside: Store, network: SlowNetwork) -> None:
        network.loses_answers = True
        with pytest.raises(StoreUnavailable):
            await behind.create(key, b"mine")
        while await beside.get([key]) != [b"mine"]:
            await asyncio.sleep(0.01)
        settling = asyncio.create_task(settle(behind, key, b"mine"))
        assert await settle_behind(network, settling, 0.1) == b"mine"
        assert await settle(beside, key, b"another") == b"mine"

    run(network_engine, body)


def test_create_whose_request_is_lost_is_unknown_and_settled(network_engine: NetworkCase) -> None:
    key = network_engine.key(1)

    async def body(behind: Store, beside: Store, network: SlowNetwork) -> None:
        network.loses_requests = True
        with pytest.raises(StoreUnavailable):
            await behind.create(key, b"mine")
        assert await beside.get([key]) == [None]
        settling = asyncio.create_task(settle(behind, key, b"mine"))
        assert await settle_behind(network, settling, 0.1) == b"mine"

    run(network_engine, body)


def test_create_that_is_lost_to_another_node_meanwhile_is_not_ours(network_engine: NetworkCase) -> None:
    key = network_engine.key(1)

    async def body(behind: Store, beside: Store, network: SlowNetwork) -> None:
        network.loses_requests = True
        settling = asyncio.create_task(settle(behind, key, b"mine"))
        assert await settle(beside, key, b"theirs") == b"theirs"
        assert await settle_behind(network, settling, 0) == b"theirs"

    run(network_engine, body)


def test_create_that_lands_late_wins_if_it_is_first(network_engine: NetworkCase) -> None:
    key = network_engine.key(1)

    async def body(behind: Store, beside: Store, network: SlowNetwork) -> None:
        network.delivers.clear()
        with pytest.raises(StoreUnavailable, match="has not answered a create of"):
            await behind.create(key, b"late")
        assert await beside.get([key]) == [None]
        network.delivers.set()
        while await beside.get([key]) != [b"late"]:
            await asyncio.sleep(0.01)
        assert not await beside.create(key, b"theirs")

    run(network_engine, body)


def test_create_that_lands_late_replaces_nothing(network_engine: NetworkCase) -> None:
    key, put = network_engine.key(1), network_engine.key(2)

    async def body(behind: Store, beside: Store, network: SlowNetwork) -> None:
        network.delivers.clear()
        outcomes = await asyncio.gather(behind.create(key, b"late"), behind.put(put, b"late"), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
        assert await beside.create(key, b"theirs")
        network.delivers.set()
        while await beside.get([put]) != [b"late"]:  # sent with the create
            await asyncio.sleep(0.01)
        assert await behind.get([key]) == await beside.get([key]) == [b"theirs"]

    run(network_engine, body)
