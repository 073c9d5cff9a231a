"""HTTP clients that send half a request, or too much, or never read, do not use up the server's descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import async_test
from health_helpers import get, serving
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.runtime.node import health as watch
from callboard.runtime.node.connection_limit import HTTP_CONNECTIONS_MAX, HTTP_FILES, RESERVE
from callboard.runtime.node.health import HEADER_BYTES_MAX, Pages

FILES_MAX = 256
PARTITIONS = 4
COMMIT_VERSION = 2


async def empty_page() -> bytes:
    return b""


PAGES = Pages(empty_page, lambda: None)


def send_half_request(port: int) -> socket.socket:
    client_socket = socket.create_connection(("127.0.0.1", port), timeout=30)
    client_socket.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
    return client_socket


def is_closed(client_socket: socket.socket) -> bool:
    """Wait for data or the end of the connection; whether it ended without data."""
    try:
        return client_socket.recv(1) == b""
    except ConnectionError:
        return True


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@async_test
async def test_oldest_unfinished_http_request_is_closed_for_a_new_one() -> None:
    async with serving(PAGES) as port:

        def flood() -> None:
            half: list[socket.socket] = []
            for number in range(3 * HTTP_CONNECTIONS_MAX):
                half.append(send_half_request(port))
                if number >= HTTP_CONNECTIONS_MAX:
                    assert is_closed(half[number - HTTP_CONNECTIONS_MAX])
            assert get(port, "/healthz").status == 200
            for client_socket in half:
                client_socket.close()

        await asyncio.to_thread(flood)


@async_test
async def test_http_connections_take_no_more_descriptors_than_reserved() -> None:
    before = count_open_files()
    async with serving(PAGES) as port:
        half: list[socket.socket] = []

        def flood() -> None:
            half.extend(send_half_request(port) for _ in range(100))
            assert get(port, "/healthz").status == 200

        await asyncio.to_thread(flood)
        assert count_open_files() - before - len(half) <= HTTP_FILES
        for client_socket in half:
            client_socket.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * HEADER_BYTES_MAX, b"431"),
        (b"x" * HEADER_BYTES_MAX, b"431"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"\xff\xfe\r\n\r\n", b"400"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /healthz?x=1 HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\n\n", b"200"),
        (b"GET /\xe9 HTTP/1.1\r\n\r\n", b"404"),
    ],
)
@async_test
async def test_http_request_is_answered_with_its_status(request_bytes: bytes, status: bytes) -> None:
    async with serving(PAGES) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes)
        assert (await reader.readline()).startswith(b"HTTP/1.1 " + status + b" ")
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n"])
@async_test
async def test_http_request_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """The timeout covers the whole request: a further byte does not restart it."""
    monkeypatch.setattr(watch, "REQUEST_TIMEOUT_S", 0.2)
    async with serving(PAGES) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        while True:
            with contextlib.suppress(ConnectionError):
                writer.write(b"X" if sent else b"")
            with contextlib.suppress(TimeoutError):
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(1), 0.02) == b""
                break
        writer.close()


@async_test
async def test_http_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def large_page() -> bytes:
        return b"x" * 50_000_000

    monkeypatch.setattr(watch, "REQUEST_TIMEOUT_S", 0.2)
    before = count_open_files()
    async with serving(Pages(large_page, lambda: None)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client_socket:
            open_files_before = count_open_files()
            client_socket.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            while count_open_files() > open_files_before:
                await asyncio.sleep(0.01)
            monkeypatch.undo()  # a slow machine may need longer for the next request
            assert (await asyncio.to_thread(get, port, "/healthz")).status == 200
    assert count_open_files() <= before + 1


# A server with few descriptors ---------------------------------------------------------------------------------------


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))


@contextlib.contextmanager
def server_with_few_files(folder: Path) -> Iterator[tuple[int, int, Path, subprocess.Popen[bytes]]]:
    """``callboard serve`` with a hard limit of descriptors: its port, its HTTP port, its log, its process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        http_port = listener.getsockname()[1]
    stdout, stderr = folder / "stdout.txt", folder / "stderr.txt"
    command = [sys.executable, "-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data")]
    command += ["--set", f"offsets_topic_num_partitions={PARTITIONS}"]
    command += ["--set", f"transaction_state_log_num_partitions={PARTITIONS}"]
    command += ["--set", "offsets_topic_segment_bytes=2000", "--metrics", f"127.0.0.1:{http_port}", "--topic", "t:3"]
    with stdout.open("wb") as out, stderr.open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, preexec_fn=limit_files)
    try:
        line = wait_until(stdout.read_text, lambda text: "callboard ready" in text, "the ready line")
        yield int(line.split()[3].rpartition(":")[2]), http_port, stderr, process
    finally:
        process.kill()
        process.wait()


def connect(port: int, sent: bytes) -> socket.socket:
    client_socket = socket.create_connection(("127.0.0.1", port), timeout=30)
    with contextlib.suppress(ConnectionError):
        client_socket.sendall(sent)
    return client_socket


def commit(wire: Wire, number: int) -> str:
    """Commit an offset with 1,000 bytes of metadata, so that partitions often roll segments."""
    partition = {"partition_index": number % 3, "committed_offset": number, "committed_metadata": "x" * 1000}
    response = wire.ask(
        "offset_commit",
        COMMIT_VERSION,
        group_id=f"group-{number % 10}",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=-1,
        topics=[{"name": "t", "partitions": [partition]}],
    )
    code: str = response["topics"][0]["partitions"][0]["error_code"]
    return code


def test_commits_during_and_after_a_flood_of_connections(tmp_path: Path) -> None:
    """While both listeners are flooded, an open connection commits and /healthz answers."""
    with server_with_few_files(tmp_path) as (port, http_port, log, _), Wire("127.0.0.1", port) as wire:
        flood: list[socket.socket] = []
        try:
            for number in range(300):
                flood.append(connect(port, b"\0\0"))
                flood.append(connect(http_port, b"GET /metrics HTTP/1.1\r\n"))
                assert commit(wire, number) == "NONE", log.read_text()[-3000:]
            assert get(http_port, "/healthz").status == 200
        finally:
            for client_socket in flood:
                client_socket.close()
        wait_until(lambda: get(http_port, "/readyz").status, lambda status: status == 200, "the server to be ready")
        with Wire("127.0.0.1", port) as new_wire:
            assert commit(new_wire, 1) == "NONE"
        for text in ("failed", "Too many open files"):
            assert text not in log.read_text()


def open_files(process: subprocess.Popen[bytes]) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def test_connections_that_come_all_at_once_take_no_more_descriptors_than_they_may(tmp_path: Path) -> None:
    """The server is stopped while they connect, and then accepts them all in a few iterations of its loop."""
    with server_with_few_files(tmp_path) as (port, _, log, process), Wire("127.0.0.1", port) as wire:
        commit(wire, 0)
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            flood = [connect(port, b"\0\0") for _ in range(600)]
            process.send_signal(signal.SIGCONT)
            maximum = 0
            for number in range(50):
                assert commit(wire, number) == "NONE", log.read_text()[-3000:]
                maximum = max(maximum, open_files(process))
            assert maximum <= FILES_MAX - RESERVE // 2
            for client_socket in flood:
                client_socket.close()
        assert "Too many open files" not in log.read_text()
