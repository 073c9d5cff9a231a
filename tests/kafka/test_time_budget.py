"""Many connections together do not hold the event loop: the time of an iteration is bounded. No test measures time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import MemoryClient, async_test, frame, heartbeat_values, join_and_sync, running_node
from hypothesis import given
from hypothesis import strategies as st
from peers.wire import decode
from work_counter import endless_clock

from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.connections.framing import BYTES_PER_TURN, FRAMES_PER_TURN, FrameSplitter
from callboard.runtime.kafka.connections.time_budget import BUDGET_NS, RENEWAL_NS, TINY_BYTES, TimeBudget
from callboard.runtime.kafka.scatter_gather import MESSAGES_PER_BATCH, MESSAGES_PER_STEP
from callboard.runtime.node.environment import Environment, WorkClocks

CLIENTS = 80
REQUEST_NS = BUDGET_NS // 2
PER_ITERATION = 2
"""Requests of ``REQUEST_NS`` that begin within the budget."""

TINY = frame("heartbeat", 4, group_id="none", generation_id=1, member_id="m", group_instance_id=None)
LONG = frame("heartbeat", 4, group_id="x" * TINY_BYTES, generation_id=1, member_id="m", group_instance_id=None)
FIND = frame("find_coordinator", 4, key_type=0, coordinator_keys=["x"])


class WorkClock:
    """A clock, and an interceptor by which each request takes ``REQUEST_NS``. ``handled``: how many there were."""

    call = Call

    def __init__(self) -> None:
        self.now_ns = 0
        self.handled = 0

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        self.now_ns += REQUEST_NS
        self.handled += 1
        handle(call)

    def refused(self, connection: Any, reason: str) -> None:
        """Nothing to note."""


async def handled_per_iteration(clock: WorkClock, count: int) -> list[int]:
    """How many requests each iteration handles until ``count`` are handled."""
    numbers = [clock.handled]
    while clock.handled < count:
        before = clock.handled
        await asyncio.sleep(0)
        numbers.append(clock.handled - before)
    return numbers


def environment_of(clock: WorkClock) -> Environment:
    return Environment(work_clocks=WorkClocks(budget_ns=lambda: clock.now_ns))


@pytest.mark.parametrize("request_frame", [LONG, TINY * 10], ids=["long", "pipelined"])
@async_test
async def test_iteration_handles_requests_of_many_connections_for_limited_time(
    tmp_path: Path, request_frame: bytes
) -> None:
    clock, requests = WorkClock(), 1 if request_frame is LONG else 10
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        clients = [MemoryClient(harness.node) for _ in range(CLIENTS)]
        for client in clients:
            client.feed(request_frame)
        numbers = await handled_per_iteration(clock, CLIENTS * requests)
        assert max(numbers) <= PER_ITERATION + requests
        for client in clients:
            assert len(await client.answered(requests)) == requests
            assert not client.is_paused


@async_test
async def test_tiny_request_is_handled_at_once_when_the_time_is_spent(tmp_path: Path) -> None:
    clock = WorkClock()
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        bystander = MemoryClient(harness.node)
        for _ in range(CLIENTS):
            MemoryClient(harness.node).feed(LONG)
        handled = clock.handled
        bystander.feed(frame("heartbeat", 4, **heartbeat_values("g", member)))
        assert clock.handled == handled + 1
        [answer] = await bystander.answered(1)
        assert decode("heartbeat", 4, answer)["error_code"] == "NONE"
        assert clock.handled < CLIENTS / 2
        await handled_per_iteration(clock, CLIENTS + 1)


@async_test
async def test_queued_requests_of_many_connections_are_handled_for_limited_time(tmp_path: Path) -> None:
    """A FindCoordinator is handled when the one before it is answered."""
    clock = WorkClock()
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        clients = [MemoryClient(harness.node) for _ in range(CLIENTS)]
        for client in clients:
            client.feed(FIND)
            client.feed(FIND)
        numbers = await handled_per_iteration(clock, 2 * CLIENTS)
        assert max(numbers[1:]) <= PER_ITERATION
        for client in clients:
            await client.answered(2)


@async_test
async def test_work_in_slices_of_a_tiny_request_begins_later_when_the_time_is_spent(tmp_path: Path) -> None:
    clock = WorkClock()
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        slices = harness.node.services.slices
        MemoryClient(harness.node).feed(FIND)
        assert len(slices) == 0, "its first part is all of it"
        for _ in range(CLIENTS):
            MemoryClient(harness.node).feed(LONG)
        waiting = MemoryClient(harness.node)
        waiting.feed(FIND)
        assert len(slices) == 1
        [answer] = await waiting.answered(1)
        assert decode("find_coordinator", 4, answer)["coordinators"]
        await handled_per_iteration(clock, CLIENTS + 2)


@async_test
async def test_requests_that_wait_for_time_are_handled_after_the_client_has_gone(tmp_path: Path) -> None:
    clock = WorkClock()
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        clients = [MemoryClient(harness.node) for _ in range(10)]
        for client in clients:
            client.feed(LONG)
        assert clock.handled < len(clients)
        for client in clients:
            client.close()
        while len(harness.node.connections):
            await asyncio.sleep(0)
        assert clock.handled == len(clients)


@async_test
async def test_connection_that_is_read_twice_while_it_waits_is_paused(tmp_path: Path) -> None:
    clock = WorkClock()
    async with running_node(tmp_path, environment=environment_of(clock)) as harness:
        harness.node.services.interceptor = clock  # type: ignore[assignment]
        for _ in range(PER_ITERATION):
            MemoryClient(harness.node).feed(LONG)
        client = MemoryClient(harness.node)
        client.feed(LONG)
        assert not client.is_paused
        client.feed(TINY)
        assert client.is_paused
        assert len(await client.answered(2)) == 2
        assert not client.is_paused


class CountedPosts:
    """Counts messages to groups, and those that are not answered."""

    def __init__(self, post: Callable[[Any, Any], None]) -> None:
        self._post = post
        self.sent = self.open = self.open_max = 0

    def post(self, request: Any, reply: Any) -> None:
        self.sent += 1
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        self._post(request, CountedReply(self, reply))


class CountedReply:
    def __init__(self, posts: CountedPosts, reply_to: Any) -> None:
        self._posts = posts
        self._reply_to = reply_to

    def set(self, value: Any = None) -> None:
        self._posts.open -= 1
        self._reply_to.set(value)


@async_test
async def test_requests_for_many_groups_have_few_messages_in_flight(tmp_path: Path) -> None:
    """A heartbeat may wait behind them in the mailbox of the coordinator."""
    names, connections = [f"g{number}" for number in range(3 * MESSAGES_PER_BATCH + 1)], 20
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock(), budget_ns=lambda: 0))
    async with running_node(tmp_path, environment=environment, max_sliced_requests=2) as harness:
        groups = harness.node.services.groups
        posts = CountedPosts(groups.post)
        groups.post = posts.post  # type: ignore[method-assign]
        clients = [MemoryClient(harness.node) for _ in range(connections)]
        for client in clients:
            client.feed(frame("delete_groups", 2, groups_names=names))
        sent_per_iteration = [posts.sent]
        while not all(client.transport.written for client in clients):
            before = posts.sent
            await asyncio.sleep(0)
            sent_per_iteration.append(posts.sent - before)
        assert posts.sent == connections * len(names)
        assert posts.open_max <= 2 * MESSAGES_PER_BATCH + connections, "the last batch of each has one message"
        assert max(sent_per_iteration) <= MESSAGES_PER_STEP + connections
        for client in clients:
            [answer] = await client.answered(1)
            assert len(decode("delete_groups", 2, answer)["results"]) == len(names)


@async_test
async def test_batch_that_cannot_be_sent_is_answered_and_lets_the_next_one_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = frame("delete_groups", 2, groups_names=[f"g{number}" for number in range(MESSAGES_PER_BATCH)])
    async with running_node(tmp_path, max_sliced_requests=1) as harness:
        groups = harness.node.services.groups
        post = groups.post

        def fail(request: Any, reply: Any) -> None:
            groups.post = post  # type: ignore[method-assign]
            raise RuntimeError("a bug")

        groups.post = fail  # type: ignore[method-assign]
        for expected in ("UNKNOWN_SERVER_ERROR", "GROUP_ID_NOT_FOUND"):
            client = MemoryClient(harness.node)
            client.feed(request)
            [answer] = await client.answered(1)
            errors = {result["error_code"] for result in decode("delete_groups", 2, answer)["results"]}
            assert errors == {expected}
    assert "a bug" in caplog.text


# The budget ----------------------------------------------------------------------------------------------------------


class Ticks:
    def __init__(self) -> None:
        self.now_ns = 0
        self.scheduled: list[Callable[[], None]] = []
        self.budget = TimeBudget(self.scheduled.append, lambda: self.now_ns)

    def work(self, duration_ns: int) -> None:
        begin_ns = self.budget.begin()
        self.now_ns += duration_ns
        self.budget.end(begin_ns)


def test_budget_is_spent_by_all_work_together_until_it_is_renewed() -> None:
    ticks = Ticks()
    for _ in range(2):
        ticks.work(BUDGET_NS - 1)
        assert not ticks.budget.is_spent
        ticks.work(1)
        assert ticks.budget.is_spent
        [renew] = ticks.scheduled
        ticks.scheduled.clear()
        renew()
        assert not ticks.budget.is_spent


def test_idle_time_between_work_does_not_count() -> None:
    ticks = Ticks()
    ticks.work(RENEWAL_NS)
    ticks.now_ns += 10 * BUDGET_NS
    ticks.work(RENEWAL_NS)
    assert not ticks.budget.is_spent


def test_work_within_work_counts_once() -> None:
    ticks = Ticks()
    begin_ns = ticks.budget.begin()
    ticks.work(BUDGET_NS // 2)
    ticks.budget.end(begin_ns)
    assert not ticks.budget.is_spent
    ticks.work(BUDGET_NS // 2)
    assert ticks.budget.is_spent


def test_little_work_needs_no_callback() -> None:
    ticks = Ticks()
    ticks.work(RENEWAL_NS - 1)
    assert not ticks.scheduled


# Frames that wait ----------------------------------------------------------------------------------------------------


def frames_of(splitter: FrameSplitter, data: bytes) -> list[bytes]:
    return [buffer[start:end] for buffer, _, _, start, _, end in splitter.feed(data, 100_000)]


@given(
    sizes=st.lists(st.sampled_from([14, 50, 3_000, 20_000]), min_size=1, max_size=40),
    cuts=st.lists(st.tuples(st.integers(1, 30_000), st.booleans()), max_size=30),
)
def test_held_bytes_give_the_same_frames_in_the_same_order(sizes: list[int], cuts: list[tuple[int, bool]]) -> None:
    frames = [(size - 4).to_bytes(4, "big") + bytes(8) + b"\xff\xff" + bytes(size - 14) for size in sizes]
    stream, splitter, found = b"".join(frames), FrameSplitter(), list[bytes]()
    for size, holds in [*cuts, (len(stream), False)]:
        piece, stream = stream[:size], stream[size:]
        if not (holds and splitter.hold(piece)):
            found += frames_of(splitter, piece)
    while splitter.rest:
        found += frames_of(splitter, b"")
    assert found == frames
    assert not splitter.is_in_frame


@pytest.mark.parametrize("size", [100, 3_000, 20_000])
def test_turn_ends_after_some_frames_or_some_bytes(size: int) -> None:
    one = (size - 4).to_bytes(4, "big") + bytes(8) + b"\xff\xff" + bytes(size - 14)
    assert len(frames_of(FrameSplitter(), one * 40)) == min(FRAMES_PER_TURN, -(-BYTES_PER_TURN // size))
