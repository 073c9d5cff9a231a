"""Connections: frames split at any byte, responses in the order of the requests, and bounded memory."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from harness import (
    Client,
    Member,
    MemoryClient,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    correlation_id_of,
    fetch_values,
    frame,
    framed,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
)
from peers.wire import decode, encode

from callboard.runtime.kafka.connections.addresses import host_and_port, java_address
from callboard.runtime.kafka.connections.connection import Connection
from callboard.runtime.kafka.connections.framing import BYTES_PER_TURN, FRAMES_PER_TURN
from callboard.runtime.kafka.connections.pending_requests import MAX_BYTES_OPEN, MAX_CALLS_OPEN, MAX_FRAMES_WAITING

IDLE_TURNS = 3000  # iterations of the loop without progress until a client counts as blocked


def versions_request(correlation_id: int) -> bytes:
    return frame(
        "api_versions", 3, correlation_id=correlation_id, client_software_name="a", client_software_version="1"
    )


def ids(responses: list[bytes]) -> list[int]:
    return [correlation_id_of(response) for response in responses]


async def send_pending_join(harness: NodeHarness, client: Client) -> tuple[Client, Member]:
    """Send a JoinGroup of ``client`` to group g: it is pending until the returned member has rejoined."""
    first = await harness.connect()
    member = await join_and_sync(first, "g")
    newcomer = await client.ask("join_group", **join_values("g"))
    client.write(frame("join_group", 9, correlation_id=1, **join_values("g", newcomer["member_id"])))
    await state_of(first, "PreparingRebalance")
    return first, member


async def state_of(client: Client, state: str) -> None:
    """Wait for a state of group g."""
    while True:
        answer = await client.ask("describe_groups", groups=["g"], include_authorized_operations=False)
        if answer["groups"][0]["group_state"] == state:
            return


# Frames ---------------------------------------------------------------------------------------------------------------


@async_test
async def test_frames_split_at_any_byte_are_handled(tmp_path: Path) -> None:
    """Four requests in two reads, split at every byte, and in reads of a few bytes."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        stream = b"".join(
            [
                frame("heartbeat", 4, correlation_id=0, **heartbeat_values("g", member)),
                frame("offset_commit", 9, correlation_id=1, **commit_values("g", member)),
                versions_request(2),
                frame("heartbeat", 1, correlation_id=3, **heartbeat_values("g", member)),
            ]
        )
        reference = MemoryClient(harness.node)
        reference.feed(stream)
        expected = await reference.answered(4)
        assert ids(expected) == [0, 1, 2, 3]
        in_two_reads = [[stream[:cut], stream[cut:]] for cut in range(1, len(stream))]
        in_small_reads = [
            [stream[start : start + size] for start in range(0, len(stream), size)] for size in (1, 2, 3, 13, 14, 50)
        ]
        clients = []
        for pieces in [*in_two_reads, *in_small_reads]:
            clients.append(MemoryClient(harness.node))
            for piece in pieces:
                clients[-1].feed(piece)
        for client in [*clients, reference]:
            assert await client.answered(4) == expected
            client.close()


@pytest.mark.parametrize(
    ("length", "raw"),
    [(-1, b""), (-7, b""), (0, b""), (4, b"wire"), (32767, b"i" * 32767), (12, "Grüße€".encode() + b"..")],
)
@async_test
async def test_client_ids_are_decoded(tmp_path: Path, length: int, raw: bytes) -> None:
    """Null equals empty. The client id is the prefix of a new member id."""
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        plain = encode("join_group", 9, join_values("g"))
        client.feed(framed(plain[:8] + length.to_bytes(2, "big", signed=True) + raw + plain[8 + 2 + len("wire") :]))
        if len(raw) < 1000:
            [response] = await client.answered(1)
            joined = decode("join_group", 9, response)
            assert joined["error_code"] == "MEMBER_ID_REQUIRED"
            assert joined["member_id"].startswith(raw.decode() + "-")
        client.feed(versions_request(5))
        while not client.answers() or ids(client.answers())[-1] != 5:
            await asyncio.sleep(0)
        assert not client.is_closed
        client.close()


