"""``callboard bench hostile``: how long heartbeats wait while another client sends very large requests.

50 connections send 1,000 heartbeats per second, in an open loop from a process of their own. Meanwhile one client sends
one large request (``hostile_requests.py``), and sends it again as soon as it is answered or its connection is closed.
Each row has a server of its own. The first row has no such client.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from callboard.bench.discarding_connection import DiscardingConnection
from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    peak_resident_bytes,
    print_table,
    process_cpu_s,
    some_of,
    write_json,
)
from callboard.bench.hostile_requests import ALL_REQUESTS, HostileRequest
from callboard.bench.open_loop import OpenLoopProcess, OpenLoopResult

PURPOSE = "Measure how long heartbeats wait while another client sends very large requests."
CONNECTIONS = 50
HEARTBEATS_PER_S = 1000
SECONDS = 30.0
QUICK_SECONDS = 0.5
QUICK_DIVISOR = 100
ACCEPTED_P99_MS = 20.0
ACCEPTED_LONGEST_MS = 100.0
RECONNECT_PAUSE_S = 0.001
QUIET = "without"

COLUMNS = (
    *("hostile request", "items", "kB", "answered", "closed", "answer\nkB"),
    *("p50\nms", "p99\nms", "longest\nms", "server\nCPU", "peak\nMB", ""),
)


class AttackResult(NamedTuple):
    """What the hostile client got: requests that were answered, and connections that were closed instead.

    ``answer_bytes``: of all answers.
    """

    request_bytes: int = 0
    answered: int = 0
    closed: int = 0
    answer_bytes: int = 0


class Row(NamedTuple):
    """One line of the table. ``server_cpu_share``: of one core. None without ``/proc``."""

    name: str
    title: str
    items: str
    attack: AttackResult
    heartbeats: OpenLoopResult
    server_cpu_share: float | None
    peak_bytes: int | None

    @property
    def is_accepted(self) -> bool:
        heartbeats = self.heartbeats
        return (
            heartbeats.latency_p99_s * 1000 <= ACCEPTED_P99_MS
            and heartbeats.latency_max_s * 1000 <= ACCEPTED_LONGEST_MS
            and heartbeats.answered == heartbeats.sent
        )


class HostileClient:
    """Sends one kind of request again and again, one at a time on each connection. ``result``: the counts so far."""

    def __init__(self, address: str, request: HostileRequest, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._frame = request.make(request.items, 0)
        self._is_always_the_same = self._frame == request.make(request.items, 1)
        self.result = AttackResult(request_bytes=len(self._frame))
        self._address = address
        self._request = request
        self._clock_s = clock_s
        self._turn = 0

    def run(self, seconds: float) -> AttackResult:
        """Send until ``seconds`` have passed. A request that is not answered by then counts as neither."""
        end_s = self._clock_s() + seconds
        while self._clock_s() < end_s:
            try:
                self._use_connections(end_s)
            except TimeoutError:
                break
            except ConnectionRefusedError as error:
                raise BenchError(f"cannot connect to {self._address}: {error}") from None
            except OSError:
                self.result = self.result._replace(closed=self.result.closed + 1)
                time.sleep(RECONNECT_PAUSE_S)
        return self.result

    def _use_connections(self, end_s: float) -> None:
        with ExitStack() as stack:
            count = self._request.connections
            connections = [stack.enter_context(DiscardingConnection(self._address)) for _ in range(count)]
            while (left_s := end_s - self._clock_s()) > 0:
                for connection in connections:
                    connection.socket.settimeout(left_s)
                self.ask(*connections)
                if self._request.answer == "http":  # the server closes the connection after its answer
                    break

    def ask(self, *connections: DiscardingConnection) -> None:
        """Send the next request on each connection, and read the answers. Raises OSError."""
        self._turn += 1
        if not self._is_always_the_same:
            self._frame = self._request.make(self._request.items, self._turn)
        for connection in connections:
            connection.send(self._frame)
        for connection in connections:
            answer_bytes = self._discard_answer(connection)
            result = self.result
            self.result = result._replace(answered=result.answered + 1, answer_bytes=result.answer_bytes + answer_bytes)

    def _discard_answer(self, connection: DiscardingConnection) -> int:
        if self._request.answer == "http":
            return connection.discard_all()
        frames = self._request.items if self._request.answer == "frame per item" else 1
        return sum(connection.discard_answer() for _ in range(frames))


# Measuring -----------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON.

    1 if a heartbeat's answer was wrong, a server did not run, or a row misses the aim. The last does not count in a
    quick run, and when the row without a hostile client misses it too: then other programs use the machine.
    """
    options = _options(argv)
    rows = []
    try:
        for request in (None, *options.requests):
            rows.append(measure(request, options.seconds))
            print(f"hostile: {_progress(rows[-1])}", file=sys.stderr)
    except (BenchError, OSError) as error:
        print(f"hostile: {error}", file=sys.stderr)
        return 1
    _show(rows, options.seconds)
    if options.output is not None:
        write_json(options.output, {"bench": "hostile", "machine": machine(), "rows": [_to_json(row) for row in rows]})
    return int(not options.quick and is_missed(rows))


def is_missed(rows: Sequence[Row]) -> bool:
    """Whether a hostile request has delayed heartbeats by more than is accepted, on a machine that was quiet."""
    is_quiet = all(row.is_accepted for row in rows if row.name == QUIET)
    return is_quiet and not all(row.is_accepted for row in rows)


