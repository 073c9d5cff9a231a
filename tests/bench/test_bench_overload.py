"""``callboard bench overload``: the open loop loses no request, and the figures are complete. No time is asserted."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError
from callboard.bench.load_connections import FrameSequence, LoadConnection
from callboard.bench.overload_load import DEAD_MEMBERS, PacedConnection

FRAME = b"\0\0\0\x04beat"
ANSWER = b"\0\0\0\x05reply"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    with client, server:
        client.setblocking(False)
        server.setblocking(False)
        yield client, server


def paced(client: socket.socket) -> PacedConnection:
    load = LoadConnection(client, "load", FrameSequence(FRAME, []), FrameSequence(ANSWER, []))
    return PacedConnection(load, client)


def receive_all(server: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            parts.append(server.recv(1 << 20))
        except BlockingIOError:
            return b"".join(parts)


def test_requests_are_sent_when_they_are_due(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    connection = paced(client)
    connection.begin(rate=10.0, began_s=100.0)
    connection.send_due(100.55)
    assert receive_all(server) == FRAME * 5
    connection.send_due(100.55)
    assert receive_all(server) == b""
    connection.send_due(101.0)
    assert receive_all(server) == FRAME * 5
    assert connection.unanswered == 10


def test_request_that_socket_does_not_take_is_sent_later_and_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    connection = paced(client)
    connection.begin(rate=10_000.0, began_s=0.0)
    connection.send_due(10.0)
    assert connection.count_due(10.0) > 0
    received = receive_all(server)
    for _ in range(10_000):
        connection.flush()
        connection.send_due(10.0)
        received += receive_all(server)
        if not connection.count_due(10.0) and len(received) == 100_000 * len(FRAME):
            break
    assert received == FRAME * 100_000


def test_wrong_answer_ends_the_run(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    connection = paced(client)
    connection.begin(rate=1.0, began_s=0.0)
    connection.send_due(1.0)
    server.send(b"\0\0\0\x05error")
    with pytest.raises(BenchError, match="wrong response"):
        connection.take()


def test_quick_run_has_all_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = bench_main(["overload", "--quick", "--connections", "4", "--json", "result.json"])
    assert code == 0, capsys.readouterr().err
    result = json.loads(Path("result.json").read_text())
    assert all(result[phase]["answered"] > 0 for phase in ("before", "overload", "after"))
    assert result["compared"] == 1
    assert len(result["dead_late_s"]) == DEAD_MEMBERS
    assert all(seconds > -1 for seconds in result["dead_late_s"].values()), "no session ended early"
    assert "overload" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--connections", "3"]])
def test_wrong_option_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["overload", *arguments])
    assert "expected" in capsys.readouterr().err
