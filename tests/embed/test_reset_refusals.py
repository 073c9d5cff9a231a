"""A group that is being loaded, or cannot be read, is not reset: the refusal says why, and nothing is half done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard import Coordinator, CoordinatorError, ErrorCode
from callboard.actors.coordinator.directory import Directory
from callboard.actors.coordinator.partition_states import PartitionState
from callboard.actors.coordinator.partitions import GroupPartition
from callboard.actors.messages import QuarantinedGroup
from callboard.actors.records import CLASSIC

GROUP = "g"


@contextmanager
def without_actor(groups: Directory) -> Iterator[GroupPartition]:
    """Neither a group that is being loaded nor one that cannot be read has an actor."""
    partition, actor = groups.partitions.of(GROUP), groups.groups.pop(GROUP)
    del partition.active[GROUP]
    yield partition
    groups.groups[GROUP] = partition.active[GROUP] = actor


@contextmanager
def loading(groups: Directory) -> Iterator[None]:
    with without_actor(groups) as partition:
        partition.state = PartitionState.LOADING
        groups.partitions.update_is_full()
        yield
        partition.state = PartitionState.ACTIVE
    groups.partitions.update_is_full()


@contextmanager
def quarantined(groups: Directory) -> Iterator[None]:
    with without_actor(groups) as partition:
        partition.quarantined[GROUP] = QuarantinedGroup("a record of it has an unknown version", CLASSIC)
        groups.partitions.update_is_full()
        yield
        del partition.quarantined[GROUP]
    groups.partitions.update_is_full()


@pytest.mark.parametrize(
    ("state", "code", "says"),
    [
        (loading, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is being loaded: try again in some seconds"),
        (quarantined, ErrorCode.COORDINATOR_NOT_AVAILABLE, "record"),
    ],
)
def test_group_that_cannot_be_reset_now_is_as_before(tmp_path: Path, state: Any, code: ErrorCode, says: str) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path, None, topics={"jobs": 1}, audit="file") as coordinator:
            await coordinator.reset(GROUP, {("jobs", 0): 7})
            done = await coordinator.evict_and_reset(GROUP, {("jobs", 0): 5})
            described = await coordinator.describe(GROUP)
            with state(coordinator.node.groups):
                for refused in (
                    coordinator.evict_and_reset(GROUP, {("jobs", 0): 3}, dry_run=True),
                    coordinator.evict_and_reset(GROUP, {("jobs", 0): 3}),
                    coordinator.undo_reset(done.change_id),
                    coordinator.reset_progress(done.change_id),
                ):
                    with pytest.raises(CoordinatorError, match=f"group 'g': {code.name}") as caught:
                        await refused
                    assert caught.value.code is code
                    assert says in str(caught.value)
            assert await coordinator.describe(GROUP) == described
            assert [change.change_id for change in await coordinator.resets(GROUP)] == [done.change_id]
            assert {each.offset for each in (await coordinator.offsets(GROUP)).values()} == {5}
        lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
        assert [line["operation"] for line in lines].count("reset") == 1

    asyncio.run(scenario())
