"""No shard has two owners: a disconnected member stops its work before the coordinator reassigns its shards.

A real coordinator and members in virtual time. Seeded random cuts disconnect some members for a while.
``CALLBOARD_LEASE_SEED`` chooses the seeds; ``make soak`` runs thousands.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from member_helpers import (
    CutConnector,
    ScriptedConnector,
    in_virtual_time,
    local_coordinator,
    member_on_loop_time,
    next_assignment_of,
    restart_node,
    unanswered,
    wait_until,
)

from callboard.actors.assignors.consumer_protocol import MemberAssignment, write_assignment
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import GroupRequest, Heartbeat, Joined, JoinGroup, LeaveGroup, Synced, SyncGroup
from callboard.runtime.member.channel import Channel
from callboard.runtime.member.errors import ShardLost
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.shards import Assignment, Shard
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop
from callboard.runtime.testing.simulation.loop import run as run_virtually

SEEDS_A_RUN = 10 if "CALLBOARD_LEASE_SEED" in os.environ else 4
FIRST_SEED = SEEDS_A_RUN * int(os.environ.get("CALLBOARD_LEASE_SEED", "0"))
MEMBERS = 4
LONG_S = 300.0
SESSION_S = 10.0  # the default
CLEAN_UP_S = 0.9  # less than the margin of the lease, two seconds


class OwnershipLedger:
    """The workers record here which shards they work on. A second owner or a smaller token is an error."""

    def __init__(self) -> None:
        self.owners: dict[tuple[str, int], Shard] = {}
        self.tokens: dict[tuple[str, int], int] = {}
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.taken_count = 0

    def add_owner(self, shard: Shard) -> None:
        assert shard.topic_partition not in self.owners, (
            f"{shard} already has an owner: {self.owners[shard.topic_partition]}"
        )
        assert shard.token >= self.tokens.get(shard.topic_partition, 0)
        committed = self.next_offsets.get(shard.topic_partition)
        assert committed is None or (shard.next_offset is not None and shard.next_offset >= committed)
        self.owners[shard.topic_partition] = shard
        self.tokens[shard.topic_partition] = shard.token
        self.taken_count += 1

    def remove_owner(self, shard: Shard) -> None:
        assert self.owners.pop(shard.topic_partition) is shard

    async def work_on(self, shard: Shard) -> None:
        """Owns the shard from its first to its last line."""
        self.add_owner(shard)
        next_offset = shard.next_offset or 0
        try:
            while True:
                next_offset += 1
                await shard.commit(next_offset)
                self.next_offsets[shard.topic_partition] = max(
                    next_offset, self.next_offsets.get(shard.topic_partition, 0)
                )
                await asyncio.sleep(0.7)
        except ShardLost:
            return
        finally:
            await asyncio.sleep(CLEAN_UP_S)
            self.remove_owner(shard)


async def cut_and_restore(connector: CutConnector, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(0, 30))
        connector.loses_requests, connector.loses_answers = random.choice([(True, True), (True, False), (False, True)])
        await asyncio.sleep(random.choice([random.uniform(0, 3), random.uniform(5, 40)]))
        connector.loses_requests = connector.loses_answers = False


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS_A_RUN))
def test_no_shard_has_two_owners_under_network_cuts(seed: int, assignor: str) -> None:
    run_virtually(run_with_network_cuts(seed, assignor), seed)


async def run_with_network_cuts(seed: int, assignor: str) -> None:
    random, ledger = Random(f"{seed}/{assignor}"), OwnershipLedger()
    options: Any = {"resources": {"jobs": 5}, "assignor": assignor, "rebalance_timeout_ms": 20_000}
    async with local_coordinator() as connector, AsyncExitStack() as stack:
        connectors = [CutConnector(connector) for _ in range(MEMBERS)]
        members = [member_on_loop_time(cut, "g", random=Random(seed), **options) for cut in connectors]
        tasks = []
        for member in members:
            await stack.enter_async_context(member)
            tasks.append(asyncio.ensure_future(member.run(ledger.work_on)))
        cutting = [asyncio.ensure_future(cut_and_restore(cut, random)) for cut in connectors[1:]]
        restarts = random.random() < 0.5
        await asyncio.sleep(LONG_S / 2)
        if restarts:
            await restart_node(connector)
        await asyncio.sleep(LONG_S / 2)
        for task in cutting:
            task.cancel()
        for cut in connectors:
            cut.loses_requests = cut.loses_answers = False
        await wait_until(lambda: len(ledger.owners) == 5, 0.5)
        assert ledger.taken_count > 5
        assert [task for task in tasks if task.done()] == []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class FreezingChannel:
    """The process freezes when its first SyncGroup is sent; the answer arrives after the end of its lease.

    Heartbeats, whose answers would show that it was removed, take longer.
    """

    def __init__(self, inner: Channel, process: Process) -> None:
        self._inner = inner
        self._process = process
        self.close = inner.close

    async def ask(self, message: GroupRequest) -> Any:
        if isinstance(message, Heartbeat):
            await asyncio.sleep(3)
        answer = self._inner.ask(message)
        if isinstance(message, SyncGroup) and message.generation_id == 1:
            self._process.freeze()
            await asyncio.sleep(SESSION_S)
        return await answer


class FreezingConnector(LocalConnector):
    def __init__(self, connector: LocalConnector, process: Process) -> None:
        super().__init__(connector.node)
        self._process = process

    async def open(self, client_id: str) -> Any:
        return FreezingChannel(await super().open(client_id), self._process)


@in_virtual_time
async def test_assignment_received_after_the_lease_is_not_applied() -> None:
    """It arrived while the process was frozen, and another member owns the shard now."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    ledger = OwnershipLedger()
    async with local_coordinator() as connector:
        process = Process(loop, "worker")

        async def work_on(local: LocalConnector) -> None:
            async with member_on_loop_time(local, "g", resources={"jobs": 1}) as member:
                await member.run(ledger.work_on)

        frozen_task = process.start(work_on(FreezingConnector(connector, process)))
        await wait_until(lambda: process.is_frozen)
        other_task = asyncio.ensure_future(work_on(connector))
        await wait_until(lambda: ledger.taken_count == 1)
        process.thaw()
        await asyncio.sleep(20)
        assert not frozen_task.done()
        assert not other_task.done()
        assert ledger.taken_count == 1
        other_task.cancel()
        frozen_task.cancel()
        await asyncio.wait({other_task, frozen_task})


