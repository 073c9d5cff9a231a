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
from callboard.runtime.member.resources import check_names
from callboard.runtime.testing.plugin.rigged import RiggedCoordinator

JOBS = {"jobs": 2}
DAY_S = 24 * 3600


async def next_token(connector: LocalConnector) -> int:
    """Of somebody who comes, works, and goes."""
    async with Member(connector, GROUP, resources=JOBS) as member:
        return (await held(member, 2)).shards[0].token


@in_virtual_time
async def test_token_grows_after_the_group_was_deleted() -> None:
    """A group that is empty and has no offsets is deleted by the next sweep; a store elsewhere remembers its token."""
    async with a_node(group_generation_from_clock=True) as connector:
        first = await next_token(connector)
        second = await next_token(connector)
        assert connector.node is not None
        groups = connector.node.groups
        await asyncio.sleep(2 * 600)  # the pause between two sweeps is ten minutes
        assert GROUP not in groups.groups
        assert GROUP not in groups.asleep
        assert first < second < await next_token(connector)


@in_virtual_time
async def test_without_generation_from_clock_a_new_group_begins_at_token_1() -> None:
    async with a_node() as connector:
        assert await next_token(connector) == 1


def test_generation_from_clock_begins_at_the_seconds_and_grows_by_one() -> None:
    company = Company()
    company.rules.group_generation_from_clock = True
    company.group = company.fresh_group()
    began = company.group.generation
    assert began == company.clock.wall_ms() // 1000 - 1_577_836_800
    company.form({}, {})
    assert company.generation == began + 1
    assert company.durable[-1].generation == began + 1


def test_embedded_coordinator_keeps_offsets_that_kafka_would_expire() -> None:
    """A coordinator of one's own keeps it until somebody deletes it; one that plays Kafka for a test does not."""

    async def left(**settings: Any) -> tuple[ListedGroup, ...]:
        async with RiggedCoordinator(**settings) as coordinator:
            await coordinator.create_topic("jobs")
            await coordinator.reset("g", {("jobs", 0): 7})
            await coordinator.clock.advance(400 * DAY_S)
            return (await coordinator.groups()).groups

    slow: dict[str, Any] = {"offsets_retention_check_interval_ms": DAY_S * 1000}
    assert asyncio.run(left(**slow)) == ()
    assert len(asyncio.run(left(**slow, **Coordinator.DEFAULTS))) == 1


def test_names_in_another_order_are_equal() -> None:
    """A set has another order in each process; that is no change of the resources."""
    assert check_names("tenants", ["b", "a", "b"]) == check_names("tenants", {"a", "b"}) == ("a", "b")


@in_virtual_time
async def test_shard_number_of_a_named_shard_raises_type_error() -> None:
    async with a_node() as connector, Member(connector, GROUP, resources={"jobs": 1, "tenants": ["acme"]}) as member:
        assignment = await held(member, 2)
        assert assignment.shard("jobs", 0).number == 0
        with pytest.raises(TypeError, match=r"has a name and no number; use shard\.name"):
            _ = assignment.shard("tenants", "acme").number
