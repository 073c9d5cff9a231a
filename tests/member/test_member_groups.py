"""Members in groups of a real coordinator, in this process and in virtual time: assignments and their changes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from member_helpers import (
    GROUP,
    background,
    group_state,
    in_virtual_time,
    local_coordinator,
    member_on_loop_time,
    next_assignment_of,
    restart_node,
    wait_until,
)

from callboard.actors.assignors.custom import FunctionAssignor
from callboard.actors.assignors.table import ASSIGNORS
from callboard.runtime.member.errors import Fenced, MemberError, ShardLost
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard

EAGER = ("range", "roundrobin", "sticky")
JOBS = {"jobs": 6}


def make_member(connector: Any, group: str = GROUP, **options: Any) -> Member:
    return member_on_loop_time(connector, group, random=Random(1), **{"resources": JOBS, **options})


def owned_partitions(*members: Member) -> list[tuple[str, int]]:
    return sorted(shard.topic_partition for member in members for shard in member.shards if not shard.is_revoked)


ALL = [("jobs", number) for number in range(6)]


# Assignments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ASSIGNORS)
@in_virtual_time
async def test_members_share_all_shards_and_get_those_of_members_that_leave(assignor: str) -> None:
    async with local_coordinator() as connector, make_member(connector, assignor=assignor) as ann:
        await (await next_assignment_of(ann, 6)).shards[0].commit(11, "eleven")
        async with make_member(connector, assignor=assignor) as bob, make_member(connector, assignor=assignor) as cleo:
            await wait_until(lambda: len(ann.shards) == len(bob.shards) == len(cleo.shards) == 2)
            await wait_until(lambda: owned_partitions(ann, bob, cleo) == ALL)
        assignment = await next_assignment_of(ann, 6)
        assert (assignment.shard("jobs", 0).next_offset, assignment.shard("jobs", 0).note) == (11, "eleven")


@in_virtual_time
async def test_custom_assignor_is_used_and_a_failing_one_is_replaced_by_round_robin() -> None:
    first_takes_all = FunctionAssignor("first", lambda partitions, members: {members[0].member_id: ALL})
    nobody: dict[str, list[tuple[str, int]]] = {}
    broken = FunctionAssignor("broken", lambda partitions, members: {"x": nobody["x"]})
    async with local_coordinator() as connector:
        async with (
            make_member(connector, assignor=first_takes_all) as ann,
            make_member(connector, assignor=first_takes_all) as bob,
        ):
            await wait_until(lambda: sorted((len(ann.shards), len(bob.shards))) == [0, 6])
        async with (
            make_member(connector, "other", assignor=broken) as ann,
            make_member(connector, "other", assignor=broken) as bob,
        ):
            await wait_until(lambda: len(ann.shards) == len(bob.shards) == 3)


@in_virtual_time
async def test_weighted_assignor_gives_shares_by_weight() -> None:
    options = {"assignor": "callboard-weighted"}
    async with (
        local_coordinator() as connector,
        make_member(connector, weight=2, **options) as ann,
        make_member(connector, weight=1, **options) as bob,
    ):
        await wait_until(lambda: (len(ann.shards), len(bob.shards)) == (4, 2))


@in_virtual_time
async def test_more_members_than_shards_leaves_some_without_shards() -> None:
    resources = {"jobs": 1}
    async with (
        local_coordinator() as connector,
        make_member(connector, resources=resources) as ann,
        make_member(connector, resources=resources) as bob,
    ):
        await wait_until(lambda: len(ann.shards) + len(bob.shards) == 1)
        idle = bob if ann.shards else ann
        assert (await idle.next_assignment()).shards == ()


@in_virtual_time
async def test_topics_of_resources_are_created() -> None:
    async with local_coordinator() as connector:
        async with (
            make_member(connector),
            make_member(connector, "named", resources={"tenants": ["acme", "a b"]}) as named,
        ):
            await next_assignment_of(named, 2)
        assert await connector.partitions(["jobs", "tenants.acme", "tenants.a.20b", "no"]) == {
            "jobs": 6,
            "tenants.acme": 1,
            "tenants.a.20b": 1,
        }
        async with make_member(connector, resources={"jobs": 8}) as grown:
            await next_assignment_of(grown, 8)
        assert await connector.partitions(["jobs"]) == {"jobs": 8}


@in_virtual_time
async def test_members_with_different_resources_get_only_their_own_shards() -> None:
    async with (
        local_coordinator() as connector,
        make_member(connector) as ann,
        make_member(connector, resources={"jobs": 6, "mails": 2}) as bob,
    ):
        await wait_until(lambda: owned_partitions(ann, bob) == [*ALL, ("mails", 0), ("mails", 1)])
        assert [shard.name for shard in bob.shards if shard.resource == "mails"] == [0, 1]


# Rebalances ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", EAGER)
@in_virtual_time
async def test_eager_rebalance_revokes_all_shards_and_accepts_commits_until_tasks_end(assignor: str) -> None:
    ended = []
    async with local_coordinator() as connector, make_member(connector, assignor=assignor) as ann:
        assignment = await next_assignment_of(ann, 6)

        async def job(shard: Shard) -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(3)
                await shard.commit(100 + int(shard.name))
                ended.append(shard)

        for shard in assignment.shards:
            assignment.create_task(job(shard), shard)
        async with make_member(connector, assignor=assignor) as bob:
            bobs = await next_assignment_of(bob, 3)
            assert len(ended) == 6
            assert [shard.next_offset for shard in bobs.shards] == [100 + int(shard.name) for shard in bobs.shards]
            assert bobs.generation == bobs.shards[0].token > assignment.generation


@in_virtual_time
async def test_cooperative_rebalance_does_not_interrupt_kept_shards() -> None:
    cancelled: list[Shard] = []

    async def handler(shard: Shard) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await shard.commit(1)
            cancelled.append(shard)

    async with local_coordinator() as connector, make_member(connector) as ann, background(ann.run(handler)):
        await wait_until(lambda: len(ann.shards) == 6)
        before = ann.shards
        async with make_member(connector) as bob:
            bobs = await next_assignment_of(bob, 3)
            assert len(cancelled) == 3
            assert {shard.topic_partition for shard in cancelled} == {shard.topic_partition for shard in bobs.shards}
            assert all(shard.next_offset == 1 for shard in bobs.shards)
            assert all(shard in before for shard in ann.shards)
            assert min(shard.token for shard in bobs.shards) > max(shard.token for shard in before)
        await wait_until(lambda: len(ann.shards) == 6)
        assert len(cancelled) == 3


@in_virtual_time
async def test_task_that_ignores_cancellation_is_abandoned_before_the_rebalance_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its commits are refused, and the other member waits no longer than the rebalance timeout."""

    async def ignore_cancellation(shard: Shard) -> None:
        while not shard.is_lost:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                continue
        with pytest.raises(ShardLost):
            await shard.commit(1)

    loop = asyncio.get_running_loop()
    async with local_coordinator() as connector, make_member(connector, rebalance_timeout_ms=20_000) as ann:
        assignment = await next_assignment_of(ann, 6)
        for shard in assignment.shards:
            assignment.create_task(ignore_cancellation(shard), shard)
        start_s = loop.time()
        async with make_member(connector, rebalance_timeout_ms=20_000) as bob:
            await next_assignment_of(bob, 3)
            assert 5 < loop.time() - start_s < 25
    assert "has not ended within" in caplog.text


