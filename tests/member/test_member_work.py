"""Assignment: its bodies and tasks are cancelled when it is over; other errors are raised."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from member_helpers import in_virtual_time

from callboard.runtime.member.errors import ShardLost
from callboard.runtime.member.shards import Assignment, CommitResult, Shard, ShardState


class ShardOwner:
    """A stub of a member that records calls."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.left_s = 5.0
        self.assignment = Assignment(
            self, 3, tuple(Shard(self, "jobs", number, ("jobs", number), 3) for number in (0, 1)), ()
        )

    async def _commit(self, shard: Shard, next_offset: int) -> CommitResult:
        shard.next_offset = next_offset
        return CommitResult("synced")

    def commit(self, shard: Shard, next_offset: int, note: str) -> Coroutine[Any, Any, CommitResult]:
        return self._commit(shard, next_offset)

    def report_failure(self, error: BaseException) -> None:
        self.failures.append(error)

    def lease_left_s(self) -> float:
        return self.left_s

    def end_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.assignment.end)


@in_virtual_time
async def test_cancellation_of_a_body_does_not_reach_the_code_after_it() -> None:
    owner, ended = ShardOwner(), []
    owner.end_soon()
    async with owner.assignment:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append(True)
    await asyncio.sleep(1)
    assert ended and owner.assignment.is_over
    assert owner.assignment.unfinished_tasks() == set()


@in_virtual_time
async def test_body_that_ends_with_its_assignment_leaves_no_pending_cancellation() -> None:
    owner = ShardOwner()
    async with owner.assignment:
        owner.assignment.end()
    await asyncio.sleep(1)
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0


@pytest.mark.parametrize("ends_first", [True, False])
@in_virtual_time
async def test_cancellation_by_the_user_is_not_suppressed(ends_first: bool) -> None:
    """Also if it comes at the same time as the end of the assignment."""
    owner = ShardOwner()
    went_on = []

    async def use() -> None:
        async with owner.assignment:
            await asyncio.sleep(100)
        went_on.append(True)

    using = asyncio.ensure_future(use())
    await asyncio.sleep(1)
    if ends_first:
        owner.assignment.end()
    using.cancel()
    owner.assignment.end()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert went_on == []


@in_virtual_time
async def test_cancellation_by_the_user_at_the_end_of_a_body_is_not_suppressed() -> None:
    owner = ShardOwner()

    async def use() -> None:
        async with owner.assignment:
            owner.assignment.end()
            using.cancel()
        await asyncio.sleep(100)

    using = asyncio.ensure_future(use())
    with pytest.raises(asyncio.CancelledError):
        await using


@in_virtual_time
async def test_error_of_a_body_is_raised() -> None:
    owner = ShardOwner()
    owner.end_soon()
    with pytest.raises(LookupError, match="while it ended"):
        async with owner.assignment:
            try:
                await asyncio.sleep(100)
            finally:
                raise LookupError("while it ended")


@in_virtual_time
async def test_shard_lost_in_a_body_is_suppressed_if_the_assignment_is_over() -> None:
    owner = ShardOwner()
    with pytest.raises(ShardLost):
        async with owner.assignment:
            raise ShardLost("too early")
    async with owner.assignment:
        owner.assignment.end()
        raise ShardLost("gone")
    await asyncio.sleep(1)


@in_virtual_time
async def test_assignment_that_is_over_cancels_bodies_and_tasks_at_once() -> None:
    owner = ShardOwner()
    owner.assignment.end()
    owner.assignment.shards[0].set_state(ShardState.LOST)
    seen = []
    async with owner.assignment:
        await asyncio.sleep(1)
        seen.append("body")

    async def job() -> None:
        seen.append("task")

    tasks = [owner.assignment.create_task(job()), owner.assignment.create_task(job(), owner.assignment.shards[0])]
    await asyncio.wait(tasks)
    assert seen == [] and all(task.cancelled() for task in tasks)
    assert owner.assignment.over.is_set() and owner.assignment.shards[0].lost.is_set()


@in_virtual_time
async def test_assignment_has_one_body_and_any_number_of_tasks() -> None:
    owner = ShardOwner()
    async with owner.assignment:
        with pytest.raises(RuntimeError, match="create_task"):
            await owner.assignment.__aenter__()
        with pytest.raises(KeyError, match="no shard of this assignment"):
            owner.assignment.shard("jobs", 7)


@in_virtual_time
async def test_shard_is_revoked_before_it_is_lost_and_its_tasks_end() -> None:
    owner = ShardOwner()
    shard, other = owner.assignment.shards
    assert await owner.assignment.commit(shard, 4) == CommitResult("synced")

    async def forever() -> None:
        await asyncio.sleep(1e9)

    mine, theirs, whole = (owner.assignment.create_task(forever(), one) for one in (shard, other, None))
    await asyncio.sleep(1)
    revoked, lost = shard.revoked, shard.lost
    shard.set_state(ShardState.REVOKED)
    await asyncio.sleep(1)
    assert (revoked.is_set(), lost.is_set(), shard.is_revoked, shard.is_lost) == (True, False, True, False)
    assert (mine.cancelled(), theirs.done(), whole.done()) == (True, False, False)
    shard.set_state(ShardState.LOST)
    assert lost.is_set() and shard.is_lost
    owner.assignment.end()
    await asyncio.sleep(1)
    assert (theirs.done(), whole.cancelled()) == (False, True)
    other.set_state(ShardState.LOST)
    await asyncio.wait({theirs})


@in_virtual_time
async def test_task_failure_is_reported_to_the_owner_and_shard_lost_is_not() -> None:
    owner = ShardOwner()

    async def fail(error: Exception) -> None:
        raise error

    failure = LookupError("no such image")
    await asyncio.wait([owner.assignment.create_task(fail(one)) for one in (failure, ShardLost("gone"))])
    await asyncio.sleep(0)
    assert owner.failures == [failure]


@in_virtual_time
async def test_shard_is_lost_when_its_lease_is_over_before_the_loop_says_so() -> None:
    """The process was stopped, or its loop blocked: no timer has fired and no state has changed."""
    owner = ShardOwner()
    assignment, shard = owner.assignment, owner.assignment.shards[0]
    assert (shard.is_revoked, shard.is_lost, assignment.is_over, shard.lease_left_s) == (False, False, False, 5.0)
    owner.left_s = 0.0
    assert (shard.is_revoked, shard.is_lost, assignment.is_over, shard.lease_left_s) == (True, True, True, 0.0)
    assert shard.state is ShardState.OWNED


@in_virtual_time
async def test_lost_shard_has_no_lease_left_though_its_member_has() -> None:
    owner = ShardOwner()
    shard = owner.assignment.shards[0]
    shard.set_state(ShardState.LOST)
    assert (shard.lease_left_s, owner.assignment.shards[1].lease_left_s) == (0.0, 5.0)
