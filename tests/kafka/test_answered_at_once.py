"""Heartbeats that an idle group answers at once: the answers, their order and errors are those of the usual way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from consumer_requests import consumer_heartbeat_values, join
from harness import (
    MemoryClient,
    async_test,
    commit_values,
    correlation_id_of,
    frame,
    heartbeat_values,
    join_and_sync,
    join_values,
    running_node,
)
from peers.wire import decode
from transaction_api_helpers import batch, fetch_request, produce
from work_counter import WorkCounter

from callboard.actors.engine_ports import NOT_HANDLED
from callboard.actors.group.actor import GroupActor
from callboard.actors.turn import run_at_once
from callboard.runtime.engine import loop_mailbox
from callboard.runtime.engine.loop_mailbox import LoopMailbox
from callboard.runtime.engine.mailbox import Mailbox
from callboard.runtime.kafka.connections.pending_requests import MAX_CALLS_OPEN
from callboard.runtime.node.node import Node

STEPS = 300
LINES_MORE = 12
"""The state of a consumer group is compared in Python; kio reads a classic heartbeat in few lines."""

VERSIONS = (0, 2, 3, 4)


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The replies of all messages that were handled at once."""
    recorded: list[object] = []

    def record(actor: object, message: object) -> object:
        reply = run_at_once(actor, message)  # type: ignore[arg-type]
        if reply is not NOT_HANDLED:
            recorded.append(reply)
        return reply

    monkeypatch.setattr(loop_mailbox, "run_at_once", record)
    return recorded


@contextmanager
def usual_way() -> Iterator[None]:
    """All messages go through mailboxes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopMailbox, "answer_at_once", Mailbox.answer_at_once)
        yield


async def answer(client: MemoryClient, request: bytes) -> bytes:
    client.transport.written.clear()
    client.feed(request)
    (response,) = await client.answered(1)
    return response


def random_heartbeat(numbers: random.Random, members: dict[str, object]) -> bytes:
    """One of a member, or one whose member, generation, group or instance is not known."""
    group_id = numbers.choice([*members, "absent", ""])
    values = heartbeat_values(group_id, members.get(group_id) or members["a"])  # type: ignore[arg-type]
    if numbers.random() < 0.2:
        values["member_id"] = numbers.choice(["", "unknown"])
    if numbers.random() < 0.2:
        values["generation_id"] = numbers.choice([-1, 0, 99])
    version = numbers.choice(VERSIONS)
    if version >= 3 and numbers.random() < 0.2:
        values["group_instance_id"] = "unknown"
    if version < 3:
        del values["group_instance_id"]
    return frame("heartbeat", version, **values)


@pytest.mark.parametrize("seed", range(3))
@async_test
async def test_both_ways_answer_the_same(tmp_path: Path, replies: list[object], seed: int) -> None:
    numbers = random.Random(seed)
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        other = await harness.connect()
        members = {group_id: await join_and_sync(other, group_id) for group_id in ("a", "b")}
        client = MemoryClient(harness.node)
        for _ in range(STEPS):
            if numbers.random() < 0.05:  # a member that has not synced; one is known in a rebalance, then not at all
                group_id = numbers.choice(("a", "b"))
                await other.ask("leave_group", 2, group_id=group_id, member_id=members[group_id].member_id)
            if numbers.random() < 0.05:
                group_id = numbers.choice(("a", "b"))
                asked = await other.ask("join_group", **join_values(group_id))
                if numbers.random() < 0.7:
                    await other.ask("leave_group", 2, group_id=group_id, member_id=members[group_id].member_id)
                    members[group_id] = await join_and_sync(other, group_id)
                assert asked["error_code"] == "MEMBER_ID_REQUIRED"
            request = random_heartbeat(numbers, dict(members))
            first = await answer(client, request)
            with usual_way():
                assert await answer(client, request) == first
    assert len(set(replies)) >= 3, "several errors have to be answered at once"
    assert len(replies) > STEPS / 3


@pytest.mark.parametrize("seed", range(3))
@async_test
async def test_both_ways_answer_members_of_consumer_groups_the_same(
    tmp_path: Path, replies: list[object], seed: int
) -> None:
    """Heartbeats with the member's epoch, an old one or one of the future, while members join and leave."""
    numbers = random.Random(seed)
    async with running_node(tmp_path, {"sync": "none"}, group_consumer_assignment_interval_ms=0) as harness:
        other = await harness.connect()
        client = MemoryClient(harness.node)
        epochs: dict[str, int] = {}
        for _ in range(STEPS):
            if numbers.random() < 0.05 or not epochs:
                member_id = numbers.choice("abc")
                epochs[member_id] = (await join(other, member_id, "u", group_id="g"))["member_epoch"]
            elif numbers.random() < 0.03:
                member_id, _ = epochs.popitem()
                await other.ask("consumer_group_heartbeat", **consumer_heartbeat_values(member_id, -1, group_id="g"))
                continue
            member_id = numbers.choice("abc")
            epoch = epochs.get(member_id, 1) + numbers.choice((0, 0, 0, -1, 1))
            values = consumer_heartbeat_values(member_id, max(epoch, 1), group_id="g")
            request = frame("consumer_group_heartbeat", numbers.choice((0, 1)), **values)
            count = len(replies)
            first = await answer(client, request)
            if len(replies) > count:  # so it has changed nothing
                with usual_way():
                    assert await answer(client, request) == first
            decoded = decode("consumer_group_heartbeat", 1, first)
            if decoded["error_code"] == "NONE":
                epochs[member_id] = decoded["member_epoch"]
    assert len(replies) > STEPS / 10


