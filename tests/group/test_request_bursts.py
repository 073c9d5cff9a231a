"""Bursts of requests to one group do not delay other groups.

These tests measure no time. They count how many requests of the burst are handled, or answered, before a heartbeat of
another group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from actor_system.instances import instance
from harness import (
    Member,
    MemoryClient,
    NodeHarness,
    async_test,
    correlation_id_of,
    frame,
    framed,
    heartbeat_values,
    join_and_sync,
    join_values,
    running_node,
    sync_values,
)
from peers.wire import decode

from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.connections.connection_turns import REQUESTS_PER_ITERATION
from callboard.runtime.kafka.response_queue import RESPONSES_PER_TURN, ResponseQueue

MEMBERS = 640
BURST_GROUP = "burst"


class Counter:
    """An interceptor that counts handled requests."""

    call = Call

    def __init__(self) -> None:
        self.handled = 0

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        self.handled += 1
        handle(call)


class OtherMember:
    """The only member of another group."""

    def __init__(self, node: Any, member: Member) -> None:
        self.client = MemoryClient(node)
        self._beat = frame("heartbeat", **heartbeat_values("other", member))

    async def heartbeat(self) -> None:
        answers_before = len(self.client.answers())
        self.client.feed(self._beat)
        answers = await self.client.answered(answers_before + 1)
        assert decode("heartbeat", 4, answers[-1])["error_code"] == "NONE"


async def add_other_member(harness: NodeHarness) -> OtherMember:
    return OtherMember(harness.node, await join_and_sync(await harness.connect(), "other"))


async def last_responses(clients: list[MemoryClient], name: str, version: int, count: int = 1) -> list[Any]:
    """The last reply of each client."""
    return [decode(name, version, (await client.answered(count))[-1]) for client in clients]


def answered_count(clients: list[MemoryClient], count: int) -> int:
    return sum(len(client.answers()) >= count for client in clients)


async def parked_burst(harness: NodeHarness) -> tuple[list[MemoryClient], list[bytes]]:
    """Connect clients and park the second join of each, except the first. Its join ends the join phase."""
    clients = [MemoryClient(harness.node) for _ in range(MEMBERS)]
    for client in clients:
        client.feed(frame("join_group", 9, **join_values(BURST_GROUP)))
    responses = await last_responses(clients, "join_group", 9)
    joins = [frame("join_group", 9, **join_values(BURST_GROUP, response["member_id"])) for response in responses]
    clients[0].feed(joins[0])
    await clients[0].answered(2)
    for client, join in list(zip(clients, joins, strict=True))[1:]:
        client.feed(join)
    while instance(harness.node.groups.groups[BURST_GROUP]).group.members.joining < MEMBERS - 1:
        await asyncio.sleep(0)
    return clients, joins


@async_test
async def test_heartbeat_behind_burst_of_joins_is_answered_before_most_joins(tmp_path: Path) -> None:
    """All requests are read in one turn of the loop; the heartbeat is the last."""
    async with running_node(tmp_path) as harness:
        other_member, clients = await add_other_member(harness), [MemoryClient(harness.node) for _ in range(MEMBERS)]
        harness.node.services.interceptor = interceptor = Counter()  # type: ignore[assignment]
        for client in clients:
            client.feed(frame("join_group", 9, **join_values(BURST_GROUP)))
        await other_member.heartbeat()
        assert interceptor.handled <= 4 * REQUESTS_PER_ITERATION
        responses = await last_responses(clients, "join_group", 9)
        assert len({response["member_id"] for response in responses}) == MEMBERS
        assert interceptor.handled == MEMBERS + 1


@async_test
async def test_heartbeat_is_answered_before_most_join_responses_of_large_group(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        other_member = await add_other_member(harness)
        clients, joins = await parked_burst(harness)
        clients[0].feed(joins[0])  # this completes the join phase
        while not answered_count(clients, 2):
            await other_member.heartbeat()
        counts = [answered_count(clients[1:], 2)]
        while counts[-1] < MEMBERS - 1:
            await other_member.heartbeat()
            counts.append(answered_count(clients[1:], 2))
        assert max(count - previous for previous, count in pairwise([0, *counts])) <= 4 * RESPONSES_PER_TURN
        leader, *followers = [decode("join_group", 9, client.answers()[-1]) for client in clients]
        generation = leader["generation_id"]
        assert {response["generation_id"] for response in followers} == {generation}
        assert {response["member_id"] for response in leader["members"]} == {
            response["member_id"] for response in (leader, *followers)
        }
        await sync_all(clients, leader, followers, other_member)


async def sync_all(clients: list[MemoryClient], leader: Any, followers: list[Any], other_member: OtherMember) -> None:
    """Check the same for the SyncGroup responses. Each member gets its own assignment."""
    responses = [leader, *followers]
    assignments = [
        {"member_id": response["member_id"], "assignment": response["member_id"].encode()} for response in responses
    ]
    for client, response in zip(clients[1:], followers, strict=True):
        client.feed(
            frame("sync_group", 5, **sync_values(BURST_GROUP, Member(response["member_id"], response["generation_id"])))
        )
    counts_before = [len(client.answers()) for client in clients]
    leader_member = Member(leader["member_id"], leader["generation_id"])
    clients[0].feed(frame("sync_group", 5, **sync_values(BURST_GROUP, leader_member, assignments)))
    counts = [0]
    while counts[-1] < MEMBERS:
        await other_member.heartbeat()
        counts.append(
            sum(
                len(client.answers()) > count_before
                for client, count_before in zip(clients, counts_before, strict=True)
            )
        )
    assert max(count - previous for previous, count in pairwise(counts)) <= 4 * RESPONSES_PER_TURN
    for client, response in zip(clients, responses, strict=True):
        assert decode("sync_group", 5, client.answers()[-1])["assignment"] == response["member_id"].encode()


@async_test
async def test_parked_requests_are_answered_before_server_stops(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        clients, _ = await parked_burst(harness)
        await harness.restart()
        responses = [decode("join_group", 9, client.answers()[-1]) for client in clients[1:]]
        assert {response["error_code"] for response in responses} == {"NOT_COORDINATOR"}
        assert all(client.is_closed for client in clients)


@async_test
async def test_leave_behind_join_is_handled_after_client_disconnects(tmp_path: Path) -> None:
    """All frames arrive in one turn of the loop, before any of them is handled."""
    async with running_node(tmp_path) as harness:
        first_client = await harness.connect()
        member = await join_and_sync(first_client, "g")
        client = MemoryClient(harness.node)
        leave = frame(
            "leave_group", 5, group_id="g", members=[{"member_id": member.member_id, "group_instance_id": None}]
        )
        client.feed(frame("join_group", 9, **join_values("g", member.member_id)) + leave)
        client.close()
        while client.connection in harness.node.connections:
            await asyncio.sleep(0)
        [group] = (await first_client.ask("describe_groups", groups=["g"], include_authorized_operations=False))[
            "groups"
        ]
        assert (group["group_state"], group["members"]) == ("Empty", [])


@async_test
async def test_join_before_invalid_frame_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_node(tmp_path) as harness:
        for invalid_frame, logged in ((b"\0\0\0\0", 1), (framed(b"\0\x63" + bytes(20)), 2)):
            client = MemoryClient(harness.node)
            client.feed(frame("join_group", 9, correlation_id=3, **join_values("g")) + invalid_frame)
            [response] = await client.answered(1)
            assert correlation_id_of(response) == 3
            assert client.is_closed
            assert len(caplog.records) == logged


@async_test
async def test_invalid_join_before_invalid_frame_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        client.feed(framed(b"\0\x0b\0\x09" + bytes(4) + b"\xff\xff\0") + b"\0\0\0\0")
        assert client.is_closed
        assert len(caplog.records) == 1


# ResponseQueue -------------------------------------------------------------------------------------------------------


class Loop:
    """Callbacks for the end of this turn."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Shared:
    """A ``ReplyTo`` that appends replies to a shared list, or raises if ``is_failing``."""

    def __init__(self, sent_replies: list[Any], is_failing: bool = False) -> None:
        self._taken = sent_replies
        self._is_bad = is_failing

    def set(self, value: Any = None) -> None:
        if self._is_bad:
            raise ValueError("this place is broken")
        self._taken.append(value)

    def set_exception(self, exc_info: Any = None) -> None:
        raise AssertionError("no request is refused")