@in_virtual_time
async def test_token_grows_with_each_owner_and_former_owner_commit_raises_shard_lost() -> None:
    async with local_coordinator() as connector:
        async with make_member(connector) as ann:
            first = (await next_assignment_of(ann, 6)).shards[0]
            async with make_member(connector) as bob:
                await next_assignment_of(bob, 3)
            second = next(shard for shard in ann.shards if shard.topic_partition == first.topic_partition)
            assert second.token >= first.token
        async with make_member(connector) as cleo:
            third = (await next_assignment_of(cleo, 6)).shards[0]
            assert third.token > first.token
            with pytest.raises(ShardLost, match="lost"):
                await first.commit(1)


# The coordinator -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_restart_within_the_lease_keeps_all_shards() -> None:
    """Commits that are pending during the restart succeed."""
    async with local_coordinator() as connector, make_member(connector) as ann, make_member(connector) as bob:
        await wait_until(lambda: len(ann.shards) == len(bob.shards) == 3)
        shards = [*ann.shards, *bob.shards]
        await asyncio.gather(restart_node(connector), *(shard.commit(5) for shard in shards))
        await asyncio.sleep(60)
        assert [*ann.shards, *bob.shards] == shards
        assert not any(shard.is_revoked for shard in shards)


@in_virtual_time
async def test_outage_longer_than_the_lease_loses_shards_until_the_coordinator_returns() -> None:
    async with local_coordinator() as connector, make_member(connector) as ann, make_member(connector) as bob:
        await wait_until(lambda: len(ann.shards) == len(bob.shards) == 3)
        before = [*ann.shards, *bob.shards]
        await before[0].commit(3)
        node, connector.node = connector.node, None
        assert node is not None
        for channel in tuple(node.local.channels):
            channel.close()
        await asyncio.sleep(30)
        assert all(shard.is_lost for shard in before)
        connector.node = node
        await wait_until(lambda: owned_partitions(ann, bob) == ALL)
        again = next(
            shard for shard in (*ann.shards, *bob.shards) if shard.topic_partition == before[0].topic_partition
        )
        assert again.next_offset == 3


