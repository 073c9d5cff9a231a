"""Fencing tokens grow with each change of owner, also if the group was deleted in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from actor_system.simulated_group import SimulatedGroup
from member_helpers import (
    GROUP,
    in_virtual_time,
    local_coordinator,
    member_on_loop_time,
    next_assignment_of,
    restart_node,
)

from callboard import Coordinator
from callboard.actors.group.core import first_generation
from callboard.runtime.embed.results import ListedGroup
from callboard.runtime.engine import clock
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.resources import check_names
from callboard.runtime.testing.plugin.harness_coordinator import HarnessCoordinator

JOBS = {"jobs": 2}
DAY_S = 24 * 3600


async def next_token(connector: LocalConnector) -> int:
    """The token of a member that joins and leaves."""
    async with member_on_loop_time(connector, resources=JOBS) as member:
        return (await next_assignment_of(member, 2)).shards[0].token


@in_virtual_time
async def test_token_grows_after_the_group_was_deleted() -> None:
    """The retention scan deletes an empty group without offsets, but a store still has its token."""
    async with local_coordinator(group_generation_from_clock=True) as connector:
        first = await next_token(connector)
        second = await next_token(connector)
        assert connector.node is not None
        groups = connector.node.groups
        await asyncio.sleep(2 * 600)  # the retention scan runs every ten minutes
        assert GROUP not in groups.groups
        assert GROUP not in groups.passivated
        assert first < second < await next_token(connector)


@in_virtual_time
async def test_token_begins_at_the_clock_after_a_restart_before_the_first_generation() -> None:
    """The log has a record of the group then, with generation 0, as Kafka's."""
    settings: Any = {"group_generation_from_clock": True, "group_initial_rebalance_delay_ms": 3000}
    async with (
        local_coordinator(**settings) as connector,
        member_on_loop_time(connector, resources=JOBS) as member,
    ):
        await asyncio.sleep(1)
        await restart_node(connector)
        token = (await next_assignment_of(member, 2)).shards[0].token
        assert connector.node is not None
        now_s = connector.node.environment.clock.wall_ms() // 1000
        assert first_generation(1000 * (now_s - 60)) < token <= first_generation(1000 * now_s) + 1


@in_virtual_time
async def test_without_generation_from_clock_a_new_group_begins_at_token_1() -> None:
    async with local_coordinator() as connector:
        assert await next_token(connector) == 1


def test_generation_from_clock_begins_at_the_seconds_and_grows_by_one() -> None:
    simulated_group = SimulatedGroup()
    simulated_group.settings.group_generation_from_clock = True
    simulated_group.group = simulated_group.new_group()
    began = simulated_group.group.generation
    assert began == simulated_group.clock.wall_ms() // 1000 - 1_577_836_800
    simulated_group.form_group({}, {})
    assert simulated_group.generation == began + 1
    assert simulated_group.durable[-1].generation == began + 1


def test_embedded_coordinator_keeps_offsets_that_kafka_would_expire() -> None:
    """An embedded coordinator keeps offsets until they are deleted; with Kafka's default they expire."""

    async def groups_after_retention(**settings: Any) -> tuple[ListedGroup, ...]:
        async with HarnessCoordinator(**settings) as coordinator:
            await coordinator.create_topic("jobs")
            await coordinator.reset("g", {("jobs", 0): 7})
            await coordinator.clock.advance(20 * DAY_S)  # Kafka keeps them for 7
            return (await coordinator.groups()).groups

    slow: dict[str, Any] = {"offsets_retention_check_interval_ms": DAY_S * 1000}
    assert asyncio.run(groups_after_retention(**slow)) == ()
    assert len(asyncio.run(groups_after_retention(**slow, **Coordinator.DEFAULTS))) == 1


def test_names_in_another_order_are_equal() -> None:
    """A set has another order in each process, which is no change of the resources."""
    assert check_names("tenants", ["b", "a", "b"]) == check_names("tenants", {"a", "b"}) == ("a", "b")


@in_virtual_time
async def test_shard_number_of_a_named_shard_raises_type_error() -> None:
    async with (
        local_coordinator() as connector,
        member_on_loop_time(connector, resources={"jobs": 1, "tenants": ["acme"]}) as member,
    ):
        assignment = await next_assignment_of(member, 2)
        assert assignment.shard("jobs", 0).number == 0
        with pytest.raises(TypeError, match=r"has a name and no number; use shard\.name"):
            _ = assignment.shard("tenants", "acme").number


@pytest.mark.parametrize("year", [1970, 2087, 2088, 2500])
def test_a_new_group_gets_members_and_rebalances_whatever_year_the_clock_shows(
    year: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "time_ns", lambda: round((year - 1970) * 365.25 * DAY_S) * 10**9)

    async def scenario() -> None:
        async with Coordinator() as coordinator, asyncio.timeout(60):
            tokens = []
            for _ in range(2):
                async with coordinator.member(GROUP, resources=JOBS) as member:
                    tokens.append((await member.next_assignment()).shards[0].token)
            assert 0 < tokens[0] < tokens[1] < 2**31

    asyncio.run(scenario())
