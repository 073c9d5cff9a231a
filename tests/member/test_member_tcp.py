"""Members over TCP, and blocking members in threads."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from typing import Any

import pytest
from harness import async_test

import callboard
from callboard.actors.errors import CoordinatorError
from callboard.runtime.common.errors import StartError
from callboard.runtime.embed.thread import ThreadCoordinator
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.member.errors import Fenced, MemberError, ShardLost
from callboard.runtime.member.member import Member
from callboard.runtime.member.tcp import TcpConnector

DEADLINE_S = 120.0
SETTINGS: Any = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 200}
JOBS: Any = {"resources": {"jobs": 4}, "session_timeout_ms": 2_000}


async def wait_until_split(*members: Member, shards: int = 4) -> None:
    """Wait until the members share this many shards equally."""
    async with asyncio.timeout(DEADLINE_S):
        while [len(member.shards) for member in members] != [shards // len(members)] * len(members):
            await asyncio.sleep(0.01)


def make_coordinator() -> callboard.Coordinator:
    return callboard.Coordinator(listen="127.0.0.1:0", **SETTINGS)


# Over TCP ------------------------------------------------------------------------------------------------------------


@async_test
async def test_members_over_tcp_and_in_process_share_a_group() -> None:
    async with make_coordinator() as coordinator, callboard.connect(coordinator.bootstrap) as remote:
        async with coordinator.member("g", **JOBS) as near:
            await wait_until_split(near)
            await near.shards[0].commit(9, "nine")
            async with remote.member("g", **JOBS) as far:
                await wait_until_split(near, far)
                progress = await far.shards[0].commit(3)
                assert progress.durability == ""
            await wait_until_split(near)
        async with remote.member("g", **JOBS) as far:
            assignment = await far.next_assignment()
            assert (assignment.shards[0].next_offset, assignment.shards[0].note) == (9, "nine")
        assert [(topic.name, len(topic.partitions)) for topic in await coordinator.topics()] == [("jobs", 4)]


@pytest.mark.parametrize("resources", [{"tenants": ["acme", "a b", "ümlaut"]}, {"jobs": 3}], ids=["names", "numbers"])
@async_test
async def test_member_over_tcp_reconnects_after_a_restart(resources: Any) -> None:
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(make_coordinator())
        remote = await stack.enter_async_context(callboard.connect(coordinator.bootstrap))
        member = await stack.enter_async_context(remote.member("g", resources=resources, session_timeout_ms=20_000))
        assignment = await member.next_assignment()
        await coordinator.restart("killed")
        for shard in assignment.shards:
            await shard.commit(5)
        assert not assignment.is_over
        assert len(await coordinator.offsets("g")) == 3


@async_test
async def test_second_static_member_over_tcp_fences_the_first() -> None:
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(make_coordinator())
        remote = await stack.enter_async_context(callboard.connect(coordinator.bootstrap))
        first = await stack.enter_async_context(remote.member("g", instance_id="one", **JOBS))
        await wait_until_split(first)
        second = await stack.enter_async_context(remote.member("g", instance_id="one", **JOBS))
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Fenced):
                while True:
                    await first.next_assignment()
        await wait_until_split(second)


@async_test
async def test_static_leader_over_tcp_that_returns_with_more_shards_assigns_them() -> None:
    generations: list[int] = []
    async with make_coordinator() as coordinator, callboard.connect(coordinator.bootstrap) as remote:
        for number in (2, 4, 4):
            async with remote.member("g", instance_id="one", resources={"jobs": number}) as member:
                async with asyncio.timeout(DEADLINE_S):
                    while len((await member.next_assignment()).shards) < number:
                        pass
                generations.append(member.generation)
    assert generations[0] < generations[1] == generations[2], "only other resources cause a rebalance"


@async_test
async def test_topics_over_tcp_are_created_and_grow_and_invalid_ones_are_refused() -> None:
    async with make_coordinator() as coordinator:
        connector = TcpConnector(f"127.0.0.1:1,{coordinator.bootstrap}")
        await connector.ensure_topics({"jobs": 2, "mails": 1})
        await connector.ensure_topics({"jobs": 5, "mails": 1})
        assert await connector.partitions(["jobs", "mails", "none"]) == {"jobs": 5, "mails": 1}
        with pytest.raises(CoordinatorError, match="collides"):
            await connector.ensure_topics({"a.b": 1, "a_b": 1})


@async_test
async def test_connect_to_no_server_or_another_protocol_raises_channel_lost() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ChannelLost, match=rf"cannot reach 127.0.0.1:{port}.*is a server running there"):
        async with callboard.connect(f"127.0.0.1:{port}"):
            pass

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ChannelLost, match="does not speak Kafka's protocol"):
            await TcpConnector(f"127.0.0.1:{port}").connect_to_any("me")


@pytest.mark.parametrize("bootstrap", ["", "nowhere", "host:0", "host:9092,"])
def test_connect_to_an_invalid_address_raises_start_error(bootstrap: str) -> None:
    with pytest.raises(StartError, match="bootstrap"):
        callboard.connect(bootstrap)


# In threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def coordinator() -> Iterator[ThreadCoordinator]:
    with callboard.Coordinator.in_thread(listen="127.0.0.1:0", **SETTINGS) as coordinator:
        yield coordinator


def test_blocking_member_is_revoked_and_may_commit(coordinator: ThreadCoordinator) -> None:
    with coordinator.member("g", assignor="range", **JOBS) as first:
        for number, assignment in enumerate(first.assignments()):
            with assignment:
                if number == 0:
                    assert len(assignment.acquired) == 4
                    second = coordinator.member("g", assignor="range", **JOBS)
                    second.__enter__()
                    assert assignment.shards[0].revoked.wait(DEADLINE_S)
                    assert assignment.is_over and assignment.over.is_set()
                    assert not assignment.shards[0].is_lost
                    for shard in assignment.shards:
                        shard.commit(10 + int(shard.name))
            if number == 1:
                break
        assert assignment.shards[0].next_offset is not None
        theirs = second.next_assignment(DEADLINE_S)
        assert sorted(shard.next_offset or 0 for shard in (*assignment.shards, *theirs.shards)) == [10, 11, 12, 13]
        assert theirs.shard("jobs", theirs.shards[1].name) is theirs.shards[1]
        second.leave()
        with pytest.raises(MemberError, match="has left"):
            second.next_assignment(DEADLINE_S)


def test_commit_of_a_lost_shard_in_a_thread_raises_and_the_next_assignment_follows(
    coordinator: ThreadCoordinator,
) -> None:
    """ShardLost from a body whose assignment is over is suppressed; the next assignment follows."""
    with coordinator.member("g", assignor="range", rebalance_timeout_ms=2_000, **JOBS) as first:
        for number, assignment in enumerate(first.assignments()):
            with assignment:
                if number == 1:
                    break
                with coordinator.member("g", assignor="range", rebalance_timeout_ms=2_000, **JOBS) as second:
                    second.next_assignment(DEADLINE_S)
                    shard = assignment.shards[0]
                    assert shard.lost.wait(DEADLINE_S) and shard.is_lost
                    with pytest.raises(ShardLost):
                        shard.commit(1)
                    assignment.commit(shard, 1)
            assert assignment.is_over
        assert shard.lost.is_set()


def test_kept_shards_stay_the_same_objects(coordinator: ThreadCoordinator) -> None:
    with coordinator.member("g", **JOBS) as first:
        before = first.next_assignment(DEADLINE_S)
        with coordinator.member("g", **JOBS):
            after = first.next_assignment(DEADLINE_S)
            assert after.kept and set(after.kept) < set(before.shards)
            assert repr(after.kept[0]).startswith("Shard('jobs'")


def test_next_assignment_with_timeout_raises_timeout_error(coordinator: ThreadCoordinator) -> None:
    with coordinator.member("g", **JOBS) as member:
        member.next_assignment(DEADLINE_S)
        with pytest.raises(TimeoutError):
            member.next_assignment(0.05)


def test_assignment_that_comes_with_the_end_of_the_timeout_is_returned_by_the_next_call(
    coordinator: ThreadCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody gets it: the member would own shards without work on them until the next change."""
    with coordinator.member("g", **JOBS) as member:
        taken, timed_out = threading.Event(), threading.Event()
        asynchronous = member._member
        take = asynchronous.next_assignment

        async def take_and_block() -> callboard.Assignment:
            assignment = await take()
            taken.set()
            timed_out.wait(DEADLINE_S)  # blocks the loop until the caller does not wait any more
            return assignment

        monkeypatch.setattr(asynchronous, "next_assignment", take_and_block)
        while not taken.is_set():
            with pytest.raises(TimeoutError):
                member.next_assignment(0.05)
        timed_out.set()
        assert len(member.next_assignment(DEADLINE_S).shards) == 4


def test_connect_in_thread_shares_shards_between_threads(coordinator: ThreadCoordinator) -> None:
    with callboard.connect_in_thread(coordinator.bootstrap) as remote:
        with remote.member("g", **JOBS) as member:
            assert member.group_id == "g" and member.is_leader is False
            assignment = member.next_assignment(DEADLINE_S)
            assert (len(assignment.shards), member.generation, member.is_leader) == (4, assignment.generation, True)
            assert member.member_id.startswith("callboard-")
        left = remote.member("g", **JOBS)
    with pytest.raises(MemberError, match="event loop"):
        left.__enter__()
    assert [thread.name for thread in threading.enumerate() if thread.name == "callboard-members"] == []


def test_member_before_connect_raises() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    connection = callboard.connect_in_thread(f"127.0.0.1:{port}")
    with pytest.raises(RuntimeError, match="not connected yet"):
        connection.member("g", **JOBS)
    with pytest.raises(ChannelLost), connection:
        pass
    with pytest.raises(RuntimeError, match="entered before"), connection:
        pass
