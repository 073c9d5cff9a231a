"""Blocks of ``async with`` whose task is cancelled at each of its waits, as by a cancelled scope of anyio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import callboard
from callboard.runtime.member.connect import RemoteCoordinator


async def cancel_at_each_wait(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run ``work(is_ready)``. When it is ready, cancel its task in each turn of the event loop until it ends."""
    is_ready = asyncio.Event()

    async def run() -> None:
        await work(is_ready)

    task = asyncio.create_task(run())
    await is_ready.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        task.result()


def test_a_coordinator_has_stopped_at_the_end_of_its_block(tmp_path: Path) -> None:
    async def work(is_ready: asyncio.Event) -> None:
        async with (
            callboard.Coordinator(data=tmp_path, listen="127.0.0.1:0") as coordinator,
            coordinator.member("g", resources={"jobs": 2}) as member,
        ):
            [shard, _] = (await member.next_assignment()).shards
            await shard.commit(7)
            is_ready.set()
            await asyncio.Event().wait()

    async def scenario() -> None:
        await cancel_at_each_wait(work)
        async with callboard.Coordinator(data=tmp_path) as coordinator:  # the folder is free
            assert not (await coordinator.describe("g")).members
            assert [offset.offset for offset in (await coordinator.offsets("g")).values()] == [7]

    asyncio.run(scenario())


async def member_that_waits(
    coordinator: callboard.Coordinator | RemoteCoordinator, protocol: str, is_ready: asyncio.Event
) -> None:
    async with coordinator.member("g", resources={"jobs": 2}, protocol=protocol) as member:
        await member.next_assignment()
        is_ready.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_in_process_has_left_at_the_end_of_its_block(protocol: str) -> None:
    async def scenario() -> None:
        async with callboard.Coordinator() as coordinator:
            await cancel_at_each_wait(lambda is_ready: member_that_waits(coordinator, protocol, is_ready))
            assert not (await coordinator.describe("g")).members

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_over_tcp_has_left_at_the_end_of_its_block(protocol: str) -> None:
    async def scenario() -> None:
        async with callboard.Coordinator(listen="127.0.0.1:0") as coordinator:

            async def work(is_ready: asyncio.Event) -> None:
                async with callboard.connect(coordinator.bootstrap) as remote:
                    await member_that_waits(remote, protocol, is_ready)

            await cancel_at_each_wait(work)
            assert not (await coordinator.describe("g")).members

    asyncio.run(scenario())


def test_members_have_left_at_the_end_of_the_block_of_their_connection() -> None:
    async def scenario() -> None:
        async with callboard.Coordinator(listen="127.0.0.1:0") as coordinator:

            async def work(is_ready: asyncio.Event) -> None:
                async with callboard.connect(coordinator.bootstrap) as remote:
                    member = remote.member("g", resources={"jobs": 2})
                    await member.__aenter__()
                    await member.next_assignment()
                    is_ready.set()
                    await asyncio.Event().wait()

            await cancel_at_each_wait(work)
            assert not (await coordinator.describe("g")).members

    asyncio.run(scenario())
