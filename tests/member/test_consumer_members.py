"""Members of the consumer protocol: against a script in virtual time, in process, over TCP and in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from harness import async_test
from member_helpers import (
    GROUP,
    ScriptedConnector,
    in_virtual_time,
    member_on_loop_time,
    next_assignment_of,
    topic_id_of,
    unanswered,
    wait_until,
)

import callboard
from callboard.actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Committed, OffsetCommit
from callboard.runtime.member.errors import MemberError, ShardLost
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard
from callboard.runtime.member.tcp import TcpConnector

DEADLINE_S = 120.0
CONSUMER: Any = {"resources": {"jobs": 4}, "protocol": "consumer"}
SETTINGS: Any = {
    "group_consumer_session_timeout_ms": 6000,
    "group_consumer_min_session_timeout_ms": 1,
    "group_consumer_heartbeat_interval_ms": 50,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_consumer_assignment_interval_ms": 0,
}


def reply(epoch: int, numbers: Sequence[int] | None = None) -> ConsumerHeartbeatReply:
    assigned = None if numbers is None else tuple((topic_id_of("jobs"), number) for number in numbers)
    return ConsumerHeartbeatReply(ErrorCode.NONE, None, "m", epoch, 2000, assigned)


def heartbeats(connector: ScriptedConnector) -> list[ConsumerHeartbeat]:
    return [request for request in connector.requests if isinstance(request, ConsumerHeartbeat)]


async def until_asked(connector: ScriptedConnector, count: int) -> ConsumerHeartbeat:
    """The heartbeat with this number, counted from 1."""
    await wait_until(lambda: len(heartbeats(connector)) >= count)
    return heartbeats(connector)[count - 1]


def scripted(*answers: Any) -> ScriptedConnector:
    """A coordinator with these answers to heartbeats, and then none."""
    connector = ScriptedConnector()
    connector.answer_next(ConsumerHeartbeat, *answers, *[unanswered() for _ in range(50)])
    return connector


# Against a script ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_work_on_shards_that_stay_is_not_interrupted_and_the_others_are_given_back_at_once() -> None:
    connector = scripted(reply(2, [0, 1]), reply(2), reply(2, [0]), reply(3), reply(3))
    ended: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()

    async def work(shard: Shard) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.5)
            ended.append((shard.number, loop.time()))

    async with member_on_loop_time(connector, **CONSUMER) as member:
        running = asyncio.ensure_future(member.run(work))
        request = await until_asked(connector, 4)
        [(number, ended_s)] = ended
        assert number == 1 and loop.time() - ended_s < 0.05, "the heartbeat does not wait for its interval"
        assert request.owned == ((topic_id_of("jobs"), 0),)
        await until_asked(connector, 5)
        assert [shard.number for shard in member.shards] == [0]
    await running


@in_virtual_time
async def test_fenced_member_loses_all_shards_and_joins_again_with_epoch_0() -> None:
    connector = scripted(reply(2, [0]), reply(2), ErrorCode.FENCED_MEMBER_EPOCH, reply(5, [0]), reply(5))
    async with member_on_loop_time(connector, **CONSUMER) as member:
        before = await next_assignment_of(member)
        after = await next_assignment_of(member)
        assert before.shards[0].is_lost and (before.shards[0].token, after.shards[0].token) == (2, 5)
        request = heartbeats(connector)[3]
        assert (request.member_epoch, request.owned, request.member_id) == (0, (), member.member_id)


@in_virtual_time
async def test_heartbeat_after_a_lost_answer_says_everything_and_nothing_stops() -> None:
    connector = scripted(reply(2, [0]), reply(2), unanswered(), reply(3, [0]))
    async with member_on_loop_time(connector, **CONSUMER) as member:
        assignment = await next_assignment_of(member)
        request = await until_asked(connector, 4)
        assert request.is_full and request.member_epoch == 2 and len(request.owned or ()) == 1
        assert not assignment.is_over and not assignment.shards[0].is_lost


@in_virtual_time
async def test_lease_counts_from_the_last_answered_heartbeat() -> None:
    connector = scripted(reply(2, [0]), reply(2))
    loop = asyncio.get_running_loop()
    async with member_on_loop_time(connector, lease_margin_ms=1000, **CONSUMER) as member:
        shard = (await next_assignment_of(member)).shards[0]
        sent_s = connector.request_times_s[connector.requests.index(heartbeats(connector)[1])]
        await shard.lost.wait()
        assert loop.time() == pytest.approx(sent_s + 9, abs=0.01)
        with pytest.raises(ShardLost):
            await shard.commit(1)


@in_virtual_time
async def test_commit_has_the_member_epoch_and_waits_for_a_newer_one() -> None:
    connector = scripted(reply(2, [0]), reply(2), reply(3), reply(3))
    connector.answer_next(OffsetCommit, Committed((ErrorCode.STALE_MEMBER_EPOCH,)))
    async with member_on_loop_time(connector, **CONSUMER) as member:
        shard = (await next_assignment_of(member)).shards[0]
        await shard.commit(1)
        epochs = [request.generation_id for request in connector.requests if isinstance(request, OffsetCommit)]
        assert epochs[0] == 2 and epochs[-1] in (2, 3) and len(epochs) == 2


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
@in_virtual_time
async def test_member_leaves_and_a_static_one_leaves_for_a_while(instance_id: str | None, epoch: int) -> None:
    connector = scripted(reply(2, [0]), reply(2))
    member = member_on_loop_time(connector, instance_id=instance_id, **CONSUMER)
    async with member:
        await next_assignment_of(member)
    last = heartbeats(connector)[-1]
    assert (last.member_epoch, last.instance_id, last.member_id) == (epoch, instance_id, member.member_id)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "the same protocol"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group_consumer_assignors"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "start fewer members"),
    ],
)
@in_virtual_time
async def test_refused_join_is_raised(error: ErrorCode, expected: str) -> None:
    async with member_on_loop_time(scripted(error), **CONSUMER) as member:
        with pytest.raises(MemberError, match=expected):
            await member.next_assignment()


@in_virtual_time
async def test_margin_that_the_session_of_the_coordinator_is_too_short_for_is_an_error() -> None:
    connector = scripted()
    connector.session_ms = 1000
    async with member_on_loop_time(connector, lease_margin_ms=5000, **CONSUMER) as member:
        with pytest.raises(MemberError, match="1000 ms: lease_margin_ms=5000"):
            await member.next_assignment()


# With a coordinator --------------------------------------------------------------------------------------------------


def make_coordinator() -> callboard.Coordinator:
    return callboard.Coordinator(listen="127.0.0.1:0", **SETTINGS)


async def wait_until_split(*members: Member, shards: int = 4) -> None:
    """Wait until the members share this many shards equally."""
    async with asyncio.timeout(DEADLINE_S):
        while [len(member.shards) for member in members] != [shards // len(members)] * len(members):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("resources", [{"tenants": ["acme", "a b", "ü", "x.y"]}, {"jobs": 4}], ids=["names", "numbers"])
@async_test
async def test_members_over_tcp_and_in_process_share_a_group(resources: Any) -> None:
    options: Any = {"resources": resources, "protocol": "consumer"}
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(make_coordinator())
        remote = await stack.enter_async_context(callboard.connect(coordinator.bootstrap))
        near = await stack.enter_async_context(coordinator.member("g", **options))
        await wait_until_split(near)
        kept = set(near.shards)
        async with remote.member("g", **options) as far:
            await wait_until_split(near, far)
            assert kept >= set(near.shards), "those that stay are the same shards"
            assert min(shard.token for shard in far.shards) > max(shard.token for shard in near.shards)
            moved = far.shards[0]
            await moved.commit(3, "three")
        await wait_until_split(near)
        again = next(shard for shard in near.shards if shard.name == moved.name)
        assert (again.next_offset, again.note) == (3, "three") and again.token > moved.token


@async_test
async def test_member_over_tcp_keeps_its_shards_when_the_coordinator_restarts() -> None:
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(make_coordinator())
        remote = await stack.enter_async_context(callboard.connect(coordinator.bootstrap))
        member = await stack.enter_async_context(remote.member("g", **CONSUMER))
        assignment = await next_assignment_of(member, 4)
        await coordinator.restart("killed")
        for shard in assignment.shards:
            await shard.commit(5)
        assert not assignment.is_over
        assert len(await coordinator.offsets("g")) == 4


@async_test
async def test_static_member_returns_to_its_shards_and_others_are_not_interrupted() -> None:
    async with make_coordinator() as coordinator, coordinator.member("g", **CONSUMER) as other:
        names: list[set[Any]] = []
        for _ in range(2):
            async with coordinator.member("g", instance_id="one", **CONSUMER) as member:
                await wait_until_split(other, member)
                kept = set(other.shards)
                names.append({shard.name for shard in member.shards})
            assert set(other.shards) == kept, "the shards wait for the static member"
        assert names[0] == names[1]


@async_test
async def test_session_timeout_of_the_group_is_read_from_the_coordinator() -> None:
    async with make_coordinator() as coordinator:
        assert await TcpConnector(coordinator.bootstrap).consumer_session_timeout_ms("g") == 6000
        assert await coordinator.connector.consumer_session_timeout_ms("g") == 6000


def test_blocking_members_use_the_consumer_protocol() -> None:
    with (
        callboard.Coordinator.in_thread(listen="127.0.0.1:0", **SETTINGS) as coordinator,
        callboard.connect_in_thread(coordinator.bootstrap) as remote,
        remote.member(GROUP, **CONSUMER) as member,
    ):
        assignment = member.next_assignment(DEADLINE_S)
        with assignment:
            assert [assignment.commit(shard, 7).durability for shard in assignment.shards] == [""] * 4
        with coordinator.member(GROUP, **CONSUMER) as near:
            while len(near.shards) != 2 or len(member.shards) != 2:
                near.next_assignment(DEADLINE_S)
            assert {shard.next_offset for shard in near.shards} == {7}