@in_virtual_time
async def test_process_frozen_past_its_lease_sees_its_shards_lost_first() -> None:
    """After it resumes, its commit is refused, and its token is smaller than the new owner's."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with local_coordinator() as connector:
        process = Process(loop, "worker")
        events: list[Any] = []  # the shard, then the error

        async def worker() -> None:
            async with member_on_loop_time(connector, "g", resources={"jobs": 1}) as member:
                shard = (await next_assignment_of(member, 1)).shards[0]
                events.append(shard)
                try:
                    while True:
                        await asyncio.sleep(0.5)
                        await shard.commit(1)
                except ShardLost as error:
                    events.append(error)

        working = process.start(worker())
        await wait_until(lambda: len(events) == 1)
        await asyncio.sleep(5)
        process.freeze()
        async with member_on_loop_time(connector, "g", resources={"jobs": 1}) as other:
            new_owner: Assignment = await next_assignment_of(other, 1)
            assert new_owner.shards[0].token > events[0].token
            await new_owner.shards[0].commit(100)
            process.thaw()
            await working
            assert isinstance(events[1], ShardLost)
        async with member_on_loop_time(connector, "g", resources={"jobs": 1}) as third:
            assert (await next_assignment_of(third, 1)).shards[0].next_offset == 100


@in_virtual_time
async def test_shard_lost_while_a_join_is_held_back_and_moved_elsewhere_gets_an_owner() -> None:
    """The JoinGroup claimed it, so the leader has assigned it to nobody: the member must rejoin without it."""
    connector = ScriptedConnector()
    async with member_on_loop_time(connector, resources={"jobs": 2}, rebalance_timeout_ms=30_000) as member:
        await next_assignment_of(member, 2)
        slow: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connector.answer_next(Heartbeat, *[ErrorCode.REBALANCE_IN_PROGRESS] * 100)
        connector.answer_next(JoinGroup, slow)
        await wait_until(lambda: not member.shards)  # the lease ends with the rebalance timeout
        connector.next_answers.clear()
        only_first = write_assignment(MemberAssignment((("jobs", 0),)))
        connector.answer_next(SyncGroup, Synced(ErrorCode.NONE, "consumer", "", only_first))
        join = connector.last_request(JoinGroup)
        slow.set_result(Joined(ErrorCode.NONE, join.member_id, 3, "consumer", join.protocols[0].name, "somebody"))
        joins = connector.count(JoinGroup)
        await wait_until(lambda: connector.count(SyncGroup) > 2)
        assert connector.count(JoinGroup) == joins + 1
        assert len((await next_assignment_of(member, 2)).shards) == 2


@in_virtual_time
async def test_member_leaves_when_work_on_a_shard_that_it_has_lost_has_ended() -> None:
    """The coordinator may have handled a heartbeat whose answer was lost, and would give the shard away at once."""
    connector, loop = ScriptedConnector(), asyncio.get_running_loop()
    works: list[Shard] = []
    ends_s: list[float] = []

    async def work(shard: Shard) -> None:
        works.append(shard)
        try:
            await asyncio.sleep(LONG_S)
        finally:
            await asyncio.sleep(CLEAN_UP_S)
            ends_s.append(loop.time())

    member = member_on_loop_time(connector, resources={"jobs": 1})
    async with member:
        serving = asyncio.create_task(member.run(work))
        await wait_until(lambda: len(works) == 1)
        connector.answer_next(Heartbeat, *[unanswered()] * 100)
        await wait_until(lambda: works[0].is_lost)
    await serving
    left_s = connector.request_times_s[connector.requests.index(connector.last_request(LeaveGroup))]
    assert ends_s and left_s >= ends_s[0]


# A look at the lease compares its deadline with the clock -------------------------------------------------------------


class AheadClock:
    """The loop's time, plus a time during which the process or the machine stood still and no timer fired."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> float:
        return self._loop.time() + self.ahead_s


