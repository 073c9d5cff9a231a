"""A large request is freed in steps after its answer, because freeing many objects at once takes milliseconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import MemoryClient, async_test, frame, running_node
from transaction_api_helpers import fetch_part, fetch_request
from work_counter import _no_garbage_collection, _one_step_a_turn, endless_clock

from callboard.actors.steps import Steps
from callboard.runtime.kafka.connections.framing import BadRequest
from callboard.runtime.kafka.connections.time_budget import TimeBudget
from callboard.runtime.kafka.release import OBJECTS_PER_STEP, ReleaseJob, release_collections, release_request
from callboard.runtime.kafka.slices import Slices
from callboard.runtime.node.environment import Environment, WorkClocks

__all__ = ["_no_garbage_collection", "_one_step_a_turn"]

ITEMS = 4_000
PARTITIONS = 3_000


class Counted:
    """Counts those that are freed."""

    freed = 0

    def __del__(self) -> None:
        Counted.freed += 1


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Request:
    group_id: str
    topics: tuple[Topic, ...]


def test_items_are_freed_in_steps_also_those_of_items() -> None:
    Counted.freed = 0
    small, large = tuple(Counted() for _ in range(10)), tuple(Counted() for _ in range(5_000))
    releasing = release_request(Request("g", (*[Topic("t", small)] * 3_000, Topic("u", large))))
    del small, large
    steps, last, most = 0, 0, 0
    for _ in releasing:
        steps += 1
        most, last = max(most, Counted.freed - last), Counted.freed
    assert Counted.freed == 5_010
    assert most <= OBJECTS_PER_STEP + 10
    assert steps >= 8


def test_release_changes_nothing_that_others_keep() -> None:
    Counted.freed = 0
    request = Request("g", tuple(Topic("t", tuple(Counted() for _ in range(100))) for _ in range(100)))
    for _ in release_request(request):
        pass
    assert (Counted.freed, len(request.topics), len(request.topics[99].partitions)) == (0, 100, 100)


def test_collections_are_freed_in_steps_also_those_in_them() -> None:
    Counted.freed = 0
    nested = {number: [frozenset((Counted(),)), Counted()] for number in range(1_000)}
    releasing = release_collections(nested, [Counted() for _ in range(1_000)])
    del nested
    last, most = 0, 0
    for _ in releasing:
        most, last = max(most, Counted.freed - last), Counted.freed
    assert Counted.freed == 3_000
    assert most <= OBJECTS_PER_STEP


def test_large_entity_that_all_items_refer_to_is_not_followed_from_each() -> None:
    topic = Topic("t", tuple(Counted() for _ in range(2_000)))
    steps = sum(1 for _ in release_collections([(topic, number) for number in range(2_000)]))
    assert steps <= 4 * 2_000 / OBJECTS_PER_STEP


@pytest.mark.usefixtures("_one_step_a_turn", "_no_garbage_collection")
@async_test
async def test_answered_request_is_freed_in_several_turns_of_the_loop(tmp_path: Path) -> None:
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        warm = MemoryClient(harness.node)
        warm.feed(frame("leave_group", 5, group_id="g", members=[]))  # loads the API
        await warm.answered(1)
        client, most = MemoryClient(harness.node), 0
        client.feed(frame("leave_group", 5, group_id="g", members=[member(number) for number in range(ITEMS)]))
        blocks = sys.getallocatedblocks()
        while not client.transport.written or len(harness.node.services.slices):
            await asyncio.sleep(0)
            most, blocks = max(most, blocks - sys.getallocatedblocks()), sys.getallocatedblocks()
        assert most < 2 * ITEMS, "a member is three blocks in the request, and one in the answer"


def member(number: int) -> dict[str, str | None]:
    return {"member_id": f"member-{number}", "group_instance_id": None, "reason": None}


@async_test
async def test_handler_that_goes_on_after_the_answer_still_has_the_request(tmp_path: Path) -> None:
    """A request may be answered at its deadline, while its handler works in steps."""
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        client.feed(frame("leave_group", 5, group_id="g", members=[member(number) for number in range(ITEMS)]))
        while (call := client.connection.requests.calls[0]).request is None:
            await asyncio.sleep(0)
        call.respond_with_error()
        await client.answered(1)
        while len(harness.node.services.slices):
            await asyncio.sleep(0)
        assert len(call.request.members) == ITEMS
        assert not client.is_closed


@pytest.mark.usefixtures("_one_step_a_turn")
@async_test
async def test_work_on_a_fetch_ends_soon_after_its_answer(tmp_path: Path) -> None:
    """Its results refer to the requested topic, which has all partitions."""
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        client, turns = MemoryClient(harness.node), 0
        partitions = [{**fetch_part(0), "partition": number} for number in range(PARTITIONS)]
        client.feed(frame("fetch", 11, **{**fetch_request(), "topics": [{"topic": "t", "partitions": partitions}]}))
        while not client.transport.written or len(harness.node.services.slices):
            await asyncio.sleep(0)
            turns += 1
            assert turns < PARTITIONS


class EndingJob:
    """Collects items, in a generator inside of another one, until it is not wanted any more or fails."""

    def __init__(self, kept: list[Counted]) -> None:
        self.steps = self._outer(kept)
        self.is_wanted = True
        self.is_answer = False
        self.ends: list[str] = []

    def _outer(self, kept: list[Counted]) -> Steps[None]:
        own = tuple(Counted() for _ in range(ITEMS))
        try:
            yield from self._inner(own, kept)
        except IndexError as error:
            raise BadRequest("wrong") from error

    def _inner(self, given: tuple[Counted, ...], kept: list[Counted]) -> Steps[None]:
        items = [Counted() for _ in range(ITEMS)]
        yield
        assert len(items) == len(given) == len(kept)
        raise IndexError

    def finish(self, result: None) -> None:
        self.ends.append("finished")

    def fail(self, error: Exception) -> None:
        self.ends.append("failed")

    def drop(self) -> None:
        self.ends.append("dropped")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_what_work_has_held_that_ends_early_is_freed_in_steps(is_wanted: bool) -> None:
    """The client is gone while its response is made, or a large request is damaged near its end."""
    turns: list[Callable[[], None]] = []
    slices = Slices(turns.append, endless_clock(), 4, TimeBudget(turns.append, lambda: 0))
    kept = [Counted() for _ in range(ITEMS)]
    job = EndingJob(kept)
    Counted.freed = last = most = 0
    slices.run_later(job)
    while turns:
        turns.pop(0)()
        most, last = max(most, Counted.freed - last), Counted.freed
        job.is_wanted = is_wanted
    assert job.ends == ["failed" if is_wanted else "dropped"]
    assert most <= OBJECTS_PER_STEP
    del job
    assert Counted.freed == 2 * ITEMS
    assert len(kept) == ITEMS


@pytest.mark.usefixtures("_one_step_a_turn", "_no_garbage_collection")
@async_test
async def test_request_of_client_that_is_gone_is_freed_in_several_turns_of_the_loop(tmp_path: Path) -> None:
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        warm = MemoryClient(harness.node)
        request = frame("leave_group", 5, group_id="g", members=[member(number) for number in range(ITEMS)])
        warm.feed(request)
        turns_all = 0
        while not warm.transport.written:
            await asyncio.sleep(0)
            turns_all += 1
        while len(harness.node.services.slices):
            await asyncio.sleep(0)
        for turns in range(0, turns_all, turns_all // 8):
            client, most = MemoryClient(harness.node), 0
            client.feed(request)
            for _ in range(turns):
                await asyncio.sleep(0)
            client.close()
            blocks = sys.getallocatedblocks()
            while len(harness.node.services.slices) or client.connection in harness.node.connections:
                await asyncio.sleep(0)
                most, blocks = max(most, blocks - sys.getallocatedblocks()), sys.getallocatedblocks()
            assert most < 2 * ITEMS, f"the client has disconnected after {turns} of {turns_all} turns"


def test_memory_is_freed_before_other_work_continues() -> None:
    """Else what is freed would wait, in memory, behind all requests that take more of it."""
    turns: list[Callable[[], None]] = []
    slices = Slices(turns.append, endless_clock(), 1, TimeBudget(turns.append, lambda: 0))
    order: list[str] = []

    def work(name: str) -> Steps[None]:
        for _ in range(5):
            yield
        order.append(name)

    for name in ("first", "second"):
        slices.run_later(job_of(work(name)))
    slices.run_later(ReleaseJob(work("release")))
    while turns:
        turns.pop(0)()
    assert order.index("release") < order.index("second")


def job_of(steps: Steps[None]) -> EndingJob:
    job = EndingJob([])
    job.steps = steps
    return job
