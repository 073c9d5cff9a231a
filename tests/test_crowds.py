"""A crowd of members asks at once, and is answered at once: who beats in another group does not wait for all of them.

Nothing here looks at the clock. What counts is how many of the crowd are handled, or answered, before the bystander is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from door import (
    CardboardClient,
    Door,
    Member,
    beating,
    correlation_id_of,
    enrol,
    frame,
    framed,
    joining,
    on_a_loop,
    open_door,
    syncing,
)
from peers.wire import decode

from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.response_queue import RESPONSES_PER_TURN, ResponseQueue
from callboard.runtime.node.node import CROWD_A_TURN

MEMBERS = 640
CROWD = "crowd"


class Counter:
    """An interceptor that only counts what is handled."""

    call = Call

    def __init__(self) -> None:
        self.handled = 0

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        self.handled += 1
        handle(call)


class Bystander:
    """The one member of another group."""

    def __init__(self, node: Any, member: Member) -> None:
        self.client = CardboardClient(node)
        self._beat = frame("heartbeat", **beating("other", member))

    async def beat(self) -> None:
        before = len(self.client.answers())
        self.client.feed(self._beat)
        answers = await self.client.answered(before + 1)
        assert decode("heartbeat", 4, answers[-1])["error_code"] == "NONE"


async def bystander(door: Door) -> Bystander:
    return Bystander(door.node, await enrol(await door.connect(), "other"))


async def heard(clients: list[CardboardClient], name: str, version: int, count: int = 1) -> list[Any]:
    """What each was answered last."""
    return [decode(name, version, (await client.answered(count))[-1]) for client in clients]


def answered(clients: list[CardboardClient], count: int) -> int:
    return sum(len(client.answers()) >= count for client in clients)


async def parked_crowd(door: Door) -> tuple[list[CardboardClient], list[bytes]]:
    """Members whose second joins are parked, but that of the last, and the join that ends the phase."""
    clients = [CardboardClient(door.node) for _ in range(MEMBERS)]
    for client in clients:
        client.feed(frame("join_group", 9, **joining(CROWD)))
    given = await heard(clients, "join_group", 9)
    joins = [frame("join_group", 9, **joining(CROWD, one["member_id"])) for one in given]
    clients[0].feed(joins[0])
    await clients[0].answered(2)
    for client, join in list(zip(clients, joins, strict=True))[1:]:
        client.feed(join)
    while door.node.groups.groups[CROWD].actor_inbox.actor._group.members.joining < MEMBERS - 1:
        await asyncio.sleep(0)
    return clients, joins


@on_a_loop
async def test_a_beat_behind_a_crowd_of_requests_is_answered_before_most_of_them_are_handled(tmp_path: Path) -> None:
    """They are all read in one turn of the loop; the beat is the last of them."""
    async with open_door(tmp_path) as door:
        other, clients = await bystander(door), [CardboardClient(door.node) for _ in range(MEMBERS)]
        door.node.interceptor = interceptor = Counter()  # type: ignore[assignment]
        for client in clients:
            client.feed(frame("join_group", 9, **joining(CROWD)))
        await other.beat()
        assert interceptor.handled <= 4 * CROWD_A_TURN
        given = await heard(clients, "join_group", 9)
        assert len({one["member_id"] for one in given}) == MEMBERS
        assert interceptor.handled == MEMBERS + 1


@on_a_loop
async def test_a_beat_is_answered_before_most_of_a_generation_is(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        other = await bystander(door)
        clients, joins = await parked_crowd(door)
        clients[0].feed(joins[0])  # this completes the join phase
        while not answered(clients, 2):
            await other.beat()
        waits = [answered(clients[1:], 2)]
        while waits[-1] < MEMBERS - 1:
            await other.beat()
            waits.append(answered(clients[1:], 2))
        assert max(after - before for before, after in pairwise([0, *waits])) <= 4 * RESPONSES_PER_TURN
        leader, *others = [decode("join_group", 9, client.answers()[-1]) for client in clients]
        generation = leader["generation_id"]
        assert {one["generation_id"] for one in others} == {generation}
        assert {one["member_id"] for one in leader["members"]} == {one["member_id"] for one in (leader, *others)}
        await sync_all(clients, leader, others, other)


async def sync_all(clients: list[CardboardClient], leader: Any, others: list[Any], other: Bystander) -> None:
    """And the same when the assignments are durable; each gets its own."""
    everybody = [leader, *others]
    shares = [{"member_id": one["member_id"], "assignment": one["member_id"].encode()} for one in everybody]
    for client, one in zip(clients[1:], others, strict=True):
        client.feed(frame("sync_group", 5, **syncing(CROWD, Member(one["member_id"], one["generation_id"]))))
    before = [len(client.answers()) for client in clients]
    own = Member(leader["member_id"], leader["generation_id"])
    clients[0].feed(frame("sync_group", 5, **syncing(CROWD, own, shares)))
    counts = [0]
    while counts[-1] < MEMBERS:
        await other.beat()
        counts.append(sum(len(client.answers()) > known for client, known in zip(clients, before, strict=True)))
    assert max(after - earlier for earlier, after in pairwise(counts)) <= 4 * RESPONSES_PER_TURN
    for client, one in zip(clients, everybody, strict=True):
        assert decode("sync_group", 5, client.answers()[-1])["assignment"] == one["member_id"].encode()


@on_a_loop
async def test_who_is_parked_is_answered_before_a_stop(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        clients, _ = await parked_crowd(door)
        await door.restart()
        parked = [decode("join_group", 9, client.answers()[-1]) for client in clients[1:]]
        assert {one["error_code"] for one in parked} == {"NOT_COORDINATOR"}
        assert all(client.is_closed for client in clients)


@on_a_loop
async def test_a_leave_behind_a_join_counts_though_its_client_hangs_up_at_once(tmp_path: Path) -> None:
    """All of it comes in one turn of the loop, before anything of it is handled."""
    async with open_door(tmp_path) as door:
        first = await door.connect()
        member = await enrol(first, "g")
        client = CardboardClient(door.node)
        leave = frame(
            "leave_group", 5, group_id="g", members=[{"member_id": member.member_id, "group_instance_id": None}]
        )
        client.feed(frame("join_group", 9, **joining("g", member.member_id)) + leave)
        client.close()
        while client.connection in door.node.connections:
            await asyncio.sleep(0)
        [group] = (await first.ask("describe_groups", groups=["g"], include_authorized_operations=False))["groups"]
        assert (group["group_state"], group["members"]) == ("Empty", [])


@on_a_loop
async def test_a_join_before_a_bad_frame_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(tmp_path) as door:
        for bad, logged in ((b"\0\0\0\0", 1), (framed(b"\0\x63" + bytes(20)), 2)):
            client = CardboardClient(door.node)
            client.feed(frame("join_group", 9, correlation_id=3, **joining("g")) + bad)
            [answer] = await client.answered(1)
            assert correlation_id_of(answer) == 3
            assert client.is_closed
            assert len(caplog.records) == logged


@on_a_loop
async def test_a_bad_join_before_a_bad_frame_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(tmp_path) as door:
        client = CardboardClient(door.node)
        client.feed(framed(b"\0\x0b\0\x09" + bytes(4) + b"\xff\xff\0") + b"\0\0\0\0")
        assert client.is_closed
        assert len(caplog.records) == 1


# The backlog by itself ------------------------------------------------------------------------------------------------


class Loop:
    """What is to be called when this turn is over."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Shared:
    """A place of which all answers go to one list; ``bad`` ones cannot take any."""

    def __init__(self, taken: list[Any], bad: bool = False) -> None:
        self._taken = taken
        self._is_bad = bad

    def set(self, value: Any = None) -> None:
        if self._is_bad:
            raise ValueError("this place is broken")
        self._taken.append(value)

    def set_exception(self, exc_info: Any = None) -> None:
        raise AssertionError("nobody refuses here")


