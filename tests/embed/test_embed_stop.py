"""Stops and crashes under load: acknowledged commits survive, and no request waits forever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pykka
import pytest
from harness import Client, commit_values, committed_partition, correlation_id_of, frame
from peers.wire import Hangup, decode

from callboard import Coordinator, MemberError, Shard, ShardLost
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, JoinGroup, OffsetCommit, Protocol
from callboard.runtime.kafka.services import Origin

LOCAL = Origin("worker", "/127.0.0.1", 1)
ENDS = ["stopped", "killed"]


def commit(group: str, partition: int, offset: int) -> OffsetCommit:
    return OffsetCommit(group, "", None, -1, (Commit("wide", partition, offset, -1, ""),))


class Acknowledged:
    """The highest acknowledged offset of each partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.is_enough = asyncio.Event()

    def add(self, partition: int, offset: int) -> None:
        self.offsets[partition] = max(offset, self.offsets.get(partition, -1))
        if sum(self.offsets.values()) > 200:
            self.is_enough.set()


async def commit_in_process(coordinator: Coordinator, partition: int, acknowledged: Acknowledged) -> None:
    """Commit in process, one offset after the other, until the coordinator ends."""
    node = coordinator.node
    with suppress(pykka.ActorDeadError):
        for offset in range(1_000_000):
            answer = await node.local.ask(commit("g", partition, offset), LOCAL)
            if answer.errors == (ErrorCode.NONE,):
                acknowledged.add(partition, offset)


async def commit_over_tcp(bootstrap: str, partition: int, acknowledged: Acknowledged) -> None:
    """The same over TCP, with many requests in flight."""
    host, _, port = bootstrap.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))

    async def read() -> None:
        with suppress(Hangup):
            while True:
                answer = await client.receive_frame()
                [topic] = decode("offset_commit", 9, answer)["topics"]
                if topic["partitions"][0]["error_code"] == "NONE":
                    acknowledged.add(partition, correlation_id_of(answer))

    reading = asyncio.create_task(read())
    for offset in range(1_000_000):
        if reading.done():
            break
        topic = {"name": "wide", "partitions": [committed_partition(partition, offset)]}
        client.write(frame("offset_commit", 9, correlation_id=offset, **commit_values("g", topics=[topic])))
        if offset % 20 == 0:
            await asyncio.sleep(0)
    await reading
    await client.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "folder"])
def test_stop_or_crash_under_load_loses_no_acknowledged_commit(tmp_path: Path, in_memory: bool, end: Any) -> None:
    async def scenario() -> None:
        data = None if in_memory else tmp_path / "data"
        async with asyncio.timeout(60), Coordinator(data, "127.0.0.1:0", topics={"wide": 8}) as coordinator:
            acknowledged = Acknowledged()
            commits = [commit_in_process(coordinator, partition, acknowledged) for partition in range(4)]
            commits += [commit_over_tcp(coordinator.bootstrap, partition, acknowledged) for partition in range(4, 8)]
            tasks = [asyncio.create_task(coro) for coro in commits]
            await acknowledged.is_enough.wait()
            await coordinator.restart(end)
            await asyncio.gather(*tasks)
            committed = await coordinator.offsets("g")
            assert set(acknowledged.offsets) == set(range(8))
            for partition, offset in acknowledged.offsets.items():
                assert committed["wide", partition].offset >= offset

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ENDS)
def test_end_answers_or_disconnects_pending_joins(end: Any) -> None:
    """A stop answers NOT_COORDINATOR, as Kafka does; after a kill a request in process raises an error."""
    join = JoinGroup("g", "", None, "worker", "/h", 10_000, 10_000, "consumer", (Protocol("range", b""),), False, False)

    async def scenario() -> None:
        async with asyncio.timeout(30), Coordinator(group_initial_rebalance_delay_ms=60_000) as coordinator:
            node = coordinator.node
            pending = node.local.ask(join, LOCAL)
            assert (await coordinator.describe("g")).state == "PreparingRebalance"
            await coordinator.restart(end)
            if end == "stopped":
                assert (await pending).error is ErrorCode.NOT_COORDINATOR
            else:
                with pytest.raises(pykka.ActorDeadError, match="has stopped"):
                    await pending
            with pytest.raises(pykka.ActorDeadError, match="has stopped"):  # the old node refuses requests
                await node.local.ask(join, LOCAL)

    asyncio.run(scenario())


def test_stop_answers_a_log_round_that_is_in_flight(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path, topics={"wide": 1}) as coordinator:
            requests = [coordinator.node.local.ask(commit(f"g{number}", 0, number), LOCAL) for number in range(500)]
            await coordinator.restart()
            assert {(await request).errors for request in requests} == {(ErrorCode.NONE,)}
            for number in range(500):
                assert (await coordinator.offsets(f"g{number}"))["wide", 0].offset == number

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ENDS)
def test_busy_members_continue_after_a_restart_without_losing_commits(end: Any) -> None:
    """Each commits as fast as it can during a restart; acknowledged commits survive, and more succeed."""

    async def scenario() -> None:
        async with asyncio.timeout(60), Coordinator(group_initial_rebalance_delay_ms=0) as coordinator:
            acknowledged, again = Acknowledged(), asyncio.Event()

            async def work(shard: Shard) -> None:
                assert isinstance(shard.name, int)
                with suppress(ShardLost):  # the next coordinator may have given it to another member
                    for offset in range(
                        max(acknowledged.offsets.get(shard.name, 0), shard.next_offset or 0) + 1, 1_000_000
                    ):
                        await shard.commit(offset)
                        acknowledged.add(shard.name, offset)
                        if is_over.is_set():
                            again.set()

            async def run_member() -> None:
                options: dict[str, Any] = {"session_timeout_ms": 6_000}
                async with coordinator.member("g", resources={"wide": 4}, **options) as member:
                    await member.run(work)

            is_over = asyncio.Event()
            members = [asyncio.create_task(run_member()) for _ in range(2)]
            await acknowledged.is_enough.wait()
            await coordinator.restart(end)
            before = dict(acknowledged.offsets)
            committed = await coordinator.offsets("g")
            assert all(committed["wide", partition].offset >= offset for partition, offset in before.items())
            is_over.set()
            await again.wait()
            for member in members:
                member.cancel()
            await asyncio.wait(members)

    asyncio.run(scenario())


def test_stop_makes_members_leave() -> None:
    """Their tasks are cancelled and awaited, and may commit until they end."""

    async def scenario() -> None:
        began = asyncio.Event()

        async def work(shard: Shard) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await shard.commit(7)

        async with asyncio.timeout(60):
            coordinator = Coordinator(group_initial_rebalance_delay_ms=0, topics={"wide": 1})
            await coordinator.start()
            member = coordinator.member("g", resources={"wide": 1})
            async with member:
                working = asyncio.create_task(member.run(work))
                await began.wait()
                environment = coordinator.node.environment
                await coordinator.stop()
                await working  # ends without an error
                with pytest.raises(MemberError, match="has left"):
                    await member.next_assignment()
            async with Coordinator(environment=environment) as second:
                assert (await second.offsets("g"))["wide", 0].offset == 7
                assert (await second.describe("g")).state == "Empty"

    asyncio.run(scenario())