@in_virtual_time
async def test_first_look_after_a_stall_says_lost() -> None:
    """Before any callback of the event loop has run."""
    async with local_coordinator() as connector:
        clock = AheadClock()
        async with member_on_loop_time(connector, resources={"jobs": 1}, clock_s=clock) as member:
            assignment = await next_assignment_of(member, 1)
            shard = assignment.shards[0]
            assert 0 < shard.lease_left_s <= SESSION_S
            assert not shard.is_lost
            clock.ahead_s += SESSION_S
            assert (shard.is_revoked, shard.is_lost, assignment.is_over, shard.lease_left_s) == (True, True, True, 0)
            with pytest.raises(ShardLost):
                await shard.commit(1)


class LateChannel:
    """Answers to heartbeats arrive after ``delay_s``."""

    def __init__(self, inner: Channel, connector: LateConnector) -> None:
        self._inner = inner
        self._connector = connector
        self.close = inner.close

    async def ask(self, message: GroupRequest) -> Any:
        answer = await self._inner.ask(message)
        if isinstance(message, Heartbeat):
            self._connector.heartbeats += 1
            await asyncio.sleep(self._connector.delay_s)
        return answer


class LateConnector(LocalConnector):
    def __init__(self, connector: LocalConnector) -> None:
        super().__init__(connector.node)
        self.delay_s = 0.0
        self.heartbeats = 0

    async def open(self, client_id: str) -> Any:
        return LateChannel(await super().open(client_id), self)


@in_virtual_time
async def test_answer_after_the_end_of_a_lease_does_not_revive_it() -> None:
    """Whoever has seen that the lease was over has stopped. So the shard is lost, although a heartbeat was in time."""
    async with local_coordinator() as inner:
        connector, clock = LateConnector(inner), AheadClock()
        async with member_on_loop_time(connector, resources={"jobs": 1}, clock_s=clock) as member:
            shard = (await next_assignment_of(member, 1)).shards[0]
            connector.delay_s, heartbeats = 0.2, connector.heartbeats
            await wait_until(lambda: connector.heartbeats > heartbeats)
            clock.ahead_s += shard.lease_left_s + 0.1
            assert shard.is_lost
            clock_of_answer_s = clock() + 0.2
            await asyncio.sleep(0.25)
            assert clock() >= clock_of_answer_s and shard.lost.is_set()
            assert shard.is_lost
            assert (await next_assignment_of(member, 1)).shards[0].token > shard.token


@in_virtual_time
async def test_suspended_machine_without_answers_loses_its_shards_within_a_heartbeat_interval() -> None:
    """The timers of the event loop stood still, so the one for the deadline is late."""
    async with local_coordinator() as inner:
        connector, clock = LateConnector(inner), AheadClock()
        async with member_on_loop_time(connector, resources={"jobs": 1}, clock_s=clock) as member:
            shard = (await next_assignment_of(member, 1)).shards[0]
            connector.delay_s = 1000.0
            await asyncio.sleep(1)
            clock.ahead_s += SESSION_S
            async with asyncio.timeout(SESSION_S / 5 + 0.1):
                await shard.lost.wait()


@in_virtual_time
async def test_member_of_a_frozen_server_asks_the_others_before_its_lease_ends() -> None:
    """The server accepts everything and answers nothing, and the group has moved meanwhile."""
    async with local_coordinator() as inner:
        connector = CutConnector(inner)
        async with member_on_loop_time(connector, resources={"jobs": 1}) as member:
            shard = (await next_assignment_of(member, 1)).shards[0]
            await asyncio.sleep(3)
            connector.loses_requests = True
            commit = asyncio.ensure_future(shard.commit(7))
            await asyncio.sleep(1)
            connector.loses_requests = False  # for new connections: a lost request stays lost
            await commit
            await asyncio.sleep(2 * SESSION_S)
            assert not shard.is_lost


@in_virtual_time
async def test_channel_of_a_silent_server_is_closed_once() -> None:
    """A server that is only slow is not asked again and again."""
    connector = ScriptedConnector()
    async with member_on_loop_time(connector, resources={"jobs": 1}) as member:
        shard = (await next_assignment_of(member, 1)).shards[0]
        await wait_until(lambda: connector.count(Heartbeat) > 0)
        opened = connector.opened
        connector.answer_next(Heartbeat, *[unanswered() for _ in range(10)])
        async with asyncio.timeout(SESSION_S):
            await shard.lost.wait()
        assert connector.opened == opened + 1
