"""Fencing tokens grow with each change of owner, also when the group was forgotten in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from member_helpers import GROUP, a_node, held, in_virtual_time
from stage.company import Company

from callboard import Coordinator
from callboard.runtime.embed.results import ListedGroup
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.member import Member
from callboard.runtime.member.named import check_names
from callboard.runtime.testing.plugin.harness_coordinator import HarnessCoordinator

JOBS = {"jobs": 2}
DAY_S = 24 * 3600


async def a_token(connector: LocalConnector) -> int:
    """Of somebody who comes, works, and goes."""
    async with Member(connector, GROUP, resources=JOBS) as member:
        return (await held(member, 2)).shards[0].token


@in_virtual_time
async def test_a_token_grows_past_the_end_of_its_group() -> None:
    """A group that is empty and has no offsets is deleted by the next sweep; a store elsewhere remembers its token."""
    async with a_node(group_generation_from_clock=True) as connector:
        first = await a_token(connector)
        second = await a_token(connector)
        assert connector.node is not None
        groups = connector.node.groups
        await asyncio.sleep(2 * 600)  # the pause between two sweeps is ten minutes
        assert GROUP not in groups.groups
        assert GROUP not in groups.asleep
        assert first < second < await a_token(connector)


@in_virtual_time
async def test_without_it_generations_begin_at_one_as_in_kafka() -> None:
    async with a_node() as connector:
        assert await a_token(connector) == 1


def test_a_generation_of_the_clock_is_the_second_and_grows_by_one() -> None:
    company = Company()
    company.rules.group_generation_from_clock = True
    company.group = company.fresh_group()
    began = company.group.generation
    assert began == company.clock.wall_ms() // 1000 - 1_577_836_800
    company.form({}, {})
    assert company.generation == began + 1
    assert company.durable[-1].generation == began + 1


def test_progress_outlives_what_kafka_would_let_go() -> None:
    """A coordinator of one's own keeps it until somebody deletes it; one that plays Kafka for a test does not."""

    async def left(**settings: Any) -> tuple[ListedGroup, ...]:
        async with HarnessCoordinator(**settings) as coordinator:
            await coordinator.create_topic("jobs")
            await coordinator.reset("g", {("jobs", 0): 7})
            await coordinator.clock.advance(400 * DAY_S)
            return (await coordinator.groups()).groups

    slow: dict[str, Any] = {"offsets_retention_check_interval_ms": DAY_S * 1000}
    assert asyncio.run(left(**slow)) == ()
    assert len(asyncio.run(left(**slow, **Coordinator.DEFAULTS))) == 1


def test_names_are_the_same_in_whatever_order_they_come() -> None:
    """A set has another order in each process; that is no change of the resources."""
    assert check_names("tenants", ["b", "a", "b"]) == check_names("tenants", {"a", "b"}) == ("a", "b")


@in_virtual_time
async def test_shard_number_of_a_named_shard_raises_type_error() -> None:
    async with a_node() as connector, Member(connector, GROUP, resources={"jobs": 1, "tenants": ["acme"]}) as member:
        assignment = await held(member, 2)
        assert assignment.shard("jobs", 0).number == 0
        with pytest.raises(TypeError, match=r"has a name and no number; use shard\.name"):
            _ = assignment.shard("tenants", "acme").number
