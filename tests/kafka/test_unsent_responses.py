"""Clients that do not read their responses, and clients that do not complete their requests."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from harness import HandTimer, MemoryClient, async_test, frame, framed, join_and_sync, join_values, running_node
from peers.wire import encode

from callboard.runtime.common.shared_bytes import SharedBytes
from callboard.runtime.kafka.connections.connection_phase import Phase
from callboard.runtime.kafka.connections.idle import IdleConnectionCloser
from callboard.runtime.kafka.connections.output import WRITE_BYTES

IDLE_MS = 600_000
LARGE = 3 * WRITE_BYTES
MAX_BYTES = 2 * LARGE + 3 * WRITE_BYTES
KILOBYTES = 1024


async def parked(client: MemoryClient) -> None:
    """Let the client have an unanswered request; ``answer`` answers it."""
    client.feed(frame("join_group", 3, **join_values("parked")))
    while not client.connection.requests.calls:
        await asyncio.sleep(0)


def answer(client: MemoryClient, body: bytes | SharedBytes) -> None:
    [call] = client.connection.requests.calls
    call.respond_with_bytes(body)
    client.connection.send_responses()


def half_frame(size_bytes: int) -> bytes:
    """A request of which the last byte is missing."""
    request = encode("api_versions", 0, {})
    return framed(request + bytes(size_bytes - len(request)))[:-1]


@pytest.mark.parametrize("is_shared", [True, False])
@async_test
async def test_large_response_is_written_in_pieces(tmp_path: Path, is_shared: bool) -> None:
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        client = MemoryClient(harness.node)
        await parked(client)
        client.feed(frame("api_versions", 0, correlation_id=8))
        body = bytes(range(256)) * (LARGE // 256)
        answer(client, SharedBytes([body[:1000], body[1000:]]) if is_shared else body)
        assert len(client.transport.written) == WRITE_BYTES
        assert client.is_paused
        [first, second] = await client.answered(2)
        assert (first[4:], second[:4]) == (body, bytes((0, 0, 0, 8)))
        assert not client.is_paused
        assert harness.node.services.buffers.unsent.total_bytes == 0
        client.close()


@async_test
async def test_response_of_paused_transport_waits_and_is_counted(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        client, unsent = MemoryClient(harness.node), harness.node.services.buffers.unsent
        await parked(client)
        client.connection.pause_writing()
        answer(client, bytes(LARGE))
        assert not client.transport.written
        assert LARGE < unsent.total_bytes <= LARGE + 2 * WRITE_BYTES
        client.connection.resume_writing()
        while unsent.total_bytes:
            await asyncio.sleep(0)
        assert [len(response) for response in client.answers()] == [LARGE + 4]
        client.close()


@async_test
async def test_stop_sends_the_rest_of_a_large_response(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        client = MemoryClient(harness.node)
        await parked(client)
        answer(client, bytes(LARGE))
        client.connection.stop_reading()
        assert client.connection.phase is Phase.DRAINING
        client.connection.close()
        assert [len(response) for response in client.answers()] == [LARGE + 4]
        client.close()


@async_test
async def test_draining_connection_closes_after_the_rest_of_a_large_response(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        client = MemoryClient(harness.node)
        await parked(client)
        answer(client, bytes(LARGE))
        client.connection.stop_reading()
        while not client.is_closed:
            await asyncio.sleep(0)
        assert client.connection.phase is Phase.CLOSING
        assert [len(response) for response in client.answers()] == [LARGE + 4]
        client.close()


@async_test
async def test_client_that_reads_nothing_for_longest_is_closed_above_limit(tmp_path: Path) -> None:
    settings = {"queued_max_response_bytes": MAX_BYTES, "group_initial_rebalance_delay_ms": 60_000}
    async with running_node(tmp_path, None, **settings) as harness:
        clients = [MemoryClient(harness.node) for _ in range(3)]
        for client in clients:
            await parked(client)
            client.connection.pause_writing()
        clients[0].connection.resume_writing()  # has read something since
        clients[0].connection.pause_writing()
        for client in clients:
            answer(client, bytes(LARGE))
        assert [client.is_closed for client in clients] == [False, True, False]
        assert harness.node.services.buffers.unsent.total_bytes <= MAX_BYTES
        for client in clients:
            client.close()
        assert harness.node.services.buffers.unsent.total_bytes == 0


@async_test
async def test_client_that_does_not_read_is_aborted_after_idle_time(tmp_path: Path) -> None:
    """Although it has an unanswered request, and although its connection is closing already."""
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        timer = HandTimer()
        IdleConnectionCloser(harness.node.connections, IDLE_MS, timer.later).start()
        pending, closing, reader = (MemoryClient(harness.node) for _ in range(3))
        for client in (pending, reader):
            await parked(client)
        pending.connection.pause_writing()
        closing.connection.close()
        closing.transport.is_closed = False  # to see that it is aborted
        timer.advance(IDLE_MS - 1)
        assert not (pending.is_closed or closing.is_closed)
        timer.advance(1 + IDLE_MS // 4)
        assert (pending.is_closed, closing.is_closed, reader.is_closed) == (True, True, False)
        for client in (pending, closing, reader):
            client.close()


@async_test
async def test_oldest_half_frame_is_closed_above_limit(tmp_path: Path) -> None:
    size_bytes = 400 * KILOBYTES
    async with running_node(tmp_path, queued_max_request_bytes=1000 * KILOBYTES) as harness:
        clients, unread = [MemoryClient(harness.node) for _ in range(3)], harness.node.services.buffers.unread
        for client in clients:
            client.feed(half_frame(size_bytes))
        assert [client.is_closed for client in clients] == [True, False, False]
        assert 2 * size_bytes <= unread.total_bytes <= 2 * size_bytes + 100
        clients[1].feed(b"\0")
        await clients[1].answered(1)
        assert unread.total_bytes <= size_bytes + 100
        for client in clients:
            client.close()
        assert unread.total_bytes == 0


@async_test
async def test_queued_requests_are_counted_until_they_are_handled(tmp_path: Path) -> None:
    size_bytes = 100 * KILOBYTES
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=60_000) as harness:
        client, unread = MemoryClient(harness.node), harness.node.services.buffers.unread
        await parked(client)
        client.feed(half_frame(size_bytes) + b"\0")
        assert size_bytes <= unread.total_bytes <= size_bytes + 100
        answer(client, b"")
        await client.answered(2)
        assert unread.total_bytes == 0
        client.close()


@async_test
async def test_client_that_does_not_read_over_tcp_holds_bounded_bytes(tmp_path: Path) -> None:
    """Each of its requests has a response of 200 kB."""
    async with running_node(tmp_path) as harness:
        await join_and_sync(await harness.connect(), "g")
        request = frame("describe_groups", 5, groups=["x" * 2000] * 100, include_authorized_operations=False)
        with socket.create_connection(("127.0.0.1", harness.port)) as client:
            client.setblocking(False)
            for _ in range(200):
                try:
                    client.send(request)
                except BlockingIOError:
                    break
                await asyncio.sleep(0.001)
            assert harness.node.services.buffers.unsent.total_bytes <= 4 * WRITE_BYTES
            assert await (await harness.connect()).ask("api_versions", 0)