@async_test
async def test_unchanged_heartbeat_of_a_consumer_takes_about_as_much_work_as_a_classic_one(tmp_path: Path) -> None:
    """In executed lines, for a server that has answered the same before."""
    async with running_node(tmp_path, {"sync": "none"}, group_consumer_assignment_interval_ms=0) as harness:
        other = await harness.connect()
        classic = frame("heartbeat", 4, **heartbeat_values("a", await join_and_sync(other, "a")))
        await join(other, "m", "u", group_id="b")
        consumer = frame("consumer_group_heartbeat", 1, **consumer_heartbeat_values("m", 2, group_id="b"))
        assert lines_of_repeated(harness.node, consumer) <= lines_of_repeated(harness.node, classic) + LINES_MORE


def lines_of_repeated(node: Node, request: bytes) -> int:
    """The lines that answer a request that the connection has sent before."""
    client, counter = MemoryClient(node), WorkCounter()
    for _ in range(3):
        counter.longest = 0
        with counter.counting():
            client.feed(request)
            client.connection.send_responses()
        counter.end_piece()
    assert len(client.answers()) == 3
    return counter.longest


@async_test
async def test_responses_keep_the_order_of_requests(tmp_path: Path, replies: list[object]) -> None:
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        values = heartbeat_values("g", await join_and_sync(await harness.connect(), "g"))
        client = MemoryClient(harness.node)
        beats, numbers = 0, random.Random(1)
        stream = b""
        for number in range(60):
            if numbers.random() < 0.7:
                stream += frame("heartbeat", 4, number, **values)
                beats += 1
            else:
                stream += frame("offset_commit", 8, number, **commit_values("simple"))
        for start in range(0, len(stream), 333):
            client.feed(stream[start : start + 333])
        answers = await client.answered(60)
        assert [correlation_id_of(response) for response in answers] == list(range(60))
        assert 0 < len(replies) < beats


@async_test
async def test_request_that_overlaps_with_none_waits_for_the_responses(tmp_path: Path, replies: list[object]) -> None:
    """The records of a Fetch are shared with the topic, and not copied into one write with other responses."""
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        other = await harness.connect()
        values = heartbeat_values("g", await join_and_sync(other, "g"))
        assert await produce(other, batch(b"a record"), None) == "NONE"
        client = MemoryClient(harness.node)
        beat = frame("heartbeat", 4, 1, **values)
        client.feed(beat + beat + frame("fetch", 11, 2, **fetch_request()) + beat)
        answers = await client.answered(4)
        assert [correlation_id_of(response) for response in answers] == [1, 1, 2, 1]
        assert b"a record" in answers[2]
        assert len(replies) == 3


@async_test
async def test_group_with_waiting_messages_answers_in_order(tmp_path: Path, replies: list[object]) -> None:
    """The member has left when its heartbeat is handled, although another connection sent it."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        first, second = MemoryClient(harness.node), MemoryClient(harness.node)
        first.feed(frame("leave_group", 2, group_id="g", member_id=member.member_id))
        second.feed(frame("heartbeat", 4, **heartbeat_values("g", member)))
        (response,) = await second.answered(1)
        assert response[-3:-1] == (25).to_bytes(2, "big")  # UNKNOWN_MEMBER_ID
        assert replies == []


@async_test
async def test_responses_that_wait_hold_the_socket(tmp_path: Path, replies: list[object]) -> None:
    async with running_node(tmp_path) as harness:
        values = heartbeat_values("g", await join_and_sync(await harness.connect(), "g"))
        client = MemoryClient(harness.node)
        request = frame("heartbeat", 4, **values)
        for _ in range(MAX_CALLS_OPEN):
            client.feed(request)
        assert client.is_paused
        assert len(await client.answered(MAX_CALLS_OPEN)) == len(replies) == MAX_CALLS_OPEN
        await asyncio.sleep(0)
        assert not client.is_paused


@async_test
async def test_bug_restarts_the_group_and_the_heartbeat_is_answered(
    tmp_path: Path, replies: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as harness:
        values = heartbeat_values("g", await join_and_sync(await harness.connect(), "g"))
        client = MemoryClient(harness.node)

        def fail(_actor: GroupActor, _message: object) -> object:
            raise RuntimeError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(GroupActor, "immediate_handlers", dict.fromkeys(GroupActor.immediate_handlers, fail))
            response = await answer(client, frame("heartbeat", 4, **values))
        assert response[-3:-1] == (0).to_bytes(2, "big")
        assert replies == []
        assert harness.node.actors.system.dispatcher.counters.restarts == 1
        with monkeypatch.context() as patch:  # in the context of a socket's callback
            patch.setattr(GroupActor, "immediate_handlers", dict.fromkeys(GroupActor.immediate_handlers, fail))
            assert (await (await harness.connect()).ask("heartbeat", 4, **values))["error_code"] == "NONE"
        assert harness.node.actors.system.dispatcher.counters.restarts == 2
        assert await answer(client, frame("heartbeat", 4, **values)) == response
        assert len(replies) == 1


@async_test
async def test_traced_requests_take_the_usual_way(tmp_path: Path, replies: list[object]) -> None:
    async with running_node(tmp_path) as harness:
        values = heartbeat_values("g", await join_and_sync(await harness.connect(), "g"))
        client = MemoryClient(harness.node)
        system = harness.node.actors.system
        traced: list[object] = []
        system.trace(traced.append)
        await answer(client, frame("heartbeat", 4, **values))
        system.trace(None)
        assert any("Heartbeat" in str(event) for event in traced)
        assert replies == []
        await answer(client, frame("heartbeat", 4, **values))
        assert len(replies) == 1
