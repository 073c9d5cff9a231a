"""The table of a connection's phases, and that connections obey it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from harness import (
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
)

from callboard.runtime.engine.reply import Reply
from callboard.runtime.kafka.connections.connection_phase import NEXT_PHASE, Event, Phase, UndefinedEvent, next_phase
from callboard.runtime.kafka.connections.holds import Hold, Holds

BAD_FRAME = framed(b"\0\x63" + bytes(20))  # an API that does not exist
REFERENCE = """
HANDSHAKE      CONNECTED AUTHENTICATING, BAD_REQUEST DRAINING, STOP DRAINING, CLOSE CLOSING, LOST DETACHED
AUTHENTICATING AUTHENTICATED SERVING, BAD_REQUEST DRAINING, STOP DRAINING, CLOSE CLOSING, LOST DETACHED
SERVING        BAD_REQUEST DRAINING, STOP DRAINING, CLOSE CLOSING, LOST DETACHED
DRAINING       BAD_REQUEST DRAINING, STOP DRAINING, CLOSE CLOSING, LOST DETACHED, ALL_ANSWERED CLOSING
CLOSING        BAD_REQUEST CLOSING, STOP CLOSING, CLOSE CLOSING, LOST DETACHED
DETACHED       BAD_REQUEST DETACHED, STOP DETACHED, CLOSE DETACHED, ALL_ANSWERED CLOSED
CLOSED         CLOSE CLOSED
"""


def reference() -> dict[tuple[str, str], str]:
    rows = [line.split(maxsplit=1) for line in REFERENCE.strip().splitlines()]
    cells = [(phase, *cell.split()) for phase, row in rows for cell in row.split(",")]
    return {(phase, event): following for phase, event, following in cells}


def test_table_equals_reference() -> None:
    assert {(phase.name, event.name): after.name for (phase, event), after in NEXT_PHASE.items()} == reference()


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_undefined_event_raises(phase: Phase, event: Event) -> None:
    expected = reference().get((phase.name, event.name))
    if expected is None:
        with pytest.raises(UndefinedEvent, match=f"{event.name} in phase {phase.name}"):
            next_phase(phase, event)
    else:
        assert next_phase(phase, event).name == expected


def test_only_open_phases_take_requests_and_closed_is_final() -> None:
    assert [phase.name for phase in Phase if phase.takes_requests] == ["SERVING"]
    assert {phase for phase, event in NEXT_PHASE if event is Event.ALL_ANSWERED} == {p for p in Phase if p.is_ending}
    assert {after for (phase, _), after in NEXT_PHASE.items() if not phase.is_open} == {
        phase for phase in Phase if not phase.is_open
    }
    assert {after for (phase, _), after in NEXT_PHASE.items() if phase is Phase.CLOSED} == {Phase.CLOSED}


def test_hold_is_counted_for_full_groups_only() -> None:
    holds = Holds(lambda: None)
    for _ in range(2):
        holds.add(Hold.GROUP_FULL)
        holds.add(Hold.TOO_MANY_REQUESTS)
    holds.remove(Hold.TOO_MANY_REQUESTS)
    holds.remove(Hold.PEER_SLOW)
    assert holds.reasons == {Hold.GROUP_FULL}
    holds.remove(Hold.GROUP_FULL)
    assert holds.reasons == {Hold.GROUP_FULL}
    holds.remove(Hold.GROUP_FULL)
    assert holds.reasons == set()


async def parked_join(harness: NodeHarness) -> MemoryClient:
    """A client with a pending JoinGroup."""
    first = await harness.connect()
    await join_and_sync(first, "g")
    client = MemoryClient(harness.node)
    client.feed(frame("join_group", 3, correlation_id=1, **join_values("g")))
    while not client.connection.requests.calls:
        await first.ask("api_versions", 0)
    return client


def phase_of(client: MemoryClient) -> Phase:
    return client.connection.phase


def correlation_ids(client: MemoryClient) -> list[int]:
    return [correlation_id_of(answer) for answer in client.answers()]


@async_test
async def test_plain_connection_serves_at_once(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        assert phase_of(client) is Phase.SERVING
        assert client.connection in harness.node.connections
        client.close()
        assert phase_of(client) is Phase.CLOSED
        assert client.connection not in harness.node.connections


@async_test
async def test_connection_above_limit_is_closed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        harness.node.connection_limit.maximum = 0
        client = MemoryClient(harness.node)
        assert (client.connection.phase, client.is_closed) == (Phase.CLOSING, True)
        assert client.connection not in harness.node.connections
        client.close()
        assert phase_of(client) is Phase.CLOSED


@async_test
async def test_draining_connection_answers_earlier_requests_then_closes(tmp_path: Path) -> None:
    """Bytes after a bad request are dropped, and the socket is still read."""
    async with running_node(tmp_path) as harness:
        client = await parked_join(harness)
        client.feed(frame("api_versions", 0, correlation_id=2) + BAD_FRAME)
        assert phase_of(client) is Phase.DRAINING
        client.feed(frame("api_versions", 0, correlation_id=3))
        assert (client.is_closed, client.is_paused) == (False, False)
        [call] = client.connection.requests.calls
        call.respond_with_bytes(b"")
        await client.answered(2)
        assert phase_of(client) is Phase.CLOSING
        assert client.is_closed
        assert correlation_ids(client) == [1, 2]
        client.close()


@async_test
async def test_stopping_connection_answers_pending_request_then_closes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, idle = await parked_join(harness), MemoryClient(harness.node)
        client.feed(frame("api_versions", 0, correlation_id=2))
        harness.node.connections.stop_reading()
        assert (idle.connection.phase, client.connection.phase) == (Phase.CLOSING, Phase.DRAINING)
        assert client.is_paused
        [call] = client.connection.requests.calls
        call.respond_with_bytes(b"")
        await client.answered(1)
        assert phase_of(client) is Phase.CLOSING
        assert correlation_ids(client) == [1]
        client.close()
        idle.close()


@async_test
async def test_detached_connection_handles_queue_and_sends_nothing(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await parked_join(harness)
        client.feed(frame("api_versions", 0, correlation_id=2))
        client.close()
        assert phase_of(client) is Phase.DETACHED
        assert client.connection in harness.node.connections
        [call] = client.connection.requests.calls
        call.respond_with_bytes(b"")
        client.connection.send_responses()
        [queued] = client.connection.requests.calls
        assert (queued.schema.name, client.connection.phase) == ("api_versions", Phase.DETACHED)
        client.connection.send_responses()
        assert phase_of(client) is Phase.CLOSED
        assert client.connection not in harness.node.connections
        assert client.answers() == []


@async_test
async def test_queue_of_slow_reader_is_dropped_when_it_is_lost(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await parked_join(harness)
        client.feed(frame("api_versions", 0, correlation_id=2))
        client.connection.pause_writing()
        client.close()
        [call] = client.connection.requests.calls
        call.respond_with_bytes(b"")
        client.connection.send_responses()
        assert phase_of(client) is Phase.CLOSED
        assert not client.connection.requests.queue


@async_test
async def test_requests_behind_bad_queued_request_are_not_handled(tmp_path: Path) -> None:
    """The bad one is decoded when its turn comes."""
    async with running_node(tmp_path) as harness:
        client = await parked_join(harness)
        unreadable = framed(b"\0\x10\0\x05" + bytes(4) + b"\xff\xff\0")  # ListGroups without its fields
        client.feed(unreadable + frame("api_versions", 0, correlation_id=3))
        assert phase_of(client) is Phase.SERVING
        [call] = client.connection.requests.calls
        call.respond_with_bytes(b"")
        await client.answered(1)
        assert phase_of(client) is Phase.CLOSING
        assert correlation_ids(client) == [1]
        client.close()


@async_test
async def test_socket_is_read_only_without_holds(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        client = MemoryClient(harness.node)
        rooms = [Reply() for _ in range(2)]
        for room in rooms:
            client.connection.pause_until(room)
        client.connection.pause_writing()
        rooms[0].set(None)
        client.connection.resume_writing()
        assert client.is_paused
        client.feed(frame("heartbeat", 4, **heartbeat_values("g", member)))
        await client.answered(1)
        assert client.is_paused
        rooms[1].set(None)
        assert not client.is_paused
        client.close()