@in_virtual_time
async def test_member_started_before_the_coordinator_joins_later() -> None:
    async with local_coordinator() as connector:
        node, connector.node = connector.node, None
        async with make_member(connector) as member:
            await asyncio.sleep(20)
            assert member.generation == -1
            connector.node = node
            await next_assignment_of(member, 6)


@in_virtual_time
async def test_join_of_a_full_or_incompatible_group_raises_member_error_with_advice() -> None:
    async with local_coordinator(group_max_size=1) as connector, make_member(connector) as ann:
        await next_assignment_of(ann, 6)
        with pytest.raises(MemberError, match="group_max_size"):
            async with make_member(connector) as bob:
                await bob.next_assignment()
        with pytest.raises(MemberError, match="session_timeout_ms"):
            async with make_member(connector, "other", session_timeout_ms=1_000) as cleo:
                await cleo.next_assignment()
    async with local_coordinator() as connector, make_member(connector, assignor="range") as ann:
        await next_assignment_of(ann, 6)
        with pytest.raises(MemberError, match="same assignor"):
            async with make_member(connector, assignor="roundrobin") as bob:
                await bob.next_assignment()


@in_virtual_time
async def test_group_changes_its_assignor_through_members_that_offer_both() -> None:
    async with (
        local_coordinator() as connector,
        make_member(connector, assignor=["cooperative-sticky", "range"]) as both,
    ):
        async with make_member(connector, assignor="range") as old:
            await wait_until(lambda: len(both.shards) == len(old.shards) == 3)
        await wait_until(lambda: len(both.shards) == 6)
        async with make_member(connector, assignor="cooperative-sticky") as new:
            await wait_until(lambda: len(both.shards) == len(new.shards) == 3)


# Static members ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_static_member_that_returns_in_time_gets_the_same_shards_without_rebalance() -> None:
    async with local_coordinator() as connector, make_member(connector) as other:
        async with make_member(connector, instance_id="one") as static:
            await wait_until(lambda: len(static.shards) == len(other.shards) == 3)
            before, generation = owned_partitions(static), other.generation
        async with make_member(connector, instance_id="one") as static:
            await next_assignment_of(static, 3)
            assert owned_partitions(static) == before
            assert other.generation == static.generation == generation
        await wait_until(lambda: len(other.shards) == 6)  # the static member's session has expired


@pytest.mark.parametrize("before, after", [({"jobs": 2}, {"jobs": 4}), ({"tenants": ["a"]}, {"tenants": ["a", "b"]})])
@in_virtual_time
async def test_static_leader_that_returns_with_more_shards_assigns_them(before: Any, after: Any) -> None:
    """The coordinator starts no rebalance for it, and no other member can."""
    async with local_coordinator() as connector:
        async with make_member(connector, instance_id="one", resources=before) as static:
            await wait_until(lambda: len(static.shards) > 0)
            assert static.is_leader
        async with make_member(connector, instance_id="one", resources=after) as static:
            await wait_until(lambda: len(static.shards) == 2 * len(before.get("tenants", "ab")))


@in_virtual_time
async def test_static_member_that_returns_with_a_new_name_gets_it() -> None:
    """It is not the leader, which does not know the name."""
    async with local_coordinator() as connector, make_member(connector, resources={"tenants": ["a", "b"]}) as leader:
        await next_assignment_of(leader, 2)
        async with make_member(connector, instance_id="one", resources={"tenants": ["a", "b"]}) as static:
            await wait_until(lambda: len(leader.shards) == len(static.shards) == 1)
        async with make_member(connector, instance_id="one", resources={"tenants": ["a", "b", "c"]}) as static:
            await wait_until(lambda: "c" in [shard.name for shard in static.shards])
            await wait_until(lambda: len(leader.shards) + len(static.shards) == 3)
            generation = static.generation
            await asyncio.sleep(60)
            assert static.generation == leader.generation == generation


