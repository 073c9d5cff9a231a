"""Tests of virtual time at the wire: events are processed in order and at their exact millisecond."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_helpers import SESSION_S, connect, heartbeat, moments, running
from harness import Client, Member, async_test, commit_values, join_and_sync, join_values, sync_values

from callboard.runtime.engine.clock import STALL_MS
from callboard.runtime.testing.plugin.clock import MovableClock
from callboard.testing import Coordinator

REBALANCE_S = 30
DAY_S = 24 * 3600


# Clock ---------------------------------------------------------------------------------------------------------------


def test_movable_clock_runs_on_after_move() -> None:
    machine_ms = 5000
    clock = MovableClock(lambda: machine_ms * 1_000_000)
    began_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
    clock.hold()
    machine_ms += 300
    assert clock.monotonic_ms() == began_ms, "the clock is paused during a move"
    clock.move_to(began_ms + 45_000)
    clock.release()
    machine_ms += 7
    assert clock.monotonic_ms() == began_ms + 45_007
    assert 45_000 <= clock.wall_ms() - wall_ms < 45_000 + 60_000, "the wall clock is moved too"
    clock.hold()
    clock.move_to(began_ms)
    assert clock.monotonic_ms() == began_ms + 45_007, "monotonic time never decreases"


def test_movable_clock_reports_stalls_but_not_moves() -> None:
    machine_ms = 5000
    clock = MovableClock(lambda: machine_ms * 1_000_000)
    clock.add_watcher()
    began_ms = clock.monotonic_ms()
    clock.hold()
    clock.move_to(began_ms + 3_600_000)
    clock.release()
    assert clock.monotonic_ms() == began_ms + 3_600_000
    machine_ms += 10 * STALL_MS
    assert clock.monotonic_ms() < began_ms + 3_600_000 + STALL_MS


# Sessions ------------------------------------------------------------------------------------------------------------


@async_test
async def test_advance_expires_session_at_exact_millisecond() -> None:
    async with running() as (coordinator, client):
        await join_and_sync(client, "g")
        *_, joined_s = [at_s for at_s, text in moments(coordinator, "answer") if text.startswith("JoinGroup")]
        *_, synced_s = [at_s for at_s, text in moments(coordinator, "answer") if text.startswith("SyncGroup")]
        await coordinator.clock.advance(2 * SESSION_S, silent=["wire"])
        [(ended_s, text)] = [moment for moment in moments(coordinator, "timer") if "session" in moment[1]]
        assert text == "the session of m1 has ended"
        # The session begins when SyncGroup is handled, after the answer to JoinGroup and before its own.
        assert joined_s - 0.002 <= ended_s - SESSION_S <= synced_s + 0.002


@async_test
async def test_disconnected_member_is_removed_after_session() -> None:
    async with running() as (coordinator, client):
        other_client = await connect(coordinator)
        member = await join_and_sync(client, "g")
        await join_and_sync(other_client, "h")
        await other_client.close()
        while len(coordinator.node.connections) > 1:
            await asyncio.sleep(0)
        await coordinator.clock.advance(SESSION_S + 1)
        assert (await coordinator.describe("h")).state == "Empty"
        assert await heartbeat(client, "g", member) == "NONE"


@async_test
async def test_connected_member_keeps_rest_of_session_after_advance() -> None:
    """Skipped time does not count for the member; afterwards it must send heartbeats as usual."""
    async with running() as (coordinator, client):
        await join_and_sync(client, "g")
        await coordinator.clock.advance(100 * SESSION_S)
        await coordinator.clock.advance(SESSION_S - 1, silent=["wire"])
        assert (await coordinator.describe("g")).state == "Stable"
        await coordinator.clock.advance(2, silent=["wire"])
        assert (await coordinator.describe("g")).state == "Empty"


@pytest.mark.parametrize("name", ["wire", "node-7", "the member id"])
@async_test
async def test_silent_accepts_member_instance_and_client_id(name: str) -> None:
    async with running() as (coordinator, client):
        member = await enrol_static(client, "node-7")
        await coordinator.clock.advance(SESSION_S + 1, silent=[name.replace("the member id", member.member_id)])
        assert (await coordinator.describe("g")).members == ()


@async_test
async def test_member_with_pending_id_counts_as_connected() -> None:
    """The member id is in the answer, not in the request."""
    async with running() as (coordinator, client):
        response = await client.ask("join_group", **join_values("g"))
        await coordinator.clock.advance(2 * SESSION_S)
        joined = await client.ask("join_group", **join_values("g", response["member_id"]))
        assert joined["error_code"] == "NONE"


async def enrol_static(client: Client, instance_id: str) -> Member:
    joined = await client.ask("join_group", **join_values("g", group_instance_id=instance_id))
    member = Member(joined["member_id"], joined["generation_id"])
    assignments = [{"member_id": member.member_id, "assignment": b""}]
    await client.ask("sync_group", **{**sync_values("g", member, assignments), "group_instance_id": instance_id})
    return member


@async_test
async def test_members_in_process_count_as_connected() -> None:
    async with Coordinator(listen=None) as coordinator:
        async with coordinator.member("g", resources={"t": 2}, instance_id="node-7") as member:
            await member.next_assignment()
            await coordinator.clock.advance(DAY_S)
            assert [member_info.member_id for member_info in (await coordinator.describe("g")).members] == [
                member.member_id
            ]
        await coordinator.clock.advance(60)
        assert (await coordinator.describe("g")).state == "Empty", (
            "a static member sends no LeaveGroup; its session ends"
        )


# Rebalances ----------------------------------------------------------------------------------------------------------


@async_test
async def test_rebalance_waits_for_connected_member_during_advance() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        other_client = await connect(coordinator)
        response = await other_client.ask("join_group", **join_values("g"))
        waiting = asyncio.create_task(other_client.ask("join_group", **join_values("g", response["member_id"])))
        while (await coordinator.describe("g")).state != "PreparingRebalance":
            await asyncio.sleep(0)
        await coordinator.clock.advance(10 * REBALANCE_S)
        assert await heartbeat(client, "g", member) == "REBALANCE_IN_PROGRESS"
        assert not waiting.done()
        await coordinator.clock.advance(REBALANCE_S + 1, silent=[member.member_id])
        assert (await waiting)["generation_id"] == member.generation_id + 1
        assert await heartbeat(client, "g", member) == "UNKNOWN_MEMBER_ID"
        await other_client.close()


@async_test
async def test_advance_ends_initial_rebalance_delay() -> None:
    async with running(group_initial_rebalance_delay_ms=3000) as (coordinator, client):
        response = await client.ask("join_group", **join_values("g"))
        waiting = asyncio.create_task(client.ask("join_group", **join_values("g", response["member_id"])))
        while (await coordinator.describe("g")).state != "PreparingRebalance":
            await asyncio.sleep(0)
        await coordinator.clock.advance(2.9)
        assert not waiting.done()
        await coordinator.clock.advance(0.2)
        assert (await waiting)["error_code"] == "NONE"


# Offsets and the rest ------------------------------------------------------------------------------------------------


@async_test
async def test_offsets_expire_exactly_seven_days_after_commit() -> None:
    async with running() as (coordinator, client):
        await client.ask("offset_commit", 9, **commit_values("g"))
        await coordinator.clock.advance(7 * DAY_S - 1)
        assert {**await coordinator.offsets("g")}
        await coordinator.clock.advance(3600)
        assert await coordinator.offsets("g") == {}


@async_test
async def test_advance_until_stops_when_predicate_is_true() -> None:
    async with running() as (coordinator, client):
        await client.ask("offset_commit", 9, **commit_values("g"))

        async def is_gone() -> bool:
            return not (await coordinator.groups()).groups

        took_s = await coordinator.clock.advance_until(is_gone)
        assert 7 * DAY_S - 1 <= took_s <= 7 * DAY_S + 2 * 600  # it is looked for every ten minutes
        with pytest.raises(TimeoutError, match="not true within 60 s"):
            await coordinator.clock.advance_until(lambda: False, within=60)


@async_test
async def test_concurrent_advances_run_one_after_another() -> None:
    async with running() as (coordinator, _client):
        began_s = coordinator.clock.now()
        await asyncio.gather(coordinator.clock.advance(100), coordinator.clock.advance(200))
        assert 300 <= coordinator.clock.now() - began_s < 360


@async_test
async def test_negative_advance_is_refused() -> None:
    async with running() as (coordinator, _client):
        with pytest.raises(ValueError, match="time cannot go back"):
            await coordinator.clock.advance(-1)
        with pytest.raises(TypeError, match="is one name: expected a list"):
            await coordinator.clock.advance(1, silent="wire")
