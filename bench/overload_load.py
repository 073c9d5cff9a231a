"""The load of ``callboard bench overload``, in a process of its own: members send heartbeats and commits.

First it measures the highest rate in a closed loop. Then each connection sends twice its own rate, whether the server
answers or not. Bytes that the connection does not take wait here, so a request is late but never lost; at the end of
the load those that were not sent are dropped. Every response is compared with the expected bytes: a connection with
another one is not used any more, and counts as a session that has ended.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import Any, NamedTuple, Self

from callboard.bench.group_setup import Member, commit, committed, create_topic, find_coordinator, join_members
from callboard.bench.harness import BenchError, ChildProcess, Server, process_cpu_s
from callboard.bench.load_connections import FRAMES, LoadConnection, run_load
from callboard.bench.load_generator import commit_connection, heartbeat_connection
from callboard.bench.wire import Client

START_TIMEOUT_S = 120.0
IN_FLIGHT = 16
SEND_BUFFER_BYTES = 32 * 1024  # more would only hide how long a request waits
POLL_S = 0.005
CALM_SHARE = 0.1  # of the highest rate, before and after the load
CALM_S = 3.0
RECOVERY_S = 5.0
PHASES = ("before", "overload", "after")
DEAD_MEMBERS = 3
DEAD_HEARTBEATS_PER_S = 2.0


class PacedConnection:
    """A connection that sends ``rate`` requests per second in an open loop."""

    def __init__(self, connection: LoadConnection, sender: socket.socket) -> None:
        self.fileno = connection.fileno
        self.latencies_s: list[float] = []
        self.last_answer_s = 0.0
        self.wrong_answer = ""
        self._connection = connection
        self._socket = sender
        self._unsent = b""
        self._rate = 0.0
        self._began_s = 0.0
        self._sent_before = 0

    def begin(self, rate: float, began_s: float) -> None:
        """Requests are due from ``began_s`` on, at regular times."""
        self._rate, self._began_s = rate, began_s
        self._sent_before = self._connection.sent
        self.latencies_s = []

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send_due(self, now_s: float) -> None:
        """Send the requests that are due, or as much as the socket takes."""
        due = int((now_s - self._began_s) * self._rate) + self._sent_before - self._connection.sent
        while not self._unsent and due > 0:
            count = min(due, FRAMES)
            self._unsent = self._connection.take_requests(count)
            due -= count
            self.flush()

    def flush(self) -> None:
        """Send what is left of a request that was begun."""
        if self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.wrong_answer, sent = str(error), len(self._unsent)
            self._unsent = self._unsent[sent:]

    @property
    def next_due_s(self) -> float:
        """When the next request is due."""
        return self._began_s + (self._connection.sent - self._sent_before + 1) / self._rate

    def count_due(self, now_s: float) -> int:
        """Requests that are due and were not begun."""
        return max(0, int((now_s - self._began_s) * self._rate) + self._sent_before - self._connection.sent)

    def take(self) -> None:
        """Receive answers. The last one is timed from its intended time. Sets ``wrong_answer`` if one is wrong."""
        try:
            answered = self._connection.take()
        except (BenchError, OSError) as error:
            self.wrong_answer = str(error)
            return
        if answered:
            self.last_answer_s = time.perf_counter()
            index = self._connection.answered - self._sent_before
            if index > 0:
                self.latencies_s.append(self.last_answer_s - self._began_s - index / self._rate)

    @property
    def unanswered(self) -> int:
        return self._connection.sent - self._connection.answered


class Latencies(NamedTuple):
    """Latencies of one kind of request in one phase, counted from the intended times of the requests."""

    p50_s: float
    p99_s: float
    max_s: float


NO_ANSWERS = Latencies(inf, inf, inf)


class LoadPhase(NamedTuple):
    """One phase. ``late`` requests were due and not begun at its end. ``server_cpu_s``: None without ``/proc``."""

    seconds: float
    answered: int
    late: int
    heartbeats: Latencies
    commits: Latencies
    server_cpu_s: float | None

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "heartbeats": self.heartbeats._asdict(), "commits": self.commits._asdict()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LoadPhase:
        latencies = {name: Latencies(**values[name]) for name in ("heartbeats", "commits")}
        return cls(**{**values, **latencies})


class OverloadLoadResult(NamedTuple):
    """``closed_rate``: requests per second in the closed loop; ``closed_cpu_s``: the server's CPU time of one.

    ``backlog``: requests without an answer at the end of the load. ``drained_s``: from then to the last answer; -1 if
    that took longer than ``RECOVERY_S``.
    ``dead_last_s``: the time of the last answer of each member that then sent nothing more, by ``time.perf_counter``.
    ``wrong_answers``: what was wrong, of each connection that got another response than expected. ``compared``: last
    acknowledged commits that were read back; ``lost_commits``: those that are not there.
    """

    closed_rate: float
    closed_cpu_s: float | None
    before: LoadPhase
    overload: LoadPhase
    after: LoadPhase
    backlog: int
    drained_s: float
    dead_last_s: dict[str, float]
    wrong_answers: list[str]
    compared: int
    lost_commits: list[str]

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), **{name: getattr(self, name).to_json() for name in PHASES}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> OverloadLoadResult:
        return cls(**{**values, **{name: LoadPhase.from_json(values[name]) for name in PHASES}})


class OverloadProcess(ChildProcess):
    """The process, as seen by its parent. Its members have joined when it is constructed."""

    def __init__(self, server: Server, connections: int, closed_s: float, seconds: float, session_ms: int) -> None:
        arguments = [server.address, "--server-pid", str(server.pid)]
        arguments += ["--connections", str(connections), "--closed-seconds", str(closed_s)]
        arguments += ["--seconds", str(seconds), "--session-ms", str(session_ms)]
        super().__init__(["-m", "callboard.bench.overload_load", *arguments], "the process that sends requests")
        try:
            self.dead_groups: list[str] = json.loads(self.read_line(START_TIMEOUT_S))["dead_groups"]
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def result(self, timeout_s: float) -> OverloadLoadResult | None:
        """The result; None if there is none after ``timeout_s``. Raises BenchError if the process has failed."""
        if not self.has_output(timeout_s):
            return None
        answer = json.loads(self.read_line(START_TIMEOUT_S))
        if "error" in answer:
            raise BenchError(answer["error"])
        return OverloadLoadResult.from_json(answer)


class Load:
    """All connections: heartbeats on three of four, commits on the others, and members that will die."""

    def __init__(self, clients: Sequence[Client], dead: Sequence[Client], session_ms: int, server_pid: int) -> None:
        self.server_pid = server_pid
        self.clients = clients
        self.members = _join(clients, [f"load-{index:03d}" for index in range(len(clients))], session_ms)
        self.dead_members = _join(dead, [f"dead-{index}" for index in range(len(dead))], session_ms)
        self.loads = [
            (commit_connection if _commits(index) else heartbeat_connection)(client, member)
            for index, (client, member) in enumerate(zip(clients, self.members, strict=True))
        ]
        self.connections = _paced(self.loads, clients)
        pairs = zip(dead, self.dead_members, strict=True)
        self.dead = _paced([heartbeat_connection(client, member) for client, member in pairs], dead)

    @property
    def working(self) -> list[PacedConnection]:
        """The connections that got no wrong answer."""
        return [connection for connection in self.connections if not connection.wrong_answer]

    def run(self, closed_s: float, seconds: float) -> OverloadLoadResult:
        rates, closed_cpu_s = self._closed_loop(closed_s)
        calm = [rate * CALM_SHARE for rate in rates]
        for connection in self.dead:
            connection.begin(DEAD_HEARTBEATS_PER_S, time.perf_counter())
        before = self._phase(calm, CALM_S, self.dead)
        overload = self._phase([rate * 2 for rate in rates], seconds, self.dead[1:])
        backlog = sum(connection.unanswered for connection in self.working)
        drained_s = self._rest(time.perf_counter())
        after = self._phase(calm, CALM_S, ())
        for connection in self.working:
            self._finish(connection)
        names = [member.group_id for member in self.dead_members]
        dead_last_s = {name: each.last_answer_s for name, each in zip(names, self.dead, strict=True)}
        wrong_answers = [each.wrong_answer for each in (*self.connections, *self.dead) if each.wrong_answer]
        result = sum(rates), closed_cpu_s, before, overload, after, backlog, drained_s, dead_last_s, wrong_answers
        return OverloadLoadResult(*result, *self._verify())

    def _closed_loop(self, seconds: float) -> tuple[list[float], float | None]:
        """The highest rate of each connection, and the server's CPU time of a request."""
        answered = [load.answered for load in self.loads]
        result = run_load(self.loads, IN_FLIGHT, seconds, partial(process_cpu_s, self.server_pid))
        for client in self.clients:
            client.socket.setblocking(False)
        counts = [load.answered - before for load, before in zip(self.loads, answered, strict=True)]
        cpu_s = None if result.server_cpu_s is None else result.server_cpu_s / result.answers
        return [count / result.elapsed_s for count in counts], cpu_s

    def _phase(self, rates: Sequence[float], seconds: float, dead: Sequence[PacedConnection]) -> LoadPhase:
        """Send for ``seconds``. Each of the ``dead`` sends until its own share of the time is over."""
        began_s, cpu_s = time.perf_counter(), process_cpu_s(self.server_pid)
        answered = sum(load.answered for load in self.loads)
        for connection, rate in zip(self.connections, rates, strict=True):
            connection.begin(rate, began_s)
        while (now_s := time.perf_counter()) < began_s + seconds:
            alive = [each for index, each in enumerate(dead) if now_s < began_s + seconds * (index + 1) / 4]
            for connection in (*self.working, *alive):
                connection.flush()
                connection.send_due(now_s)
            self._receive(self._pause_s(now_s))
        heartbeats = _latencies([each for index, each in enumerate(self.connections) if not _commits(index)])
        commits = _latencies([each for index, each in enumerate(self.connections) if _commits(index)])
        late = sum(connection.count_due(now_s) for connection in self.working)
        total = sum(load.answered for load in self.loads) - answered
        cpu_after_s = process_cpu_s(self.server_pid)
        used_s = None if cpu_s is None or cpu_after_s is None else cpu_after_s - cpu_s
        return LoadPhase(now_s - began_s, total, late, heartbeats, commits, used_s)

    def _pause_s(self, now_s: float) -> float:
        """How long no request is due. A longer wait would be measured as latency."""
        next_s = min((each.next_due_s for each in self.working if not each.has_unsent), default=now_s + POLL_S)
        return min(max(next_s - now_s, 0.0), POLL_S)

    def _rest(self, ended_s: float) -> float:
        """Send nothing new for ``RECOVERY_S``. Returns when all was answered, in seconds from the end of the load."""
        drained_s = None
        while (now_s := time.perf_counter()) < ended_s + RECOVERY_S or (drained_s is None and now_s < ended_s + 60):
            for connection in self.working:
                connection.flush()
            self._receive(POLL_S)
            is_drained = not any(connection.unanswered for connection in self.working)
            if is_drained and drained_s is None:
                drained_s = time.perf_counter() - ended_s
            if drained_s is None and now_s >= ended_s + RECOVERY_S:
                break
        return -1.0 if drained_s is None else drained_s

    def _receive(self, timeout_s: float) -> None:
        connections = [*self.working, *(each for each in self.dead if not each.wrong_answer)]
        for connection in select.select(connections, (), (), timeout_s)[0]:
            connection.take()

    def _finish(self, connection: PacedConnection) -> None:
        """Receive the last answers."""
        give_up_s = time.perf_counter() + 60.0
        while connection.unanswered and not connection.wrong_answer and time.perf_counter() < give_up_s:
            connection.flush()
            self._receive(POLL_S)
        if connection.unanswered and not connection.wrong_answer:
            raise BenchError(f"{connection.unanswered} requests have no answer a minute after the load")

    def _verify(self) -> tuple[int, list[str]]:
        """Compare the committed offset of each member that commits with its last acknowledged commit."""
        compared, lost = 0, []
        for index, (client, member, load) in enumerate(zip(self.clients, self.members, self.loads, strict=True)):
            if _commits(index) and not self.connections[index].wrong_answer:
                client.socket.settimeout(START_TIMEOUT_S)
                offset = committed(client, member)
                if offset != load.answered - 1:
                    lost.append(f"{member.group_id!r} committed {load.answered - 1}, the server has {offset}")
                compared += 1
        return compared, lost