def test_groups_take_turns_and_each_keeps_its_order() -> None:
    loop, taken = Loop(), list[Any]()
    backlog, place = ResponseQueue(loop.soon), Shared(taken)
    for number in range(3 * RESPONSES_PER_TURN):
        backlog.add("large", place, ("large", number))
    for number in range(3):
        backlog.add("small", place, ("small", number))
    loop.turn()
    assert len(taken) == RESPONSES_PER_TURN
    assert [number for name, number in taken if name == "small"] == [0, 1, 2]
    while loop.callbacks:
        loop.turn()
    assert [number for name, number in taken if name == "large"] == list(range(3 * RESPONSES_PER_TURN))
    assert len(backlog) == 0


def test_a_backlog_that_was_emptied_is_filled_again() -> None:
    loop, taken = Loop(), list[Any]()
    backlog = ResponseQueue(loop.soon)
    for value in range(5):
        backlog.add("g", Shared(taken), value)
        loop.turn()
        assert (taken, loop.callbacks) == (list(range(value + 1)), [])


def test_at_the_end_all_are_answered_at_once_or_none() -> None:
    loop, taken = Loop(), list[Any]()
    backlog = ResponseQueue(loop.soon)
    for value in range(100):
        backlog.add(f"group-{value % 3}", Shared(taken), value)
    backlog.deliver_all()
    assert (sorted(taken), len(backlog)) == (list(range(100)), 0)
    backlog.add("g", Shared(taken), "dropped")
    backlog.drop()
    loop.turn()
    assert (len(taken), loop.callbacks) == (100, [])


def test_a_place_that_takes_nothing_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loop, taken = Loop(), list[Any]()
    backlog = ResponseQueue(loop.soon)
    for value in range(4):
        backlog.add("g", Shared(taken, bad=value == 1), value)
    loop.turn()
    assert taken == [0, 2, 3]
    assert "could not be delivered" in caplog.text
