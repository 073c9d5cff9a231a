"""Members of both protocols in one group, as while its members are restarted one by one with the other protocol."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import Consumer
from harness import async_test

import callboard
from callboard.runtime.member.errors import MemberError
from callboard.runtime.member.member import Member

DEADLINE_S = 60.0
SHARDS = 4
JOBS: Any = {"resources": {"jobs": SHARDS}}
SETTINGS: Any = {
    "group_consumer_heartbeat_interval_ms": 50,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_consumer_assignment_interval_ms": 0,
}


def has_all(*members: Any, others: tuple[int, ...] = ()) -> bool:
    """Whether each shard has one owner, and each member has one. ``others``: what other consumers have."""
    owned = [shard.name for member in members for shard in member.shards]
    return all(member.shards for member in members) and sorted([*owned, *others]) == list(range(SHARDS))


async def until_all(*members: Member) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not has_all(*members):
            await asyncio.sleep(0.01)


@async_test
async def test_group_changes_to_the_consumer_protocol_and_back_while_its_members_work() -> None:
    """Shards that stay are not interrupted, and tokens and offsets go on."""
    async with callboard.Coordinator(**SETTINGS) as coordinator:
        classic = coordinator.member("g", **JOBS)
        async with classic:
            await until_all(classic)
            before = set(classic.shards)
            for shard in before:
                await shard.commit(7)
            async with coordinator.member("g", protocol="consumer", **JOBS) as consumer:
                await until_all(classic, consumer)
                assert set(classic.shards) < before
                assert min(shard.token for shard in consumer.shards) > max(shard.token for shard in before)
                assert {shard.next_offset for shard in consumer.shards} == {7}
                assert (await coordinator.describe("g")).type == "consumer"
                for shard in (*classic.shards, *consumer.shards):
                    await shard.commit(8)
                kept, moved = set(classic.shards), set(consumer.shards)
            await until_all(classic)
            assert kept < set(classic.shards)
            assert min(shard.token for shard in set(classic.shards) - kept) > max(shard.token for shard in moved)
            assert (await coordinator.describe("g")).type == "classic"
            assert {offset.offset for offset in (await coordinator.offsets("g")).values()} == {8}


@async_test
async def test_group_goes_on_when_its_last_classic_member_leaves_and_another_one_joins() -> None:
    async with callboard.Coordinator(**SETTINGS) as coordinator:
        async with coordinator.member("g", **JOBS) as first:
            await until_all(first)
            consumer = coordinator.member("g", protocol="consumer", **JOBS)
            await consumer.__aenter__()
            await until_all(first, consumer)
        await until_all(consumer)
        async with coordinator.member("g", **JOBS) as second:
            await until_all(second, consumer)
            assert (await coordinator.describe("g")).type == "consumer"
        await consumer.leave()


@async_test
async def test_classic_members_have_no_named_shards_in_a_group_of_the_consumer_protocol() -> None:
    """The coordinator does not know their names."""
    tenants: Any = {"resources": {"tenants": ["acme", "zenith"]}}
    async with callboard.Coordinator(**SETTINGS) as coordinator, coordinator.member("g", **tenants) as classic:
        assert len((await classic.next_assignment()).shards) == 2
        async with coordinator.member("g", protocol="consumer", **tenants) as consumer, asyncio.timeout(DEADLINE_S):
            while len(consumer.shards) != 2:
                await asyncio.sleep(0.01)
            assert classic.shards == ()
        async with asyncio.timeout(DEADLINE_S):
            while len(classic.shards) != 2:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("policy", "first", "second", "error"),
    [
        ("disabled", "classic", "consumer", "GROUP_ID_NOT_FOUND: the group has members of the other protocol"),
        ("disabled", "consumer", "classic", "INCONSISTENT_GROUP_PROTOCOL"),
        ("downgrade", "classic", "consumer", "GROUP_ID_NOT_FOUND: the group has members of the other protocol"),
    ],
)
@async_test
async def test_policy_refuses_members_of_the_other_protocol(policy: str, first: Any, second: Any, error: str) -> None:
    settings: Any = {**SETTINGS, "group_consumer_migration_policy": policy}
    async with (
        callboard.Coordinator(**settings) as coordinator,
        coordinator.member("g", protocol=first, **JOBS) as member,
    ):
        await until_all(member)
        async with coordinator.member("g", protocol=second, **JOBS) as refused:
            with pytest.raises(MemberError, match=error):
                await refused.next_assignment()
        assert has_all(member)


def test_consumer_of_librdkafka_with_the_consumer_protocol_shares_a_group_with_members_of_both() -> None:
    """Its epochs are small: larger ones make librdkafka send a wrong member id."""
    settings: Any = {**SETTINGS, "group_generation_from_clock": False}
    with (
        callboard.Coordinator.in_thread(listen="127.0.0.1:0", **settings) as coordinator,
        coordinator.member("g", **JOBS) as classic,
        coordinator.member("g", protocol="consumer", **JOBS) as member,
    ):
        config = {"bootstrap.servers": coordinator.bootstrap, "group.id": "g", "group.protocol": "consumer"}
        consumer = Consumer({**config, "enable.auto.commit": False})
        consumer.subscribe(["jobs"])
        deadline_s = time.monotonic() + DEADLINE_S
        try:
            while True:
                consumer.poll(0.02)
                assigned = tuple(partition.partition for partition in consumer.assignment())
                if assigned and has_all(classic, member, others=assigned):
                    break
                assert time.monotonic() < deadline_s, (assigned, classic.shards, member.shards)
        finally:
            consumer.close()
