"""A store of the log that is not in local files, through a coordinator in the program itself."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from harness import async_test
from log.toy_store import Toy

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.text import LogLine
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.node.environment import Environment, in_memory

PARTITIONS = 4
GROUP = "g"
HOME = offsets_partition(GROUP, PARTITIONS)


def new_coordinator(toy: Toy, data: Path | None) -> Coordinator:
    environment = replace(in_memory() if data is None else Environment(), store=toy.make)
    return Coordinator(data, topics={"jobs": 1}, environment=environment, offsets_topic_num_partitions=PARTITIONS)


@pytest.mark.parametrize("is_in_memory", [True, False])
@async_test
async def test_offsets_in_a_store_of_its_own_survive_a_restart(tmp_path: Path, is_in_memory: bool) -> None:
    toy = Toy()
    async with new_coordinator(toy, None if is_in_memory else tmp_path / "data") as coordinator:
        await coordinator.reset(GROUP, {"jobs": 7})
        assert toy.store.records[HOME]
        await coordinator.restart("killed")
        await coordinator.loaded()
        assert (await coordinator.offsets(GROUP))["jobs", 0].offset == 7
    assert not list(tmp_path.rglob("__consumer_offsets-*/*.log"))


@async_test
async def test_group_of_a_lost_partition_is_refused_until_the_partition_is_gained(tmp_path: Path) -> None:
    toy = Toy()
    async with new_coordinator(toy, tmp_path / "data") as coordinator:
        await coordinator.reset(GROUP, {"jobs": 7})
        toy.ownership.lose(HOME)
        assert await _outcome_after(coordinator, 7) is ErrorCode.NOT_COORDINATOR
        toy.ownership.gain(HOME)
        outcome = await _outcome_after(coordinator, ErrorCode.NOT_COORDINATOR)
        assert outcome in (7, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await _until(coordinator, 7)


@async_test
async def test_partition_that_comes_and_goes_is_one_line_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callboard.runtime")
    toy = Toy()
    async with new_coordinator(toy, tmp_path / "data") as coordinator:
        await coordinator.reset(GROUP, {"jobs": 7})
        toy.ownership.lose(HOME)
        await _outcome_after(coordinator, 7)
        toy.ownership.gain(HOME)
        await _until(coordinator, 7)
    lines = [record.msg for record in caplog.records if isinstance(record.msg, LogLine)]
    moves = [(line.event, line.fields["partition"]) for line in lines if line.event.startswith("partition ")]
    assert moves == [("partition given up", HOME), ("partition taken over", HOME)]


async def _outcome(coordinator: Coordinator) -> int | ErrorCode:
    """The offset of the group, or the error."""
    try:
        return (await coordinator.offsets(GROUP))["jobs", 0].offset
    except CoordinatorError as error:
        return error.code


async def _outcome_after(coordinator: Coordinator, old: int | ErrorCode) -> int | ErrorCode:
    """The first outcome that differs from ``old``."""
    while (outcome := await _outcome(coordinator)) == old:
        await asyncio.sleep(0.001)
    return outcome


async def _until(coordinator: Coordinator, expected: int) -> None:
    while await _outcome(coordinator) != expected:
        await asyncio.sleep(0.001)
