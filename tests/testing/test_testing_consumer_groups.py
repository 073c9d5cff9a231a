"""Groups of the consumer protocol in tests: waiting, virtual time, the timeline, faults, and the admin methods."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_requests import beat, join
from coordinator_helpers import moments, running
from harness import Client, async_test

from callboard import CoordinatorError
from callboard.testing import Coordinator

SESSION_S = 45
REBALANCE_S = 60


def texts(coordinator: Coordinator, kind: str) -> list[str]:
    return [text for _, text in moments(coordinator, kind)]


async def settle(client: Client, member_id: str, epoch: int, topic_id: Any, *numbers: int) -> int:
    """Give back all partitions but these. Returns the epoch."""
    owned = [{"topic_id": topic_id, "partitions": list(numbers)}]
    answer = await beat(client, member_id, epoch, topic_partitions=owned)
    return int(answer["member_epoch"])


def topic_of(answer: dict[str, Any]) -> Any:
    return answer["assignment"]["topic_partitions"][0]["topic_id"]


@async_test
async def test_second_member_gets_partitions_without_waiting_for_the_interval() -> None:
    """In tests the assignment interval is 0."""
    async with running(topics={"t": 2}) as (coordinator, client):
        first = await join(client, "a", "t")
        stable = await coordinator.wait_until_stable("g")
        assert (stable.type, stable.epoch, stable.assignment_epoch, stable.protocol) == ("consumer", 2, 2, "uniform")
        [member] = stable.members
        both = (("t", 0), ("t", 1))
        assert (member.topics, member.assigned, member.target, member.epoch) == (("t",), both, both, 2)
        assert (await join(client, "b", "t"))["member_epoch"] == 3
        with pytest.raises(TimeoutError, match="group 'g' is Reconciling with 2 members, not Stable with 2, after 0"):
            await coordinator.wait_until_stable("g", 2, timeout=0)
        [kept] = [member.target for member in (await coordinator.describe("g")).members if member.member_id == "a"]
        assert kept is not None
        await beat(client, "a", 2)
        assert await settle(client, "a", 2, topic_of(first), *(number for _, number in kept)) == 3
        await beat(client, "b", 3)
        stable = await coordinator.wait_until_stable("g", 2)
        assert sorted(partition for member in stable.members for partition in member.assigned or ()) == list(both)


@async_test
async def test_admin_methods_know_consumer_groups() -> None:
    async with running(topics={"t": 2, "u": 1}) as (coordinator, client):
        await join(client, "a", "t")
        await join(client, "b", "t", instance_id="i")
        page = await coordinator.groups(types=["consumer"], states=["reconciling"])
        assert [(group.group_id, group.type, group.state) for group in page.groups] == [
            ("g", "consumer", "Reconciling")
        ]
        assert (await coordinator.groups(types=["classic"])).groups == ()
        assert await coordinator.groups_of_topic("t") == ("g",)
        assert await coordinator.groups_of_topic("u") == ()
        with pytest.raises(CoordinatorError, match="it has members"):
            await coordinator.delete("g")
        assert await coordinator.remove_members("g", instance_ids=["i"]) == ("b",)
        assert await coordinator.remove_members("g") == ("a",)
        assert (await coordinator.describe("g")).state == "Empty"
        await coordinator.delete("g")
        with pytest.raises(CoordinatorError, match="group 'g': GROUP_ID_NOT_FOUND, there is no such group"):
            await coordinator.describe("g")


@async_test
async def test_session_of_a_silent_member_ends_at_its_millisecond() -> None:
    async with running(topics={"t": 2}) as (coordinator, client):
        await join(client, "a", "t")
        [(joined_s, _)] = moments(coordinator, "answer")
        await coordinator.clock.advance(10 * SESSION_S)
        assert (await coordinator.describe("g")).state == "Stable", "it is connected"
        await coordinator.clock.advance(SESSION_S - 1, silent=["a"])
        assert (await coordinator.describe("g")).state == "Stable"
        await coordinator.clock.advance(2, silent=["wire"])
        [(ended_s, text)] = moments(coordinator, "timer")
        assert text == "the session of m1 has ended"
        assert ended_s == pytest.approx(joined_s + 11 * SESSION_S, abs=0.01)
        assert (await coordinator.describe("g")).state == "Empty"


@async_test
async def test_silent_member_that_does_not_give_back_is_removed() -> None:
    async with running(topics={"t": 2}, group_consumer_max_session_timeout_ms=900_000) as (coordinator, client):
        await join(client, "a", "t")
        await join(client, "b", "t")
        await beat(client, "a", 2)
        await coordinator.clock.advance(REBALANCE_S - 1)
        await beat(client, "a", 2)
        await beat(client, "b", 3)
        await coordinator.clock.advance(2 * REBALANCE_S)
        assert len((await coordinator.describe("g")).members) == 2, "connected members have all the time they need"
        for _ in range(4):
            await coordinator.clock.advance(REBALANCE_S / 4 + 1, silent=["a"])
            await beat(client, "a", 2)
        assert [member.member_id for member in (await coordinator.describe("g")).members] == ["b"]
        assert "m1 is no longer a member: did not give back partitions within the rebalance timeout" in (
            texts(coordinator, "member")
        )


@async_test
async def test_timeline_shows_what_changes_and_omits_other_heartbeats() -> None:
    async with running(topics={"t": 2}) as (coordinator, client):
        await join(client, "a", "t", instance_id="i")
        await beat(client, "a", 2)
        await join(client, "b", "t")
        await beat(client, "a", 2)
        await beat(client, "a", 9)
        await beat(client, "b", -1)
        lines = [line.partition(" wire ")[2].strip() for line in coordinator.timeline.text().splitlines()]
        shown = [line for line in lines if line.startswith("Consumer")]
        assert shown == [
            "ConsumerGroupHeartbeat v1, m1, i, joins, subscribes to t -> NONE, epoch 2, gets 2",
            "ConsumerGroupHeartbeat v1, m2, joins, subscribes to t -> NONE, epoch 3, gets 0",
            "ConsumerGroupHeartbeat v1, m1, epoch 2 -> NONE, epoch 2, gets 1",
            "ConsumerGroupHeartbeat v1, m1, epoch 9 -> FENCED_MEMBER_EPOCH",
            "ConsumerGroupHeartbeat v1, m2, leaves -> NONE, epoch -1",
        ]
        states = [event.what for event in coordinator.timeline.events if event.kind == "state"]
        assert states[0].startswith("Assigning, epoch 2: ")
        assert not any("generation" in text for text in states)
        everything = coordinator.timeline.text(everything=True)
        assert "ConsumerGroupHeartbeat v1, m1, epoch 2 -> NONE, epoch 2\n" in everything


@async_test
async def test_faults_apply_to_heartbeats() -> None:
    async with running(topics={"t": 2}) as (coordinator, client):
        await join(client, "a", "t")
        coordinator.faults.fail("ConsumerGroupHeartbeat", error="COORDINATOR_LOAD_IN_PROGRESS", times=1)
        assert (await beat(client, "a", 2))["error_code"] == "COORDINATOR_LOAD_IN_PROGRESS"
        assert (await beat(client, "a", 2))["error_code"] == "NONE"
