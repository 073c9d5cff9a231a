"""Heartbeats in an open loop, from a process of its own: each has an intended time, whether the server answers or not.

The latency of a heartbeat is the time from its intended time to its answer. So a server that stops for a second is
measured by all heartbeats that were due in this second, not by the one that was in flight. One that has no answer at
the end of the run counts with its age.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self

from callboard.bench.group_setup import create_topic, find_coordinator, join_members
from callboard.bench.harness import BenchError, ChildProcess, quantile
from callboard.bench.load_connections import LoadConnection
from callboard.bench.load_generator import group_names, heartbeat_connection
from callboard.bench.wire import Client

START_TIMEOUT_S = 120.0
DRAIN_S = 120.0  # for the last answers
POLL_S = 0.1


class OpenLoopResult(NamedTuple):
    """``answered`` of ``sent`` heartbeats; latencies in seconds, from the intended times."""

    sent: int
    answered: int
    latency_p50_s: float
    latency_p99_s: float
    latency_max_s: float


class OpenLoopProcess(ChildProcess):
    """The process that sends the heartbeats, as seen by its parent. Its members have joined when it is constructed."""

    def __init__(self, address: str, connections: int, rate: float, seconds: float) -> None:
        arguments = [address, "--connections", str(connections), "--rate", str(rate), "--seconds", str(seconds)]
        super().__init__(["-m", "callboard.bench.open_loop", *arguments], "the process that sends heartbeats")
        self._seconds = seconds
        try:
            self.read_line(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        self.write_line("begin")

    def result(self) -> OpenLoopResult:
        """Wait for the end of the run. Raises BenchError if an answer was wrong."""
        answer = json.loads(self.read_line(self._seconds + DRAIN_S + START_TIMEOUT_S))
        if "error" in answer:
            raise BenchError(answer["error"])
        return OpenLoopResult(**answer)


class OpenLoopConnection:
    """A connection and the intended times of its heartbeats that have no answer."""

    def __init__(self, connection: LoadConnection) -> None:
        self.fileno = connection.fileno
        self.due_times_s: deque[float] = deque()
        self._connection = connection

    def send(self, due_s: float) -> None:
        self._connection.send(1)
        self.due_times_s.append(due_s)

    def take(self) -> list[float]:
        """Receive answers and return their latencies in seconds. Raises BenchError if one is wrong."""
        count = self._connection.take()
        now_s = time.perf_counter()
        return [now_s - self.due_times_s.popleft() for _ in range(count)]


def run_open_loop(
    connections: Sequence[OpenLoopConnection], rate: float, seconds: float, drain_s: float = DRAIN_S
) -> OpenLoopResult:
    """Send ``rate`` heartbeats per second, in turns on all connections, and wait ``drain_s`` for the last answers."""
    started_s = time.perf_counter()
    total, sent = int(rate * seconds), 0
    latencies_s: list[float] = []
    while len(latencies_s) < total and (now_s := time.perf_counter()) < started_s + seconds + drain_s:
        while sent < total and (due_s := started_s + sent / rate) <= now_s:
            connections[sent % len(connections)].send(due_s)
            sent += 1
        wait_s = max(0.0, started_s + sent / rate - now_s) if sent < total else POLL_S
        for connection in select.select(connections, (), (), wait_s)[0]:
            latencies_s += connection.take()
    return _result(sent, latencies_s, [due_s for connection in connections for due_s in connection.due_times_s])


def _result(sent: int, latencies_s: Sequence[float], unanswered_due_s: Sequence[float]) -> OpenLoopResult:
    now_s = time.perf_counter()
    ordered = sorted([*latencies_s, *(now_s - due_s for due_s in unanswered_due_s)])
    if not ordered:
        raise BenchError("no heartbeat was sent; give more --seconds")
    p50_s, p99_s = (quantile(ordered, share) for share in (0.5, 0.99))
    return OpenLoopResult(sent, len(latencies_s), p50_s, p99_s, ordered[-1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.bench.open_loop")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument(
        "--rate", type=float, metavar="N", default=1000.0, help="heartbeats per second, on all connections together"
    )
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=30.0)
    options = parser.parse_args(argv)
    try:
        result = _run(options)
    except (BenchError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps(result._asdict()), flush=True)
    return 0


def _run(options: argparse.Namespace) -> OpenLoopResult:
    """Join, say that all have joined, wait for a line on standard input, and send the heartbeats."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(options.address)) for _ in range(options.connections)]
        connections = _joined_connections(clients)
        gc.disable()  # there are no reference cycles, and a pause would be attributed to the server
        print("joined", flush=True)
        sys.stdin.readline()
        return run_open_loop(connections, options.rate, options.seconds)


def _joined_connections(clients: Sequence[Client]) -> list[OpenLoopConnection]:
    names = group_names(len(clients))
    topic = create_topic(clients[0], len(clients))
    for name in names:
        find_coordinator(clients[0], name)
    members = join_members(clients, names, topic)
    return [
        OpenLoopConnection(heartbeat_connection(client, member))
        for client, member in zip(clients, members, strict=True)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