def _commits(index: int) -> bool:
    """Whether a connection commits. The others send heartbeats."""
    return index % 4 == 3


def _latencies(connections: Sequence[PacedConnection]) -> Latencies:
    ordered = sorted(latency for connection in connections for latency in connection.latencies_s)
    if not ordered:
        return NO_ANSWERS
    return Latencies(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])


def _paced(loads: Sequence[LoadConnection], clients: Sequence[Client]) -> list[PacedConnection]:
    for client in clients:
        client.socket.setblocking(False)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return [PacedConnection(load, client.socket) for load, client in zip(loads, clients, strict=True)]


def _join(clients: Sequence[Client], group_ids: Sequence[str], session_ms: int) -> list[Member]:
    topic = create_topic(clients[0], len(clients))
    for group_id in group_ids:
        find_coordinator(clients[0], group_id)
    members = join_members(clients, group_ids, topic, session_ms)
    for client, member in zip(clients, members, strict=True):
        commit(client, member, 0)
    return members


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.bench.overload_load")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--server-pid", type=int, metavar="N", required=True, help="process whose CPU time is read")
    parser.add_argument("--connections", type=int, metavar="N", required=True)
    parser.add_argument("--closed-seconds", type=float, metavar="SECONDS", required=True)
    parser.add_argument("--seconds", type=float, metavar="SECONDS", required=True)
    parser.add_argument("--session-ms", type=int, metavar="N", required=True)
    options = parser.parse_args(argv)
    try:
        result = _run(options)
    except (BenchError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps(result.to_json()), flush=True)
    return 0


def _run(options: argparse.Namespace) -> OverloadLoadResult:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(options.address)) for _ in range(options.connections)]
        dead = [stack.enter_context(Client(options.address)) for _ in range(DEAD_MEMBERS)]
        load = Load(clients, dead, options.session_ms, options.server_pid)
        gc.disable()  # there are no reference cycles, and a pause would be attributed to the server
        print(json.dumps({"dead_groups": [member.group_id for member in load.dead_members]}), flush=True)
        return load.run(options.closed_seconds, options.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
