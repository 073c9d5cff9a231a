"""``callboard bench server --tail``: the names and times of what holds an event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from functools import partial
from pathlib import Path

import pytest

from callboard.bench.__main__ import main as bench_main
from callboard.bench.server import REQUESTS
from callboard.bench.tail import parse_tail
from callboard.bench.timed_loop import (
    LATE_TIMER,
    Hold,
    HoldTimes,
    callback_name,
    measure_collections,
    measure_loop,
    measure_protocol,
    measure_waits,
)

MS = 1_000_000


class Protocol(asyncio.Protocol):
    """Closes its connection when it has received something."""

    received = b""
    is_closed = False
    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        time.sleep(0.001)
        type(self).received += data
        self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        type(self).is_closed = True


def hold_of(times: HoldTimes, name: str) -> Hold:
    return next(Hold(**hold) for hold in times.take()["holds"] if hold["name"] == name)


def test_longest_calls_are_kept_by_name() -> None:
    times = HoldTimes()
    for name, elapsed_ns, cpu_ns in [("a", 2 * MS, 0), ("b", 3 * MS, 2 * MS), ("a", 4 * MS, 5), ("c", MS // 20, 0)]:
        times.add(lambda name=name: name, elapsed_ns, cpu_ns, 3 * MS)  # type: ignore[misc]
    report = times.take()
    assert report["callbacks"] == 4
    assert [Hold(**hold) for hold in report["holds"]] == [
        Hold("a", 4 * MS, 5, 2, 0, 3 * MS),
        Hold("b", 3 * MS, 2 * MS, 1, 1, 3 * MS),
    ]
    assert times.take() == {"callbacks": 0, "holds": []}


def test_name_of_a_short_callback_is_not_made() -> None:
    HoldTimes().add(lambda: pytest.fail("was called"), 1000, 1000, 1000)


def test_callback_is_named_by_its_class_and_method() -> None:
    assert callback_name(Protocol().data_received) == "Protocol.data_received"
    assert callback_name(partial(partial(Protocol().data_received, b""), 1)) == "Protocol.data_received"
    assert callback_name(hold_of) == "hold_of"


def test_callbacks_of_a_loop_are_measured_with_their_results_and_errors() -> None:
    times, ran = HoldTimes(), []

    def sleep(name: str) -> None:
        time.sleep(0.001)
        ran.append(name)

    async def sleeping_task() -> str:
        time.sleep(0.001)
        return "done"

    async def run(loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(sleep, "soon")
        loop.call_later(0.001, sleep, "later")
        assert await loop.create_task(sleeping_task()) == "done"
        server = await loop.create_server(Protocol, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello")
        while not Protocol.is_closed or len(ran) < 2:
            await asyncio.sleep(0.001)
        writer.close()
        await writer.wait_closed()
        server.close()

    loop = asyncio.new_event_loop()
    try:
        measure_loop(loop, times)
        loop.run_until_complete(run(loop))
    finally:
        loop.close()
    names = {hold["name"]: hold for hold in times.take()["holds"]}
    assert (sorted(ran), Protocol.received) == (["later", "soon"], b"hello")
    assert all(any(part in name for name in names) for part in ("sleep", "sleeping_task", "Protocol.data_received"))
    assert names["Protocol.data_received"]["longest_ns"] >= MS


def test_timer_is_late_while_a_callback_holds_the_loop() -> None:
    times = HoldTimes()

    async def hold() -> None:
        await asyncio.sleep(0)
        end_ns = time.perf_counter_ns() + 10 * MS
        while time.perf_counter_ns() < end_ns:
            pass
        while not (holds := times.take()["holds"]):
            await asyncio.sleep(0.001)
        assert holds[0]["name"] == LATE_TIMER
        assert holds[0]["longest_ns"] >= MS

    with asyncio.Runner() as runner:
        measure_waits(runner.get_loop(), times)
        runner.run(asyncio.wait_for(hold(), 60))


def test_protocol_is_measured_once() -> None:
    class Once(asyncio.Protocol):
        def data_received(self, data: bytes) -> None: ...

    times = HoldTimes()
    for _ in range(2):
        measure_protocol(Once, times)
    Once().data_received(b"")
    assert times.take()["callbacks"] == 1


def test_garbage_collection_is_measured() -> None:
    times, before = HoldTimes(), list(gc.callbacks)
    measure_collections(times)
    try:
        gc.collect()
    finally:
        gc.callbacks[:] = before
    assert times.take()["callbacks"] >= 1


def test_report_without_holds_has_none() -> None:
    assert parse_tail("commits", 16, '{"callbacks": 7, "holds": []}') == ("commits", 16, 7, [])


def test_tail_of_a_server_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each load reaches the measured loop: connections' callbacks, and actors' turns for commits."""
    monkeypatch.chdir(tmp_path)
    arguments = ["server", "--tail", "--seconds", "0.2", "--connections", "2", "--output", "tail.json"]
    assert bench_main(arguments) == 0, capsys.readouterr().err
    assert "held the loop longest" in capsys.readouterr().out
    result = json.loads((tmp_path / "tail.json").read_text())
    assert [(run["requests"], run["in_flight"]) for run in result["runs"]] == [
        (requests, in_flight) for in_flight in (1, 16) for requests in REQUESTS
    ]
    assert all(run["callbacks"] > 0 for run in result["runs"])


@pytest.mark.parametrize("arguments", [["--tls"], ["--bootstrap-server", "127.0.0.1:9092"]])
def test_tail_of_another_server_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["server", "--tail", *arguments])
    assert "--tail: expected no" in capsys.readouterr().err
