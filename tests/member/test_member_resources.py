"""Resources that change while members own their shards: functions of numbers and names. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest
from member_helpers import (
    GROUP,
    in_virtual_time,
    local_coordinator,
    member_on_loop_time,
    next_assignment_of,
    wait_until,
)

from callboard.runtime.member.errors import MemberError
from callboard.runtime.member.member import Member

JOBS = {"jobs": 6}


def make_member(connector: Any, group: str = GROUP, **options: Any) -> Member:
    return member_on_loop_time(connector, group, random=Random(1), **{"resources": JOBS, **options})


def owned_partitions(*members: Member) -> list[tuple[str, int]]:
    return sorted(shard.topic_partition for member in members for shard in member.shards if not shard.is_revoked)


@in_virtual_time
async def test_changed_names_move_few_shards_and_keep_offsets_by_name() -> None:
    names = ["acme", "zenith", "initech", "hooli"]
    options: Any = {"resources": {"tenants": lambda: list(names)}}
    async with local_coordinator() as connector:
        async with make_member(connector, **options) as ann, make_member(connector, **options) as bob:
            await wait_until(lambda: len(ann.shards) == len(bob.shards) == 2)
            kept = [shard for shard in (*ann.shards, *bob.shards) if shard.name != "acme"]
            for shard in kept:
                await shard.commit(7, str(shard.name))
            names[names.index("acme")] = "umbrella"
            names.sort()
            await wait_until(lambda: sorted(str(shard.name) for shard in (*ann.shards, *bob.shards)) == names)
            assert all(shard in (*ann.shards, *bob.shards) and not shard.is_revoked for shard in kept)
        async with make_member(connector, resources={"tenants": names}) as cleo:
            for shard in (await next_assignment_of(cleo, 4)).shards:
                assert (shard.next_offset, shard.note) == ((None, "") if shard.name == "umbrella" else (7, shard.name))


@in_virtual_time
async def test_partition_count_from_a_coroutine_function_may_grow() -> None:
    count = 2

    async def job_count() -> int:
        await asyncio.sleep(0.1)
        return count

    async with local_coordinator() as connector, make_member(connector, resources={"jobs": job_count}) as ann:
        await next_assignment_of(ann, 2)
        count = 5
        await next_assignment_of(ann, 5)
        count = 0
        await next_assignment_of(ann, 0)


@in_virtual_time
async def test_names_of_an_iterator_are_kept_for_the_join_and_each_refresh() -> None:
    """An iterator can be read only once: the check of the options must not leave nothing for the join."""
    names, count = (name for name in ("acme", "zenith")), 1
    resources = {"tenants": names, "jobs": lambda: count}
    async with local_coordinator() as connector, make_member(connector, resources=resources) as ann:
        await next_assignment_of(ann, 3)
        count = 2
        await next_assignment_of(ann, 4)


@in_virtual_time
async def test_shards_that_the_leader_has_added_first_are_owned_by_members_that_do_not_know_them_yet() -> None:
    """The leader's numbers are used. A member that refreshes later must not drop what it was assigned."""
    count = 2
    async with local_coordinator() as connector, make_member(connector, resources={"jobs": lambda: count}) as ann:
        await next_assignment_of(ann, 2)
        async with make_member(connector, resources={"jobs": 2}) as bob:
            await wait_until(lambda: len(ann.shards) == len(bob.shards) == 1)
            count = 6
            await wait_until(lambda: len(ann.shards) == len(bob.shards) == 3)
            assert owned_partitions(ann, bob) == [("jobs", number) for number in range(6)]
            generation = bob.generation
            await asyncio.sleep(30)
            assert (ann.generation, bob.generation) == (generation, generation)


@in_virtual_time
async def test_resource_function_with_an_equal_result_causes_no_rebalance() -> None:
    """For numbers and names. The member is the leader, whose partition counts are used."""
    calls = 0

    def job_count() -> int:
        nonlocal calls
        calls += 1
        return 2

    resources: dict[str, Any] = {"jobs": job_count, "tenants": lambda: ["acme", "zenith"]}
    async with local_coordinator() as connector, make_member(connector, resources=resources) as ann:
        await next_assignment_of(ann, 4)
        generation = ann.generation
        await wait_until(lambda: calls > 10)
        assert ann.is_leader
        assert ann.generation == generation


@in_virtual_time
async def test_resource_function_that_fails_later_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0
    caplog.set_level(logging.INFO, "callboard.member")

    def job_count() -> int:
        nonlocal calls
        calls += 1
        return calls // 0 if calls in (2, 3, 4, 6) else 2

    async with local_coordinator() as connector, make_member(connector, resources={"jobs": job_count}) as ann:
        await next_assignment_of(ann, 2)
        await wait_until(lambda: calls > 7)
        assert len(ann.shards) == 2
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "refreshed" in record.getMessage()]
    assert [level for level, _ in lines] == ["ERROR", "INFO", "ERROR", "INFO"], "of each outage its begin and its end"
    assert "could not be refreshed; they stay as they are" in lines[0][1]


@in_virtual_time
async def test_resource_whose_topic_is_refused_raises_member_error() -> None:
    async with local_coordinator() as connector, make_member(connector, resources={"a.b": 1}) as ann:
        await next_assignment_of(ann, 1)
        with pytest.raises(MemberError, match="collides"):
            async with make_member(connector, "other", resources={"a_b": 1}) as bob:
                await bob.next_assignment()