@async_test
async def test_frame_size_limit_holds_for_any_chunking(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Too large frames in one read, and in two reads, of which the first has only the size."""
    async with running_node(tmp_path, socket_request_max_bytes=500) as harness:
        request = frame("describe_groups", 5, groups=["g" * 400], include_authorized_operations=False)
        exact = request + b"\0" * (504 - len(request))
        fits = MemoryClient(harness.node)
        fits.feed((500).to_bytes(4, "big") + exact[4:])
        assert len(await fits.answered(1)) == 1
        fits.close()
        for pieces in ([(501).to_bytes(4, "big") + exact[4:] + b"\0"], [(501).to_bytes(4, "big")]):
            client = MemoryClient(harness.node)
            for piece in pieces:
                client.feed(piece)
            assert client.is_closed
            assert client.answers() == []
            client.close()
        assert [record.levelname for record in caplog.records] == ["WARNING"]  # the second is only counted
        assert harness.node.services.over_limit.counts["socket_request_max_bytes"] == 2
        assert "501 bytes" in caplog.text


@async_test
async def test_requests_before_bad_frame_are_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, earlier requests are answered before the connection is closed."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        for invalid in (
            b"\0\0\0\0",
            b"\xff\xff\xff\xff",
            framed(b"\0\x63" + bytes(20)),
            framed(b"\0\x0c\0\x04" + bytes(7)),
        ):
            client = await harness.connect()
            valid = [
                frame("heartbeat", 4, correlation_id=0, **heartbeat_values("g", member)),
                frame("offset_commit", 9, correlation_id=1, **commit_values("g", member)),
            ]
            client.write(b"".join([*valid, invalid, versions_request(2)]))
            assert ids(await client.responses_until_disconnect()) == [0, 1]
        assert len(caplog.records) == 4


# Order ----------------------------------------------------------------------------------------------------------------


@async_test
async def test_pipelined_heartbeats_and_commits_are_answered_in_order(tmp_path: Path) -> None:
    """Commits wait for the disk and heartbeats do not, but responses stay in order."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        for number in range(400):
            if number % 3 == 1:
                client.write(frame("offset_commit", 9, correlation_id=number, **commit_values("g", member, number)))
            else:
                client.write(frame("heartbeat", 4, correlation_id=number, **heartbeat_values("g", member)))
        answers = [await client.receive_frame() for _ in range(400)]
        assert ids(answers) == list(range(400))
        assert (await offsets(client, "g"))["t", 0] == 397  # the last commit wins


@async_test
async def test_pipelined_fetch_after_commit_sees_commit(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for offset in range(50):
            client.write(frame("offset_commit", 9, **commit_values("simple", offset=offset)))
            client.write(frame("offset_fetch", 9, **fetch_values("simple", 0)))
        for offset in range(50):
            await client.receive("offset_commit", 9)
            fetched = await client.receive("offset_fetch", 9)
            assert fetched["groups"][0]["topics"][0]["partitions"][0]["committed_offset"] == offset


@async_test
async def test_request_after_pending_join_is_not_handled(tmp_path: Path) -> None:
    """This includes requests without a group: nothing is handled until the join phase ends."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        first, member = await send_pending_join(harness, client)
        client.write(frame("offset_commit", 9, correlation_id=2, **commit_values("other")) + versions_request(3))
        for _ in range(5):  # five round trips of another client, all after that commit
            assert await offsets(first, "other") == {}
        first.write(frame("join_group", 9, **join_values("g", member.member_id)))
        assert ids([await client.receive_frame() for _ in range(3)]) == [1, 2, 3]
        assert (await first.receive("join_group", 9))["error_code"] == "NONE"
        assert await offsets(first, "other") == {("t", 0): 42}


@async_test
async def test_disconnect_during_pending_join_keeps_member(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, it stays a member until its session expires, and its queued request is handled after the join."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        first, member = await send_pending_join(harness, client)
        client.write(frame("offset_commit", 9, **commit_values("other", offset=4)))
        await client.close()
        while all(connection.is_open for connection in harness.node.connections):
            await asyncio.sleep(0)
        assert await offsets(first, "other") == {}
        joined = await first.ask("join_group", **join_values("g", member.member_id))
        assert (joined["error_code"], len(joined["members"])) == ("NONE", 2)
        while len(harness.node.connections) > 1:
            await asyncio.sleep(0)
        assert await offsets(first, "other") == {("t", 0): 4}
        assert caplog.records == []


@async_test
async def test_member_with_two_connections(tmp_path: Path) -> None:
    """A member may use several connections; the latest JoinGroup is answered."""
    async with running_node(tmp_path) as harness:
        old_connection, new_connection = await harness.connect(), await harness.connect()
        first, other = await send_pending_join(harness, old_connection)
        described = (await first.ask("describe_groups", groups=["g"], include_authorized_operations=False))["groups"][0]
        [member_id] = {member["member_id"] for member in described["members"]} - {other.member_id}
        for _ in range(2):
            new_connection.write(frame("join_group", 9, **join_values("g", member_id)))
            await first.ask("heartbeat", **heartbeat_values("g", other))
            first.write(frame("join_group", 9, **join_values("g", other.member_id)))
            joined = await new_connection.receive("join_group", 9)
            assert (joined["error_code"], joined["member_id"]) == ("NONE", member_id)
            assert (await first.receive("join_group", 9))["error_code"] == "NONE"
            other = other._replace(generation_id=joined["generation_id"])
        for client in (first, new_connection):
            response = await client.ask(
                "heartbeat", **heartbeat_values("g", Member(member_id, joined["generation_id"]))
            )
            assert response["error_code"] == "NONE"


# Bounds ---------------------------------------------------------------------------------------------------------------


@async_test
async def test_long_pipeline_is_answered_in_order_to_slow_reader(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        for number in range(0, 2000, 2):
            client.write(frame("heartbeat", 4, correlation_id=number, **heartbeat_values("g", member)))
            client.write(frame("offset_commit", 9, correlation_id=number + 1, **commit_values("g", member)))
        for number in range(2000, 2200):
            client.write(versions_request(number))
        assert ids([await client.receive_frame() for _ in range(2200)]) == list(range(2200))


def feed_in_one_iteration(client: MemoryClient, request: bytes, count: int) -> None:
    """Feed so few requests at a time that none has to wait for a turn."""
    at_a_time = max(1, min(FRAMES_PER_TURN, BYTES_PER_TURN // len(request)))
    for start in range(0, count, at_a_time):
        client.feed(request * min(at_a_time, count - start))


@async_test
async def test_too_many_unanswered_calls_pause_reading(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        client = MemoryClient(harness.node)
        request = frame("heartbeat", 4, **heartbeat_values("g", member))
        feed_in_one_iteration(client, request, MAX_CALLS_OPEN - 1)
        assert not client.is_paused
        client.feed(request)
        assert client.is_paused
        assert len(await client.answered(MAX_CALLS_OPEN)) == MAX_CALLS_OPEN
        assert not client.is_paused
        client.close()


@async_test
async def test_unanswered_commits_with_too_many_bytes_pause_reading(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        partition = {**committed_partition(0), "committed_metadata": "m" * 4000}
        values = {**commit_values("g"), "topics": [{"name": "t", "partitions": [partition]}]}
        request = frame("offset_commit", 8, **values)
        count = -(-MAX_BYTES_OPEN // len(request))
        assert count < MAX_CALLS_OPEN / 2
        feed_in_one_iteration(client, request, count - 1)
        assert not client.is_paused
        client.feed(request * 2)
        assert client.is_paused
        assert len(await client.answered(count + 1)) == count + 1
        assert not client.is_paused
        client.close()


@pytest.mark.parametrize(("size", "count"), [(20, MAX_FRAMES_WAITING), (700_000, 2), (3_000_000, 1)])
@async_test
async def test_too_many_requests_after_pending_join_pause_reading(tmp_path: Path, size: int, count: int) -> None:
    """Many requests or a few large ones are queued in memory, up to the limits."""
    async with running_node(tmp_path) as harness:
        first = await harness.connect()
        member = await join_and_sync(first, "g")
        client = MemoryClient(harness.node)
        client.feed(frame("join_group", 3, **join_values("g")))
        await state_of(first, "PreparingRebalance")
        request = encode("api_versions", 0, {})
        waiting = framed(request + bytes(size - len(request)))  # trailing bytes are ignored
        for number in range(count):
            assert not client.is_paused, number
            client.feed(waiting)
        assert client.is_paused
        assert client.answers() == []
        first.write(frame("join_group", 9, **join_values("g", member.member_id)))
        await client.answered(1 + count)
        assert not client.is_paused
        client.close()


@async_test
async def test_requests_of_client_that_does_not_read_are_not_read(tmp_path: Path) -> None:
    """The server resumes reading only when the client has read its responses."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        client = MemoryClient(harness.node)
        feed_in_one_iteration(client, frame("heartbeat", 4, **heartbeat_values("g", member)), 2 * MAX_CALLS_OPEN)
        client.connection.pause_writing()
        await client.answered(2 * MAX_CALLS_OPEN)
        assert client.is_paused
        client.connection.resume_writing()
        assert not client.is_paused
        client.close()


@pytest.mark.parametrize("kind", ["heartbeats", "descriptions"])
@async_test
async def test_responses_to_client_that_does_not_read_are_bounded(tmp_path: Path, kind: str) -> None:
    """Over TCP: the client sends until the server stops reading. Few responses are buffered then."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        request = frame("heartbeat", 4, **heartbeat_values("g", member))
        if kind == "descriptions":
            request = frame("describe_groups", 5, groups=["x" * 2000] * 5, include_authorized_operations=False)
        with socket.create_connection(("127.0.0.1", harness.port)) as client:
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await limit_send_buffers(harness, connections=2)
            sent = await send_until_blocked(client, request * 500, lambda: is_writing_paused(harness))
            waiting = max(map(write_buffer_bytes, harness.node.connections))
            assert 0 < waiting < min(3_000_000, sent)


async def limit_send_buffers(harness: NodeHarness, connections: int) -> None:
    """The system's buffers hold megabytes of small responses otherwise."""
    while len(harness.node.connections) < connections:
        await asyncio.sleep(0)
    for connection in harness.node.connections:
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def is_writing_paused(harness: NodeHarness) -> bool:
    return any(map(write_buffer_bytes, harness.node.connections))


def write_buffer_bytes(connection: Connection) -> int:
    return cast("asyncio.Transport", connection.transport).get_write_buffer_size()


async def send_until_blocked(sender: socket.socket, data: bytes, may_block: Callable[[], bool]) -> int:
    """Send the data repeatedly, at most a thousand times; return the number of bytes that were accepted.

    The sender counts as blocked when nothing more is accepted after ``may_block`` has become true.
    """
    sent, idle = 0, 0
    while idle < IDLE_TURNS and sent < 1000 * len(data):
        try:
            sent += sender.send(data[sent % len(data) :])
            idle = 0
        except BlockingIOError:
            idle += may_block()
        await asyncio.sleep(0)
    return sent


# Addresses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::1:2%eth0", "/fe80:0:0:0:0:0:1:2"),
        ("::ffff:10.0.0.7", "/10.0.0.7"),
        ("2001:db8::ff00:42:8329", "/2001:db8:0:0:0:ff00:42:8329"),
    ],
)
def test_java_address_formats_like_java(host: str, shown: str) -> None:
    assert java_address(host) == shown


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:50000"), ("::1", "[::1]:50000")])
def test_host_and_port_formats_peer(host: str, shown: str) -> None:
    assert host_and_port(host, 50_000) == shown


