"""A reset of many partitions is done in steps: no turn of the event loop handles all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from work_counter import WorkCounter, _no_garbage_collection, _one_step_a_turn  # noqa: F401

from callboard import Coordinator

PARTITIONS = 7_000
TURN_MAX = 4 * PARTITIONS
"""Executed lines: some 3 ms. A turn that copies a table of all partitions has one to three for each of them."""


async def longest_turn(work: Awaitable[Any]) -> tuple[Any, int]:
    """What it returns, and the lines of its longest turn."""
    counter, task = WorkCounter(), asyncio.ensure_future(work)
    with counter.counting():
        await counter.count_turns_until(task.done)
    return await task, counter.longest


@pytest.mark.usefixtures("_no_garbage_collection", "_one_step_a_turn")
def test_reset_and_undo_of_many_partitions_are_done_in_steps(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path, None, topics={"jobs": 2, "many": PARTITIONS}) as coordinator:
            await coordinator.reset("g", {"many": 9})
            turns = {}
            plan, turns["plan"] = await longest_turn(coordinator.evict_and_reset("g", {"many": 4}, dry_run=True))
            done, turns["reset"] = await longest_turn(coordinator.evict_and_reset("g", {"many": 4}))
            assert len(plan.after) == len(done.after) == PARTITIONS
            _, turns["progress"] = await longest_turn(coordinator.reset_progress(done.change_id))
            undone, turns["undo"] = await longest_turn(coordinator.undo_reset(done.change_id))
            assert set(undone.after.values()) == {9}
            listed, turns["list"] = await longest_turn(coordinator.resets("g"))
            assert len(listed) == 2
            assert {name: lines for name, lines in turns.items() if lines > TURN_MAX} == {}

    asyncio.run(scenario())
