"""Tests of faults at the wire and within the process: matching, effect, and the timeline."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from coordinator_helpers import connect, heartbeat, moments, running
from harness import Client, async_test, commit_values, join_and_sync
from peers.wire import Hangup

from callboard.actors.messages import Heartbeat
from callboard.runtime.kafka.services import Origin
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.plugin.facts import RequestFacts
from callboard.runtime.testing.plugin.faults import RequestFilter
from callboard.runtime.testing.plugin.timeline import Timeline
from callboard.testing import Coordinator

ORIGIN = Origin("inside", "/127.0.0.1", 1)
SHARE_GROUP_HEARTBEAT = 76  # an API that is not served


async def commit(client: Client, group: str = "g") -> str:
    answer = await client.ask("offset_commit", 9, **commit_values(group))
    return str(answer["topics"][0]["partitions"][0]["error_code"])


# Matching ------------------------------------------------------------------------------------------------------------


def facts(api: str = "Heartbeat", **values: Any) -> RequestFacts:
    return RequestFacts(
        api, 4, **{"client_id": "ann", "groups": ("g",), "members": ("m",), "instances": ("node-7",), **values}
    )


@pytest.mark.parametrize(
    "conditions", [{}, {"group": "g"}, {"client_id": "ann"}, {"member": "m"}, {"member": "node-7"}]
)
def test_request_filter_matches_named_request(conditions: Any) -> None:
    assert RequestFilter("Heartbeat", **conditions).matches(facts())


@pytest.mark.parametrize(
    "conditions", [{"group": "h"}, {"client_id": "bob"}, {"member": "ann"}, {"group": "g", "member": "x"}]
)
def test_request_filter_ignores_other_requests(conditions: Any) -> None:
    assert not RequestFilter("Heartbeat", **conditions).matches(facts())
    assert not RequestFilter("SyncGroup").matches(facts())


def test_request_filter_with_nth_and_times_counts_matches() -> None:
    match = RequestFilter("Heartbeat", group="g", nth=3, times=2)
    other_facts = facts(groups=("h",))
    assert [
        match.matches(request) for request in (facts(), other_facts, facts(), facts(), other_facts, facts(), facts())
    ] == [
        *(False, False, False, True),
        *(False, True, False),
    ]


@async_test
async def test_unknown_api_and_error_names_are_refused() -> None:
    async with running() as (coordinator, _client):
        with pytest.raises(
            ValueError, match=r"no API 'SyncGrup': did you mean 'SyncGroup'\? Kafka's names are .*Fetch"
        ):
            coordinator.faults.drop("SyncGrup")
        with pytest.raises(ValueError, match=r"no error 'OOPS': expected one of .*NOT_COORDINATOR"):
            coordinator.faults.fail("SyncGroup", error="OOPS")
        with pytest.raises(ValueError, match="nth=0, times=1: expected 1 or more"):
            coordinator.faults.drop("SyncGroup", nth=0)
        with pytest.raises(ValueError, match="seconds=-1: expected 0 or more"):
            coordinator.faults.delay("SyncGroup", seconds=-1)


# Effects -------------------------------------------------------------------------------------------------------------


@async_test
async def test_fail_skips_request_unless_after() -> None:
    async with running() as (coordinator, client):
        fault_before = coordinator.faults.fail("OffsetCommit", error="REQUEST_TIMED_OUT")
        assert await commit(client) == "REQUEST_TIMED_OUT"
        assert await coordinator.offsets("g") == {}
        fault_after = coordinator.faults.fail("OffsetCommit", error="REQUEST_TIMED_OUT", after=True)
        assert await commit(client) == "REQUEST_TIMED_OUT"
        assert await coordinator.offsets("g") != {}
        assert await commit(client) == "NONE"
        assert (fault_before.hits, fault_after.hits) == (1, 1)


@async_test
async def test_first_of_two_matching_faults_applies() -> None:
    async with running() as (coordinator, client):
        coordinator.faults.fail("OffsetCommit", error="NOT_COORDINATOR")
        coordinator.faults.fail("OffsetCommit", error="COORDINATOR_NOT_AVAILABLE")
        assert [await commit(client) for _ in range(3)] == ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "NONE"]


@pytest.mark.parametrize("after", [False, True])
@async_test
async def test_disconnect_closes_connection(after: bool) -> None:
    async with running() as (coordinator, client):
        coordinator.faults.disconnect("OffsetCommit", after=after)
        with pytest.raises(Hangup):
            await commit(client)
        assert bool(await coordinator.offsets("g")) is after
        again = await connect(coordinator)
        assert await commit(again) == "NONE"
        await again.close()


@async_test
async def test_drop_blocks_later_requests_on_connection() -> None:
    """Answers are sent in the order of requests, so a dropped answer blocks its connection, as in Kafka."""
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        coordinator.faults.drop("Heartbeat")
        waiting = asyncio.create_task(heartbeat(client, "g", member))
        while not coordinator.faults.all()[0].hits:
            await asyncio.sleep(0)
        other_client = await connect(coordinator)
        assert await heartbeat(other_client, "g", member) == "NONE"
        assert not waiting.done()
        waiting.cancel()
        await other_client.close()


@pytest.mark.parametrize("after", [False, True])
@async_test
async def test_delay_follows_coordinator_clock(after: bool) -> None:
    async with running() as (coordinator, client):
        fault = coordinator.faults.delay("OffsetCommit", seconds=60, after=after)
        waiting = asyncio.create_task(commit(client))
        while not fault.hits:
            await asyncio.sleep(0)
        await coordinator.clock.advance(59)
        assert not waiting.done()
        assert bool(await coordinator.offsets("g")) is after
        await coordinator.clock.advance(2)
        assert await waiting == "NONE"


@async_test
async def test_cleared_faults_do_not_apply() -> None:
    async with running() as (coordinator, client):
        coordinator.faults.fail("OffsetCommit", error="NOT_COORDINATOR", times=math.inf)
        coordinator.faults.lose_disk_after(0)
        assert await commit(client) == "NOT_COORDINATOR"
        coordinator.faults.clear()
        assert await commit(client) == "NONE"


@async_test
async def test_faults_apply_to_members_in_process() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        heartbeat = Heartbeat("g", member.member_id, None, member.generation_id)
        coordinator.faults.fail("Heartbeat", client_id="inside", error="REBALANCE_IN_PROGRESS")
        assert (await coordinator.node.local.ask(heartbeat, ORIGIN)).name == "REBALANCE_IN_PROGRESS"
        coordinator.faults.disconnect("Heartbeat", member=member.member_id)
        with pytest.raises(ChannelLost):
            await coordinator.node.local.ask(heartbeat, ORIGIN)
        assert (await coordinator.node.local.ask(heartbeat, ORIGIN)).name == "NONE"
        responses = [text for _, text in moments(coordinator, "answer") if text.startswith("Heartbeat")]
        assert responses == ["Heartbeat -> REBALANCE_IN_PROGRESS", "Heartbeat -> NONE"]


@async_test
async def test_restart_discards_delayed_requests(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (coordinator, client):
        fault = coordinator.faults.delay("OffsetCommit", seconds=60)
        waiting = asyncio.create_task(commit(client))
        while not fault.hits:
            await asyncio.sleep(0)
        await coordinator.faults.restart(crash=True)
        with pytest.raises(Hangup):
            await waiting
        await coordinator.clock.advance(61)
        assert await coordinator.offsets("g") == {}
    assert [record for record in caplog.records if record.name == "callboard.kafka"] == [], (
        "no answer is sent to the closed connection"
    )


@async_test
async def test_lose_disk_after_with_real_folder_is_refused(tmp_path: Path) -> None:
    async with Coordinator(tmp_path) as coordinator:
        with pytest.raises(ValueError, match="in a real folder: expected one in memory"):
            coordinator.faults.lose_disk_after(1)
        with pytest.raises(ValueError, match=r"expected a Coordinator of callboard\.testing in memory"):
            await coordinator.faults.restart(power_loss=True)


# Timeline ------------------------------------------------------------------------------------------------------------


@async_test
async def test_timeline_has_events_of_group() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        coordinator.faults.fail("Heartbeat", error="NOT_COORDINATOR")
        await heartbeat(client, "g", member)
        await client.ask("offset_commit", 9, **commit_values("g", member))
        await coordinator.clock.advance(31, silent=["wire"])
        text = coordinator.timeline.text()
    lines = [" ".join(line.split()[1:]) for line in text.splitlines()]
    expected = [
        "g wire JoinGroup v9, m1",
        "g wire member: m1 is a member: member joined",
        "g state: PreparingRebalance, generation 0: member joined, m1",
        "g timer: the initial rebalance delay has ended",
        "g state: CompletingRebalance, generation 1: the initial delay ended",
        "g wire JoinGroup v9 -> NONE, generation 1, leads 1",
        "g wire SyncGroup v5, m1, generation 1, assigns 1",
        "g state: Stable, generation 1: the assignment is stored",
        "g wire fault: fail Heartbeat with NOT_COORDINATOR",
        "g wire Heartbeat v4 -> NOT_COORDINATOR",
        "g wire OffsetCommit v9, m1, generation 1, t-0@42 -> NONE",
        "g timer: the session of m1 has ended",
        "g wire member: m1 is no longer a member: session expired",
        "g state: PreparingRebalance, generation 1: session expired, m1",
        "g state: Empty, generation 2: no member is left",
        "clock: moved by 31 s, silent: wire",
    ]
    assert [line for line in lines if line in expected] == expected
    assert text.splitlines()[-1] == f"m1 is {member.member_id}"


@async_test
async def test_timeline_has_reasons_of_clients() -> None:
    """KIP-800: JoinGroup from version 8 and LeaveGroup from version 5 on."""
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g", reason="rebalance\nenforced")
        leaving = {"member_id": member.member_id, "group_instance_id": None, "reason": "x" * 300}
        await client.ask("leave_group", 5, group_id="g", members=[leaving])
        await join_and_sync(client, "g")
        await coordinator.remove_members("g", reason="maintenance")
        lines = coordinator.timeline.text().splitlines()
    assert any(line.endswith(r"m1 is a member: member joined, 'rebalance\nenforced'") for line in lines)
    assert any(line.endswith(f"m1 is no longer a member: member left, '{'x' * 255}'") for line in lines)
    admin_reason = "removed by an admin, 'member was removed by an admin: maintenance'"
    assert any(line.endswith(f"m2 is no longer a member: {admin_reason}") for line in lines)


@async_test
async def test_timeline_names_client_once_that_asks_for_what_is_not_served() -> None:
    async with running() as (coordinator, _):
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*coordinator.bootstrap.rsplit(":", 1))
            writer.write(struct.pack(">ihhih", 10, SHARE_GROUP_HEARTBEAT, 0, 1, -1))
            assert await reader.read() == b""
            writer.close()
        lines = coordinator.timeline.text().splitlines()
    [line] = [line for line in lines if "not served" in line]
    assert "ShareGroupHeartbeat" in line


@async_test
async def test_timeline_text_omits_routine_requests() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        await heartbeat(client, "g", member)
        assert "Heartbeat" not in coordinator.timeline.text()
        assert "Heartbeat v4, m1, generation 1 -> NONE" in coordinator.timeline.text(everything=True)
        assert any("Heartbeat" in event["what"] for event in json.loads(coordinator.timeline.json())["events"])


def test_timeline_drops_oldest_events() -> None:
    timeline = Timeline(lambda: 1500, events_max=3)
    for number in range(5):
        timeline.note("clock", f"moved by {number} s")
    assert [event.what for event in timeline.events] == ["moved by 2 s", "moved by 3 s", "moved by 4 s"]
    assert json.loads(timeline.json())["forgotten"] == 2
    assert timeline.text(lines=2).splitlines() == [
        "(the first 1 lines are left out)",
        "seconds  group  client  what",
        "  1.500                 clock: moved by 3 s",
        "  1.500                 clock: moved by 4 s",
    ]