@async_test
async def test_closed_connection_is_logged_with_peer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_node(tmp_path) as harness:
        MemoryClient(harness.node).feed(bytes(4))
    assert "connection from 127.0.0.1:50000 closed: " in caplog.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request, but this port speaks Kafka's protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP request"),
        (
            bytes.fromhex("16030100c8010000c40303"),
            "this port has no TLS: configure the client with security.protocol=PLAINTEXT or SASL_PLAINTEXT",
        ),
    ],
)
@async_test
async def test_client_of_another_protocol_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes, text: str
) -> None:
    async with running_node(tmp_path) as harness:
        clients = [MemoryClient(harness.node) for _ in range(3)]
        for client in clients:
            client.feed(data)
        assert all(client.is_closed for client in clients)
    assert caplog.text.count(text) == 1


@pytest.mark.parametrize(
    ("key", "version", "text"),
    [
        (9, 99, "OffsetFetch version 99; the versions "),
        (71, 0, "GetTelemetrySubscriptions (API key 71)"),
        (9999, 0, "API key 9999, which Kafka does not have, version 0"),
    ],
)
@async_test
async def test_request_that_is_not_served_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: int, version: int, text: str
) -> None:
    data = struct.pack(">ihhih", 10, key, version, 1, -1)
    async with running_node(tmp_path) as harness:
        for _ in range(3):
            MemoryClient(harness.node).feed(data)
    assert caplog.text.count(f"not served: {text}") == 1
