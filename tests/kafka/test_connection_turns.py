"""A client that pipelines requests does not delay other clients. These tests count requests and measure no time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    Client,
    Member,
    MemoryClient,
    NodeHarness,
    async_test,
    frame,
    heartbeat_values,
    join_and_sync,
    running_node,
)
from peers.wire import decode

from callboard.actors.steps import SLICE_NS
from callboard.runtime.engine.clock import SystemClock
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.connections.connection_turns import (
    READ_WAIT_MAX_MS,
    REQUESTS_PER_ITERATION,
    ConnectionTurns,
)
from callboard.runtime.kafka.connections.framing import FRAMES_PER_TURN, FrameSplitter
from callboard.runtime.kafka.connections.time_budget import TimeBudget
from callboard.runtime.node.environment import Environment
from callboard.runtime.settings.table import Settings

PIPELINED = 4000
MAX_BYTES = 1000


class HandledRequests:
    """An interceptor that records the client id of each request."""

    call = Call

    def __init__(self) -> None:
        self.client_ids: list[str] = []

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        self.client_ids.append(call.connection.client_id)
        handle(call)


async def member_of(harness: NodeHarness, group_id: str) -> tuple[MemoryClient, bytes]:
    """A client and its heartbeat."""
    member: Member = await join_and_sync(await harness.connect(), group_id)
    return MemoryClient(harness.node), frame("heartbeat", **heartbeat_values(group_id, member))


def count_of_answers(client: MemoryClient, answer: bytes) -> int:
    return len(client.transport.written) // (len(answer) + 4)


@async_test
async def test_heartbeat_is_answered_before_most_of_pipelined_heartbeats_that_were_read_first(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        flooder, beat = await member_of(harness, "flood")
        bystander, other_beat = await member_of(harness, "other")
        harness.node.services.interceptor = handled = HandledRequests()  # type: ignore[assignment]
        flooder.feed(beat * PIPELINED)
        assert len(handled.client_ids) == FRAMES_PER_TURN
        assert flooder.is_paused
        bystander.feed(other_beat)
        [answer] = await bystander.answered(1)
        assert decode("heartbeat", 4, answer)["error_code"] == "NONE"
        assert len(handled.client_ids) < 10 * REQUESTS_PER_ITERATION
        while count_of_answers(flooder, answer) < PIPELINED:
            await asyncio.sleep(0)
        assert len(handled.client_ids) == PIPELINED + 1
        assert not flooder.is_paused


def noted(turns: list[int], number: int, take_turn: Callable[[], int]) -> Callable[[], int]:
    def note_and_take_turn() -> int:
        turns.append(number)
        return take_turn()

    return note_and_take_turn


@async_test
async def test_clients_that_pipeline_are_served_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path) as harness:
        clients = [await member_of(harness, f"flood-{number}") for number in range(5)]
        connections = [client.connection for client, _ in clients]
        turns: list[int] = []
        for number, (client, beat) in enumerate(clients):
            client.feed(beat * PIPELINED)
            monkeypatch.setattr(client.connection, "take_turn", noted(turns, number, client.connection.take_turn))
        while any(connection.splitter.rest for connection in connections):
            await asyncio.sleep(0)
        assert turns[:100] == [0, 1, 2, 3, 4] * 20


@async_test
async def test_requests_behind_turn_are_handled_after_client_has_disconnected(tmp_path: Path) -> None:
    """As in Kafka: what was received is handled."""
    async with running_node(tmp_path) as harness:
        client, beat = await member_of(harness, "flood")
        harness.node.services.interceptor = handled = HandledRequests()  # type: ignore[assignment]
        client.feed(beat * 100)
        client.close()
        while client.connection in harness.node.connections:
            await asyncio.sleep(0)
        assert len(handled.client_ids) == 100


@pytest.mark.parametrize(
    "bad", [b"\xff\xff\xff\xfb" + bytes(10), b"\x7f\xff\xff\xff" + bytes(10), b"\0\0\0\x0a\x7f\xff" + bytes(8)]
)
@async_test
async def test_requests_that_wait_are_answered_before_bad_request_closes_connection(tmp_path: Path, bad: bytes) -> None:
    """They wait for an earlier one, as in Kafka, where the connection is not read meanwhile."""
    async with running_node(tmp_path) as harness:
        client, beat = await member_of(harness, "g")
        client.feed(frame("list_groups", 0) + beat + frame("api_versions", 0) + beat + bad + beat)
        while not client.is_closed:
            await asyncio.sleep(0)
        assert len(client.answers()) == 4


@async_test
async def test_requests_behind_turn_are_dropped_after_bad_request(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, beat = await member_of(harness, "flood")
        bad = b"\0\0\0\x0a\x7f\xff\0\0\0\0\0\0\0\0"  # an unknown API
        client.feed(beat * (FRAMES_PER_TURN + 2) + bad + beat * 100)
        while not client.is_closed:
            await asyncio.sleep(0)
        assert len(client.answers()) == FRAMES_PER_TURN + 2
        assert not client.connection.splitter.rest


@async_test
async def test_bytes_that_arrive_while_client_is_behind_keep_their_order(tmp_path: Path) -> None:
    """A transport may have read more before it is paused."""
    async with running_node(tmp_path) as harness:
        client, _ = await member_of(harness, "flood")
        requests = [frame("api_versions", 3, correlation_id=number, **API_VERSIONS) for number in range(60)]
        stream = b"".join(requests)
        for start in range(0, len(stream), 777):
            client.feed(stream[start : start + 777])
        answers = await client.answered(60)
        assert [int.from_bytes(answer[:4], "big") for answer in answers] == list(range(60))


@async_test
async def test_receive_buffer_of_connections_has_limit_of_settings(tmp_path: Path) -> None:
    """The system may round it up, or double it."""
    with socket.socket() as reference:
        reference.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, Settings().socket_receive_buffer_bytes)
        expected = reference.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    async with running_node(tmp_path) as harness:
        await join_and_sync(await harness.connect(), "g")
        [connection] = harness.node.connections
        own = connection.transport.get_extra_info("socket")
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == expected


API_VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


class FakeConnection:
    """A connection with a number of received requests."""

    def __init__(self, turns: ConnectionTurns, requests: int, handled: list[FakeConnection]) -> None:
        self.requests = requests
        self.is_closed = False
        self._turns = turns
        self._handled = handled

    def take_turn(self) -> int:
        count = min(self.requests, FRAMES_PER_TURN)
        if not count:
            raise RuntimeError("a bug")
        self._handled.append(self)
        self.requests -= count
        if self.requests:
            self._turns.schedule(self)
        return count

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def iterations() -> list[Callable[[], object]]:
    """The callbacks of the next iteration."""
    return []


def run_iteration(iterations: list[Callable[[], object]]) -> None:
    callbacks = iterations[:]
    iterations.clear()
    for callback in callbacks:
        callback()


def turns_of(iterations: list[Callable[[], object]], monotonic_ms: Callable[[], int] = lambda: 0) -> ConnectionTurns:
    return ConnectionTurns(iterations.append, monotonic_ms, TimeBudget(iterations.append, lambda: 0))


def test_iteration_handles_limited_requests_of_all_connections(iterations: list[Callable[[], object]]) -> None:
    turns, handled = turns_of(iterations), list[FakeConnection]()
    connections = [FakeConnection(turns, 10 * FRAMES_PER_TURN, handled) for _ in range(10)]
    for connection in (*connections, *connections):  # the second time has no effect
        turns.schedule(connection)
    per_iteration = REQUESTS_PER_ITERATION // FRAMES_PER_TURN
    for number in range(1, 26):
        assert len(iterations) == 1
        run_iteration(iterations)
        assert len(handled) == number * per_iteration
    assert iterations == []
    assert handled == connections * 10


def test_lone_connection_has_one_turn_per_iteration(iterations: list[Callable[[], object]]) -> None:
    turns, handled = turns_of(iterations), list[FakeConnection]()
    turns.schedule(FakeConnection(turns, 3 * FRAMES_PER_TURN, handled))
    run_iteration(iterations)
    assert len(handled) == 1


def test_connection_with_bug_is_closed_and_others_are_served(iterations: list[Callable[[], object]]) -> None:
    turns, handled = turns_of(iterations), list[FakeConnection]()
    broken, good = FakeConnection(turns, 0, handled), FakeConnection(turns, 1, handled)
    turns.schedule(broken)
    turns.schedule(good)
    run_iteration(iterations)
    assert broken.is_closed
    assert handled == [good]


def test_splitter_returns_limited_frames_and_continues_with_rest() -> None:
    one = b"\0\0\0\x0a\0\x0c\0\x04\0\0\0\x07\0\0"
    splitter = FrameSplitter()
    counts = [len(list(splitter.feed(one * 40 + one[:5], MAX_BYTES)))]
    while splitter.rest:
        counts.append(len(list(splitter.feed(b"", MAX_BYTES))))
    assert counts == [FRAMES_PER_TURN, FRAMES_PER_TURN, 8]
    assert splitter.is_in_frame
    assert len(list(splitter.feed(one[5:], MAX_BYTES))) == 1


# Waiting until all has been read --------------------------------------------------------------------------------------


def test_when_read_waits_for_whole_iteration(iterations: list[Callable[[], object]]) -> None:
    """Depending on the event loop, the next iteration calls callbacks before or after it reads the sockets."""
    turns, read = turns_of(iterations), list[str]()
    turns.when_read(lambda: read.append("all"))
    assert read == []
    run_iteration(iterations)
    assert read == []
    run_iteration(iterations)
    assert read == ["all"]


def test_when_read_waits_for_all_requests_that_were_received_before(iterations: list[Callable[[], object]]) -> None:
    turns, handled, read = turns_of(iterations), list[FakeConnection](), list[int]()
    connections = [FakeConnection(turns, 5 * FRAMES_PER_TURN, handled) for _ in range(8)]
    for connection in connections:
        turns.schedule(connection)
    turns.when_read(lambda: read.append(sum(connection.requests for connection in connections)))
    while not read:
        run_iteration(iterations)
    assert read == [0]


def test_when_read_gives_later_requests_one_turn(iterations: list[Callable[[], object]]) -> None:
    """A client that never stops sending does not keep deadlines from passing."""
    turns, handled, read = turns_of(iterations), list[FakeConnection](), list[bool]()
    late = FakeConnection(turns, 1000 * FRAMES_PER_TURN, handled)
    turns.when_read(lambda: read.append(late in handled))
    run_iteration(iterations)
    turns.schedule(late)
    while not read:
        run_iteration(iterations)
    assert read == [True]
    assert late.requests > 900 * FRAMES_PER_TURN


def test_when_read_waits_limited_time(iterations: list[Callable[[], object]]) -> None:
    now_ms = [0]
    turns, handled, read = turns_of(iterations, lambda: now_ms[0]), list[FakeConnection](), list[int]()
    turns.schedule(FakeConnection(turns, 10**9, handled))
    turns.when_read(lambda: read.append(now_ms[0]))
    while not read:
        now_ms[0] += 10
        run_iteration(iterations)
    assert READ_WAIT_MAX_MS <= read[0] <= READ_WAIT_MAX_MS + 50


def test_when_read_gives_each_connection_a_turn_however_long_that_takes(iterations: list[Callable[[], object]]) -> None:
    """A session must not end before the next requests of its client, which were received in time, are handled."""
    now_ms = [0]
    turns, handled, read = turns_of(iterations, lambda: now_ms[0]), list[FakeConnection](), list[int]()
    connections = [FakeConnection(turns, 10**9, handled) for _ in range(100)]
    for connection in connections:
        turns.schedule(connection)
    turns.when_read(lambda: read.append(len(set(handled))))
    while not read:
        now_ms[0] += READ_WAIT_MAX_MS
        run_iteration(iterations)
    assert read == [len(connections)]
    assert len(handled) < 5 * len(connections), "it does not wait for all of their requests"


class JumpingClock(SystemClock):
    """A clock that a test moves while the loop does not run, as if the loop had been busy."""

    def __init__(self) -> None:
        self.jumped_ms = 0
        super().__init__(lambda: 0)

    def monotonic_ms(self) -> int:
        return self.jumped_ms


@async_test
async def test_session_does_not_end_while_heartbeat_is_in_socket(tmp_path: Path) -> None:
    """The deadline passes before the server reads the heartbeat, which came in time."""
    clock, loop = JumpingClock(), asyncio.get_running_loop()
    async with running_node(tmp_path, environment=Environment(clock=clock)) as harness:
        admin = await harness.connect()
        member = await join_and_sync(admin, "g", session_timeout=10_000)
        beat = frame("heartbeat", **heartbeat_values("g", member))
        with socket.create_connection(("127.0.0.1", harness.port)) as client:
            client.setblocking(False)
            for jump_ms in (0, 10_001):
                client.send(beat)
                jump(harness, clock, jump_ms)
                answer = await loop.sock_recv(client, 1000)
                assert decode("heartbeat", 4, answer[4:])["error_code"] == "NONE"
        await wait_for_state(admin, "Stable")
        jump(harness, clock, 10_001)
        await wait_for_state(admin, "Empty")


def jump(harness: NodeHarness, clock: JumpingClock, jump_ms: int) -> None:
    """Let time pass and deadlines become due, and run the actors before the loop polls its sockets."""
    clock.jumped_ms += jump_ms
    system = harness.node.actors.system
    for alarm in system._alarms:
        alarm.fire()
    assert isinstance(system.dispatcher, LoopDispatcher)
    system.dispatcher._run_for(SLICE_NS)


async def wait_for_state(client: Client, state: str) -> None:
    while True:
        described = await client.ask("describe_groups", groups=["g"], include_authorized_operations=False)
        if described["groups"][0]["group_state"] == state:
            return