@in_virtual_time
async def test_static_member_that_returns_sees_that_a_shard_it_gave_back_has_no_owner() -> None:
    """The coordinator restarts before anybody else has heard of the rebalance in which the shard gets another owner."""
    jobs = {"jobs": 4}
    async with local_coordinator() as connector, make_member(connector, resources=jobs) as leader:
        await next_assignment_of(leader, 4)
        async with AsyncExitStack() as others:
            async with make_member(connector, instance_id="one", resources=jobs) as static:
                await wait_until(lambda: len(leader.shards) == len(static.shards) == 2)
                other = await others.enter_async_context(make_member(connector, resources=jobs))
                await wait_until(lambda: len(static.shards) == 1)
                assert len(leader.shards) == 2 and not other.shards
            await restart_node(connector)
            static = await others.enter_async_context(make_member(connector, instance_id="one", resources=jobs))
            await wait_until(lambda: owned_partitions(leader, static, other) == ALL[:4])


@in_virtual_time
async def test_second_process_with_the_same_instance_id_fences_the_first() -> None:
    async with local_coordinator() as connector, make_member(connector, instance_id="one") as first:
        shard = (await next_assignment_of(first, 6)).shards[0]
        async with make_member(connector, instance_id="one") as second:
            with pytest.raises(Fenced, match="instance_id='one'"):
                await first.next_assignment()
            assert shard.is_lost
            await next_assignment_of(second, 6)


# run(), bodies and tasks ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_run_leaves_the_group_then_raises_the_error_of_a_handler() -> None:
    async def handler(shard: Shard) -> None:
        if shard.name == 3:
            raise LookupError("no such image")
        await asyncio.sleep(1e6)

    async with local_coordinator() as connector:
        member = make_member(connector)
        with pytest.raises(LookupError, match="no such image"):
            async with member:
                try:
                    await member.run(handler)
                finally:
                    assert await group_state(connector) == "Empty"
        assert member.shards == ()


@in_virtual_time
async def test_body_of_an_assignment_that_is_over_is_cancelled_without_error() -> None:
    shard_counts: list[int] = []
    async with local_coordinator() as connector, make_member(connector, assignor="range") as ann:

        async def consume() -> None:
            async for assignment in ann.assignments():
                async with assignment:
                    shard_counts.append(len(assignment.shards))
                    await asyncio.sleep(1e6)

        async with background(consume()) as consuming:
            await wait_until(lambda: shard_counts == [6])
            async with make_member(connector, assignor="range") as bob:
                await next_assignment_of(bob, 3)
                await wait_until(lambda: shard_counts == [6, 3])
            await wait_until(lambda: shard_counts == [6, 3, 6])
            consuming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await consuming


@in_virtual_time
async def test_cancellation_by_the_user_is_not_suppressed_at_any_await() -> None:
    """Also while shards are released and while the member joins or leaves. Then the group is empty."""
    for steps in range(120):
        async with local_coordinator() as connector:

            async def consume(connector: LocalConnector = connector) -> None:
                async with make_member(connector) as ann:
                    async for assignment in ann.assignments():
                        async with assignment:
                            for shard in assignment.shards:
                                assignment.create_task(asyncio.sleep(1e6), shard)
                            await assignment.shards[0].commit(1)
                            await assignment.commit(assignment.shards[1], 2)

            consuming = asyncio.ensure_future(consume())
            for _ in range(steps):
                await asyncio.sleep(0)
            consuming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await consuming
            await asyncio.sleep(1)
            member_tasks = [task for task in asyncio.all_tasks() if "member" in repr(task.get_coro())]
            assert member_tasks == []
            await asyncio.sleep(30)
            assert await group_state(connector) in ("Empty", "Dead")


@in_virtual_time
async def test_second_enter_of_a_member_raises_runtime_error() -> None:
    async with local_coordinator() as connector:
        async with make_member(connector) as ann:
            with pytest.raises(RuntimeError, match="entered before"):
                await ann.__aenter__()
        with pytest.raises(RuntimeError, match="entered before"):
            await ann.__aenter__()
        with pytest.raises(MemberError, match="has left"):
            await ann.next_assignment()


def test_empty_group_name_raises_value_error() -> None:
    with pytest.raises(ValueError, match="not empty"):
        Member(LocalConnector(), "", resources=JOBS)
