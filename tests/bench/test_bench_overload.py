"""``callboard bench overload``: the open loop loses no request, the figures are complete, and missed bars fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from callboard.bench import overload
from callboard.bench.__main__ import main as bench_main
from callboard.bench.load_connections import FrameSequence, LoadConnection
from callboard.bench.overload import OverloadResult, bars_of
from callboard.bench.overload_load import (
    DEAD_MEMBERS,
    NO_ANSWERS,
    Latencies,
    LoadPhase,
    OverloadLoadResult,
    PacedConnection,
)

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


def test_wrong_answer_is_kept(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    connection = paced(client)
    connection.begin(rate=1.0, began_s=0.0)
    connection.send_due(1.0)
    server.send(b"\0\0\0\x05error")
    connection.take()
    assert "wrong response" in connection.wrong_answer


def test_closed_connection_is_a_wrong_answer(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    connection = paced(client)
    connection.begin(rate=1.0, began_s=0.0)
    server.close()
    connection.send_due(1.0)
    assert connection.wrong_answer and not connection.has_unsent


# Bars, without a server ----------------------------------------------------------------------------------------------

PHASE = LoadPhase(3.0, 100, 0, Latencies(0.001, 0.002, 0.003), Latencies(0.01, 0.05, 0.1), 1.0)
LOAD = OverloadLoadResult(1000.0, None, PHASE, PHASE, PHASE, 500, 1.0, {"dead-0": 100.0}, [], 8, [])
RESULT = OverloadResult(LOAD, {"dead-0": 1.0, "dead-1": -0.2}, 100 * 1024 * 1024)


def missed(result: OverloadResult) -> list[str]:
    return [bar.name for bar in bars_of(result) if not bar.is_met]


def with_load(**changes: Any) -> OverloadResult:
    return RESULT._replace(load=LOAD._replace(**changes))


def slow_after(**changes: Any) -> OverloadResult:
    return with_load(after=PHASE._replace(**changes))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (RESULT, []),
        (RESULT._replace(peak_bytes=None), []),
        (with_load(wrong_answers=["load: a wrong response"]), ["sessions"]),
        (RESULT._replace(dead_late_s={"dead-0": -1.5}), ["sessions"]),
        (with_load(lost_commits=["'g' committed 2"]), ["acknowledged"]),
        (RESULT._replace(dead_late_s={"dead-0": 5.1}), ["dead"]),
        (RESULT._replace(dead_late_s={"dead-0": inf}), ["dead"]),
        (slow_after(heartbeats=Latencies(0.001, 0.02, 9.0)), []),
        (slow_after(heartbeats=Latencies(0.001, 0.021, 9.0)), ["p99 of heartbeats"]),
        (slow_after(commits=Latencies(0.001, 0.1, 9.0)), []),
        (slow_after(commits=Latencies(0.001, 0.11, 9.0)), ["p99 of commits"]),
        (slow_after(commits=NO_ANSWERS), ["p99 of commits"]),
        (RESULT._replace(peak_bytes=257 * 1024 * 1024), ["resident"]),
    ],
)
def test_bars_that_are_missed(result: OverloadResult, expected: list[str]) -> None:
    names = missed(result)
    assert len(names) == len(expected)
    assert all(name.startswith(start) for name, start in zip(names, expected, strict=True))


@pytest.mark.parametrize(
    ("result", "quick", "expected"),
    [
        (RESULT, False, 0),
        (slow_after(commits=NO_ANSWERS), False, 1),
        (slow_after(commits=NO_ANSWERS), True, 0),
        (with_load(lost_commits=["'g' committed 2"]), True, 1),
    ],
)
def test_missed_bar_is_the_exit_status(
    result: OverloadResult,
    quick: bool,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(overload, "measure", lambda *_: result)
    assert bench_main(["overload", *(["--quick"] if quick else [])]) == expected
    printed = capsys.readouterr().out
    assert printed.count(" ok ") + printed.count(" missed ") == len(bars_of(result))
    assert (" missed " in printed) == bool(missed(result))


def test_result_is_the_same_after_json() -> None:
    assert OverloadLoadResult.from_json(json.loads(json.dumps(LOAD.to_json()))) == LOAD


def test_quick_run_has_all_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = bench_main(["overload", "--quick", "--connections", "4", "--output", "result.json"])
    assert code == 0, capsys.readouterr().err
    result = json.loads(Path("result.json").read_text())
    assert all(result[phase]["answered"] > 0 for phase in ("before", "overload", "after"))
    assert result["compared"] == 1
    assert len(result["dead_late_s"]) == DEAD_MEMBERS
    assert all(bar["is_met"] for bar in result["bars"] if not bar["is_timed"])
    assert "overload" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--connections", "3"]])
def test_wrong_option_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["overload", *arguments])
    assert "expected" in capsys.readouterr().err