def measure(request: HostileRequest | None, seconds: float) -> Row:
    """Heartbeats for ``seconds`` while ``request`` is sent. None: without a hostile client. Raises BenchError."""
    metrics_address = f"127.0.0.1:{free_port()}"
    with (
        _server(request, metrics_address) as server,
        OpenLoopProcess(server.address, CONNECTIONS, HEARTBEATS_PER_S, seconds) as heartbeats,
    ):
        if request is not None and request.prepare is not None:
            request.prepare(server.address, request.items)
        cpu_s, started_s = process_cpu_s(server.pid), time.perf_counter()
        heartbeats.begin()
        attack = AttackResult()
        if request is not None:
            address = metrics_address if request.answer == "http" else server.address
            attack = HostileClient(address, request).run(seconds)
        result = heartbeats.result()
        elapsed_s, cpu_after_s = time.perf_counter() - started_s, process_cpu_s(server.pid)
        share = None if cpu_s is None or cpu_after_s is None else (cpu_after_s - cpu_s) / elapsed_s
        peak_bytes = peak_resident_bytes(server.pid)
    if request is None:
        return Row(QUIET, QUIET, "", attack, result, share, peak_bytes)
    items = f"{request.items:,} {request.item_name}"
    return Row(request.name, request.title, items, attack, result, share, peak_bytes)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def _server(request: HostileRequest | None, metrics_address: str) -> Iterator[Server]:
    """``callboard serve`` on a folder in the current folder: that of temporary files may be in memory."""
    with tempfile.TemporaryDirectory(prefix="bench-hostile-", dir=Path.cwd()) as folder:
        data = Path(folder) / "data"
        if request is not None and request.fill_folder is not None:
            request.fill_folder(data)
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data", str(data), "--sync", "always"]
        arguments += ["--set", "group_initial_rebalance_delay_ms=0", "--metrics", metrics_address]
        with Server(["-m", "callboard", *arguments], "callboard serve") as server:
            yield server


# Output --------------------------------------------------------------------------------------------------------------


def _show(rows: Sequence[Row], seconds: float) -> None:
    notes = [
        f"{CONNECTIONS} connections send {HEARTBEATS_PER_S:,} heartbeats per second for {seconds:g} s, in an open loop "
        "from another process; times from the intended time of each",
        "each hostile request is sent again as soon as it is answered or its connection is closed; a row without "
        "either was not answered in the whole time",
        "the rows of the same title: above the limit of items, and the largest request within it",
        "answer kB: the mean size; CPU: of one core; peak MB: resident memory of the server",
        f"accepted: p99 at most {ACCEPTED_P99_MS:.0f} ms, the longest at most {ACCEPTED_LONGEST_MS:.0f} ms",
    ]
    above = [row.name for row in rows if not row.is_accepted and row.name != QUIET]
    notes.append(f"above it: {', '.join(above)}" if above else "no hostile request is above it")
    if any(not row.is_accepted for row in rows if row.name == QUIET):
        notes.append("above it without a hostile client too: the machine is not quiet, so the other rows show nothing")
    print_table("Heartbeats beside a hostile client", COLUMNS, [_cells(row) for row in rows], notes)


def _cells(row: Row) -> tuple[str, ...]:
    attack, heartbeats = row.attack, row.heartbeats
    return (
        row.title,
        row.items,
        f"{attack.request_bytes / 1e3:,.1f}",
        f"{attack.answered:,}",
        f"{attack.closed:,}",
        f"{attack.answer_bytes / attack.answered / 1e3:,.1f}" if attack.answered else "",
        *(
            f"{latency_s * 1e3:,.1f}"
            for latency_s in (heartbeats.latency_p50_s, heartbeats.latency_p99_s, heartbeats.latency_max_s)
        ),
        "" if row.server_cpu_share is None else f"{row.server_cpu_share:.0%}",
        "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.0f}",
        "ok" if row.is_accepted else "missed",
    )


def _progress(row: Row) -> str:
    heartbeats = row.heartbeats
    return (
        f"{row.name}: {row.attack.answered:,} answered, {row.attack.closed:,} closed; heartbeats p99 "
        f"{heartbeats.latency_p99_s * 1e3:,.1f} ms, longest {heartbeats.latency_max_s * 1e3:,.1f} ms"
    )


def _to_json(row: Row) -> dict[str, object]:
    return {
        **row._asdict(),
        "attack": row.attack._asdict(),
        "heartbeats": row.heartbeats._asdict(),
        "is_accepted": row.is_accepted,
    }


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [request.name for request in ALL_REQUESTS]
    parser = argparse.ArgumentParser(prog="callboard bench hostile", description=PURPOSE)
    parser.add_argument("--only", type=some_of(names), metavar="A,B", help=f"some of: {', '.join(names)}")
    parser.add_argument(
        "--seconds", type=float, metavar="SECONDS", default=SECONDS, help=f"seconds of each row (default {SECONDS:.0f})"
    )
    parser.add_argument("--quick", action="store_true", help="0.5 s each and a hundredth of the items, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    options.requests = [request for request in ALL_REQUESTS if options.only is None or request.name in options.only]
    if options.quick:
        options.seconds = QUICK_SECONDS
        options.requests = [
            request._replace(items=max(1, request.items // QUICK_DIVISOR)) for request in options.requests
        ]
    if options.seconds <= 0:
        parser.error(f"--seconds {options.seconds:g}: expected more than 0")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