def test_response_queue_serves_groups_round_robin_in_order() -> None:
    loop, sent = Loop(), list[Any]()
    queue, reply_to = ResponseQueue(loop.soon), Shared(sent)
    for number in range(3 * RESPONSES_PER_TURN):
        queue.add("large", reply_to, ("large", number))
    for number in range(3):
        queue.add("small", reply_to, ("small", number))
    loop.turn()
    assert len(sent) == RESPONSES_PER_TURN
    assert [number for name, number in sent if name == "small"] == [0, 1, 2]
    while loop.callbacks:
        loop.turn()
    assert [number for name, number in sent if name == "large"] == list(range(3 * RESPONSES_PER_TURN))
    assert len(queue) == 0


def test_response_queue_is_reused_after_it_was_empty() -> None:
    loop, sent = Loop(), list[Any]()
    queue = ResponseQueue(loop.soon)
    for value in range(5):
        queue.add("g", Shared(sent), value)
        loop.turn()
        assert (sent, loop.callbacks) == (list(range(value + 1)), [])


def test_response_queue_at_shutdown_sends_all_or_none() -> None:
    loop, sent = Loop(), list[Any]()
    queue = ResponseQueue(loop.soon)
    for value in range(100):
        queue.add(f"group-{value % 3}", Shared(sent), value)
    queue.deliver_all()
    assert (sorted(sent), len(queue)) == (list(range(100)), 0)
    queue.add("g", Shared(sent), "dropped")
    queue.drop()
    loop.turn()
    assert (len(sent), loop.callbacks) == (100, [])


def test_failing_reply_slot_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    loop, sent = Loop(), list[Any]()
    queue = ResponseQueue(loop.soon)
    for value in range(4):
        queue.add("g", Shared(sent, is_failing=value == 1), value)
    loop.turn()
    assert sent == [0, 2, 3]
    assert "could not be delivered" in caplog.text
