"""Partitions of local files that are unloaded and loaded again while the server runs, and the table of their states."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from consumer_requests import beat, join
from harness import Client, NodeHarness, async_test, commit_values, fetch_values, offsets, running_node, versions
from structlog.testing import capture_logs

from callboard.actors.coordinator.partition_states import PartitionEvent, PartitionLife, PartitionState
from callboard.actors.javahash import offsets_partition
from callboard.runtime.cluster.manifest import ManifestMissing

PARTITIONS = 4
GROUP = "g"
HOME = offsets_partition(GROUP, PARTITIONS)
LOAD, LOADED, FAIL, UNLOAD = PartitionEvent


async def until(harness: NodeHarness, state: PartitionState) -> None:
    while harness.node.groups.partitions[HOME].state is not state:
        await asyncio.sleep(0.001)


@async_test
async def test_reloaded_partition_of_local_files_has_all_acknowledged_commits(tmp_path: Path) -> None:
    """They are in the journal only when the partition is unloaded."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for epoch in range(1, 4):
            await client.ask("offset_commit", 9, **commit_values(GROUP, offset=epoch))
            harness.node.loading.lost([HOME])
            await until(harness, PartitionState.CLOSED)
            fetched: Any = await client.ask("offset_fetch", 9, **fetch_values(GROUP))
            assert fetched["groups"][0]["error_code"] == "NOT_COORDINATOR"
            harness.node.loading.gained({HOME: epoch})
            await until(harness, PartitionState.ACTIVE)
            assert await offsets(client, GROUP) == {("t", 0): epoch}
        await harness.restart()
        assert await offsets(await harness.connect(), GROUP) == {("t", 0): 3}


@async_test
async def test_partition_whose_data_is_damaged_is_logged_without_a_traceback(tmp_path: Path) -> None:
    """A store of a cluster that was emptied was a traceback of 40 lines for each partition."""
    async with running_node(tmp_path) as harness:
        harness.node.loading.lost([HOME])
        await until(harness, PartitionState.CLOSED)
        damage = Mock(side_effect=ManifestMissing(HOME))
        with capture_logs() as logs, patch.object(harness.node.data.log, "jobs", damage):
            harness.node.loading.gained({HOME: 2})
            await until(harness, PartitionState.FAILED)
        [line] = [line for line in logs if line["event"] == "a partition could not be loaded"]
        assert (line["log_level"], line["reason"]) == ("error", str(ManifestMissing(HOME)))
        assert "exc_info" not in line


@async_test
async def test_consumer_member_keeps_its_partitions_while_another_node_has_its_group(tmp_path: Path) -> None:
    """Meanwhile its requests get NOT_COORDINATOR, also those of versions without texts."""
    async with running_node(tmp_path, group_consumer_assignment_interval_ms=0) as harness:
        client = await harness.connect()
        epoch = (await join(client, "a", "t"))["member_epoch"]
        described = await describe(client)
        assert (described["group_state"], len(described["members"])) == ("Stable", 1)
        for number in range(1, 3):
            harness.node.loading.lost([HOME])
            await until(harness, PartitionState.CLOSED)
            for version in versions("consumer_group_heartbeat"):
                assert (await beat(client, "a", epoch, version))["error_code"] == "NOT_COORDINATOR"
                assert (await join(client, "b", "t", version=version))["error_code"] == "NOT_COORDINATOR"
            for version in versions("consumer_group_describe"):
                assert (await describe(client, version))["error_code"] == "NOT_COORDINATOR"
            harness.node.loading.gained({HOME: number})
            await until(harness, PartitionState.ACTIVE)
            answer = await beat(client, "a", epoch)
            assert (answer["error_code"], answer["member_epoch"], answer["assignment"]) == ("NONE", epoch, None)
            assert await describe(client) == described


async def describe(client: Client, version: int = 1) -> dict[str, Any]:
    values = {"group_ids": [GROUP], "include_authorized_operations": False}
    [described] = (await client.ask("consumer_group_describe", version, **values))["groups"]
    found: dict[str, Any] = described
    return found


def life_in(*events: PartitionEvent) -> PartitionLife:
    life = PartitionLife()
    for event in events:
        life.apply(event, life.epoch + (event is LOAD))
    return life


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((), PartitionState.INITIAL),
        ((LOAD,), PartitionState.LOADING),
        ((LOAD, LOADED), PartitionState.ACTIVE),
        ((LOAD, FAIL), PartitionState.FAILED),
        ((LOAD, LOADED, FAIL), PartitionState.FAILED),
        ((LOAD, LOADED, UNLOAD), PartitionState.CLOSED),
        ((LOAD, UNLOAD, LOADED), PartitionState.CLOSED),
        ((LOAD, FAIL, LOAD), PartitionState.LOADING),
        ((LOAD, LOADED, LOAD), PartitionState.ACTIVE),
        ((LOAD, LOADED, UNLOAD, LOAD, LOADED), PartitionState.ACTIVE),
        ((UNLOAD, LOADED, FAIL), PartitionState.INITIAL),
    ],
)
def test_events_lead_to_the_states_of_kafka(events: tuple[PartitionEvent, ...], state: PartitionState) -> None:
    assert life_in(*events).state is state


@pytest.mark.parametrize("event", [LOADED, FAIL, UNLOAD])
def test_event_of_an_earlier_epoch_is_ignored(event: PartitionEvent) -> None:
    life = life_in(LOAD, UNLOAD, LOAD)
    assert not life.apply(event, life.epoch - 1)
    assert life.is_loading


def test_load_needs_a_higher_epoch() -> None:
    life = life_in(LOAD, LOADED, UNLOAD)
    assert not life.apply(LOAD, life.epoch)
    assert life.apply(LOAD, life.epoch + 1)
