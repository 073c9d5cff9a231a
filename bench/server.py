"""``callboard bench server``: the cost of a request to the server, compared with a bare server.

Measures heartbeats, of the classic and of the consumer protocol, and durable commits per second over TCP, with one
request in flight on each connection and pipelined. The bare server (``bare_server.py``) decodes each request with the
same parser and event loop, and responds with prepared bytes; so the ratio to it is the cost of the coordinator,
independent of the machine. Rounds of both servers are interleaved, and the ratio is computed in each round. With
``--tls`` both are measured with TLS, too, the bare server with that of the event loop. ``--tail`` measures what holds
the event loop instead (``tail.py``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from callboard.actors.javahash import offsets_partition
from callboard.bench.group_setup import commit, create_topic, find_coordinator, join_members
from callboard.bench.harness import (
    BenchError,
    MedianAndSpread,
    Server,
    add_output,
    machine,
    median_or_none,
    print_table,
    resident_bytes,
    summarise,
    write_json,
)
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, CONSUMER_HEARTBEATS, HEARTBEATS, LoadProcess, group_names
from callboard.bench.serving import callboard_server
from callboard.bench.tail import LISTED, run_tail, show_tail, tail_json
from callboard.bench.tls_files import make_tls_files
from callboard.bench.wire import Client

PIPELINED = 16
WARM_UP_S = 0.3
QUICK_S = 0.5
OFFSETS_PARTITIONS = 50  # the default of Kafka and of Callboard
MEMORY_GROUPS = 1000
MEMORY_CONNECTIONS = 50
READY_RUNS = 7
UNDISTURBED_SHARE = 0.9  # of a core
LEAN_SHARE = 0.7  # of the server's CPU time per request; above it a note is printed
BARE, CALLBOARD = "bare", "callboard"
WITH_TLS = " TLS"
"""After the name of a server: the bare one has the event loop's TLS."""
REQUESTS = (HEARTBEATS, CONSUMER_HEARTBEATS, COMMITS)
PURPOSE = "Measure heartbeats and durable commits per second over TCP, compared with a minimal server."

COLUMNS = (
    "server",
    "requests",
    "load",
    "requests/s",
    "spread",
    "of\nbare",
    "of\nheartbeats",
    "p50\nms",
    "p99\nms",
    "server\nus/req",
    "load\nus/req",
    "server\nCPU",
    "load\nCPU",
    "ready\nper poll",
    "server\nMB",
)


class Latency(NamedTuple):
    p50: float
    p99: float


class Row(NamedTuple):
    """One line of the table: medians over the rounds. Ratios are medians of each round's ratio."""

    server: str
    requests: str
    connections: int
    in_flight: int
    requests_per_s: float
    spread: float | None
    of_bare: float | None
    of_heartbeats: float | None
    latency_ms: Latency
    server_cpu_us: float | None
    load_cpu_us: float
    server_cpu_share: float | None
    load_cpu_share: float
    ready_each_poll: float
    resident_mb: float | None


class MeasuredServer(NamedTuple):
    """A server under load. ``pid`` is None for a server that this process did not start."""

    name: str
    load: LoadProcess
    pid: int | None


class Round(NamedTuple):
    """One run, with the server's resident memory after it."""

    outcome: LoadResult
    resident: int | None

    @property
    def rate(self) -> float:
        return self.outcome.answers / self.outcome.elapsed_s


Rounds = dict[tuple[str, str, int], list[Round]]  # by server, requests, in flight


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; returns 1 if a response was wrong or a server did not run."""
    options = _options(argv)
    try:
        result = _tail(options) if options.tail else _costs(options)
    except BenchError as error:
        print(f"server: {error}", file=sys.stderr)
        return 1
    if options.output is not None:
        write_json(options.output, result)
    return 0


def _costs(options: argparse.Namespace) -> dict[str, Any]:
    result = run(options)
    _show(options, result)
    return _to_json(options, result)


def _tail(options: argparse.Namespace) -> dict[str, Any]:
    runs = run_tail(REQUESTS, (1, PIPELINED), options.connections, group_names(options.groups), options.seconds)
    show_tail(runs, options.connections, options.seconds)
    return tail_json(runs, options.connections, options.seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="callboard bench server", description=PURPOSE)
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="runs of each kind (default 3)")
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument(
        "--groups", type=int, metavar="N", help="number of groups of the members (default: one for each connection)"
    )
    parser.add_argument(
        "-b", "--bootstrap-server", metavar="HOST:PORT", help="measure this server (default: start one)"
    )
    add_output(parser)
    parser.add_argument(
        "--tls", action="store_true", help="measure both servers with TLS, too: the bare one with the event loop's"
    )
    parser.add_argument(
        "--tail", action="store_true", help=f"instead, name the {LISTED} callbacks that held the loop longest"
    )
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s, as a smoke test")
    return parser


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.quick:
        options.seconds, options.rounds = QUICK_S, 1
    if options.groups is None:
        options.groups = options.connections
    for name in ("seconds", "rounds", "connections", "groups"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} {getattr(options, name)}: expected more than 0")
    if options.tls and options.bootstrap_server is not None:
        parser.error("--tls: expected no --bootstrap-server, because the servers need the certificates that it makes")
    if options.tail and (options.tls or options.bootstrap_server is not None):
        parser.error("--tail: expected no --tls and no --bootstrap-server, because it starts a server of its own")
    if options.groups > options.connections:
        parser.error(f"--groups {options.groups}: expected at most one for each of {options.connections} connections")
    return options


class Result(NamedTuple):
    """All measurements. ``ready_s`` and ``memory`` exist only for a server that the benchmark started."""

    rows: list[Row]
    offsets_compared: int
    ready_s: list[float]
    memory: Memory | None


class Memory(NamedTuple):
    """Resident memory in MB of a fresh server, and with groups that have one member and one committed offset each."""

    groups: int
    empty_mb: float | None
    filled_mb: float | None


def run(options: argparse.Namespace) -> Result:
    """Measure; takes somewhat more than ``seconds * rounds * 12``. Raises BenchError if a response is wrong."""
    with ExitStack() as stack:
        bare = stack.enter_context(Server(["-m", "callboard.bench.bare_server"], "the bare server"))
        if options.bootstrap_server is None:
            server = stack.enter_context(callboard_server())
            measured = _measured_server(stack, options, CALLBOARD, server.address, server.pid)
        else:
            measured = _measured_server(stack, options, "target", options.bootstrap_server, None)
        tls = _servers_with_tls(stack, options) if options.tls else ()
        rounds = _interleaved((_measured_server(stack, options, BARE, bare.address, bare.pid), measured, *tls), options)
        compared = measured.load.verify()
        measured.load.leave()
    rows = _rows(rounds, options.connections)
    if options.bootstrap_server is not None:
        return Result(rows, compared, [], None)
    return Result(rows, compared, _ready_times(1 if options.quick else READY_RUNS), _memory(MEMORY_GROUPS))


def _servers_with_tls(stack: ExitStack, options: argparse.Namespace) -> tuple[MeasuredServer, ...]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-server-tls-")))
    files = make_tls_files(folder)
    bare_command = ["-m", "callboard.bench.bare_server", "--tls", str(files.keystore)]
    bare = stack.enter_context(Server(bare_command, "the bare server"))
    server = stack.enter_context(callboard_server(keystore=files.keystore))
    return tuple(
        _measured_server(stack, options, name + WITH_TLS, each.address, each.pid, files.truststore)
        for name, each in ((BARE, bare), (CALLBOARD, server))
    )


def _measured_server(
    stack: ExitStack,
    options: argparse.Namespace,
    name: str,
    address: str,
    pid: int | None,
    truststore: Path | None = None,
) -> MeasuredServer:
    joins, pids = not name.startswith(BARE), [] if pid is None else [pid]
    load = LoadProcess(address, options.connections, group_names(options.groups), joins, pids, truststore)
    return MeasuredServer(name, stack.enter_context(load), pid)


def _interleaved(servers: Sequence[MeasuredServer], options: argparse.Namespace) -> Rounds:
    """Alternate between the servers, heartbeats first; each kind is warmed up before its first round."""
    rounds: Rounds = {}
    for in_flight in (1, PIPELINED):
        runs = [(measured, requests) for requests in REQUESTS for measured in servers]
        for measured, requests in runs:
            measured.load.run(requests, in_flight, min(WARM_UP_S, options.seconds))
        for _ in range(options.rounds):
            for measured, requests in runs:
                outcome = measured.load.run(requests, in_flight, options.seconds)
                rounds.setdefault((measured.name, requests, in_flight), []).append(
                    Round(outcome, resident_bytes(measured.pid))
                )
    return rounds


def _rows(rounds: Rounds, connections: int) -> list[Row]:
    return [_row(rounds, key, connections) for key in rounds]


def _row(rounds: Rounds, key: tuple[str, str, int], connections: int) -> Row:
    server, requests, in_flight = key
    key_rounds = rounds[key]
    outcomes = [measured_round.outcome for measured_round in key_rounds]
    rate = summarise([measured_round.rate for measured_round in key_rounds])
    resident = key_rounds[-1].resident
    return Row(
        server,
        requests,
        connections,
        in_flight,
        rate.median,
        rate.spread if len(key_rounds) > 1 else None,
        None if server == BARE else _ratio(key_rounds, rounds[BARE, requests, in_flight]).median,
        None
        if requests == HEARTBEATS or server.startswith(BARE)
        else _ratio(key_rounds, rounds[server, HEARTBEATS, in_flight]).median,
        Latency(
            1e3 * summarise([outcome.latency_p50_s for outcome in outcomes]).median,
            1e3 * summarise([outcome.latency_p99_s for outcome in outcomes]).median,
        ),
        median_or_none([_each_us(outcome.server_cpu_s, outcome.answers) for outcome in outcomes]),
        summarise([1e6 * outcome.load_cpu_s / outcome.answers for outcome in outcomes]).median,
        median_or_none([_share(outcome.server_cpu_s, outcome.elapsed_s) for outcome in outcomes]),
        summarise([outcome.load_cpu_s / outcome.elapsed_s for outcome in outcomes]).median,
        summarise([outcome.ready_each_poll for outcome in outcomes]).median,
        None if resident is None else resident / 1e6,
    )


def _ratio(rounds: Sequence[Round], base_rounds: Sequence[Round]) -> MedianAndSpread:
    return summarise(
        [measured_round.rate / base_round.rate for measured_round, base_round in zip(rounds, base_rounds, strict=True)]
    )


def _each_us(cpu_s: float | None, answers: int) -> float | None:
    return None if cpu_s is None else 1e6 * cpu_s / answers


def _share(cpu_s: float | None, elapsed_s: float) -> float | None:
    return None if cpu_s is None else cpu_s / elapsed_s


def _ready_times(count: int) -> list[float]:
    """Seconds from the start of the process to its ready line, each on an empty folder."""
    times = []
    for _ in range(count):
        with callboard_server() as server:
            times.append(server.ready_s)
    return times


def _memory(count: int) -> Memory:
    with callboard_server() as server:
        empty = resident_bytes(server.pid)
        _fill(server.address, group_names(count))
        return Memory(count, _mb(empty), _mb(resident_bytes(server.pid)))


def _fill(address: str, names: Sequence[str]) -> None:
    """Give each group one member and one committed offset. Members share connections."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(address)) for _ in range(min(MEMORY_CONNECTIONS, len(names)))]
        topic = create_topic(clients[0], len(clients))
        find_coordinator(clients[0], names[0])
        for start in range(0, len(names), len(clients)):
            members = join_members(clients, names[start : start + len(clients)], topic)
            for client, member in zip(clients, members, strict=False):
                commit(client, member, 1)


def _mb(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def _partitions(groups: int) -> int:
    return len({offsets_partition(name, OFFSETS_PARTITIONS) for name in group_names(groups)})


def _show(options: argparse.Namespace, result: Result) -> None:
    title = (
        f"{options.connections} connections, one member each, in {options.groups} groups on "
        f"{_partitions(options.groups)} of {OFFSETS_PARTITIONS} partitions of the offsets topic; "
        f"median of {options.rounds} x {options.seconds:g} s"
    )
    print_table(title, COLUMNS, [_cells(row) for row in result.rows], _notes(options, result))


def _cells(row: Row) -> list[str]:
    return [
        row.server,
        row.requests,
        f"{row.connections} x {row.in_flight}",
        f"{row.requests_per_s:,.0f}",
        _percent(row.spread),
        _percent(row.of_bare),
        _percent(row.of_heartbeats),
        f"{row.latency_ms.p50:.2f}",
        f"{row.latency_ms.p99:.2f}",
        _figure(row.server_cpu_us, ".2f"),
        f"{row.load_cpu_us:.2f}",
        _percent(row.server_cpu_share),
        f"{row.load_cpu_share:.0%}",
        f"{row.ready_each_poll:.1f}",
        _figure(row.resident_mb, ".0f"),
    ]


def _percent(value: float | None) -> str:
    return _figure(value, ".0%")


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _notes(options: argparse.Namespace, result: Result) -> list[str]:
    notes = [
        "Every response was compared with the expected bytes; "
        f"{result.offsets_compared} last committed offsets were read back and are correct.",
        _commits_note(options.bootstrap_server),
        _load_note(result.rows),
        *_disturbed_note(result.rows),
        *_tls_notes(result.rows),
    ]
    if result.ready_s:
        ready = summarise(result.ready_s)
        notes.append(
            f"Ready on an empty folder {ready.median:.3f} s after the start (median of {len(result.ready_s)}, "
            f"{min(result.ready_s):.3f} to {max(result.ready_s):.3f})."
        )
    memory = result.memory
    if memory is not None and memory.filled_mb is not None:
        notes.append(
            f"Resident memory with {memory.groups} groups, each with a member and a committed offset: "
            f"{memory.filled_mb:.1f} MB ({_figure(memory.empty_mb, '.1f')} MB when empty)."
        )
    return notes


def _commits_note(target: str | None) -> str:
    if target is None:
        return "Commits are durable before the response (--sync always); the data is on the current disk."
    return "Commits are as durable as the target's settings make them (Kafka's default: not synced)."


def _load_note(rows: Sequence[Row]) -> str:
    """A note on whether the load generator can have been the bottleneck."""
    load_bound = [
        row for row in rows if row.server_cpu_us is not None and row.load_cpu_us > LEAN_SHARE * row.server_cpu_us
    ]
    text = (
        "Load: connections x requests in flight on each. Us/req: CPU time in microseconds. Ready per poll: the number "
        "of connections with a waiting response when the load generator polled. If nearly all connections are ready, "
        "the load generator is the bottleneck."
    )
    if not load_bound:
        return text
    names = ", ".join(f"{row.server} {row.requests} {row.connections} x {row.in_flight}" for row in load_bound)
    return (
        f"{text} The load generator's CPU time per request is close to the server's for: {names}. With one request in "
        "flight, most CPU time on both sides is one send and one recv in the kernel; such a row is a lower bound "
        "of the server's rate."
    )


def _disturbed_note(rows: Sequence[Row]) -> list[str]:
    """A note if the pipelined bare server, which is limited only by its CPU, had less than a whole core."""
    shares = [row.server_cpu_share for row in rows if row.server == BARE and row.in_flight == PIPELINED]
    least = min((share for share in shares if share is not None), default=1.0)
    if least >= UNDISTURBED_SHARE:
        return []
    return [
        f"The bare server got {least:.0%} of a core: other programs were running. Us/req holds, rates are lower bounds."
    ]


def tls_cost_us(rows: Sequence[Row], server: str, requests: str, in_flight: int) -> float | None:
    """What TLS adds to the server's CPU time for each request. None if it was not measured."""
    us = {row.server: row.server_cpu_us for row in rows if (row.requests, row.in_flight) == (requests, in_flight)}
    plain, tls = us.get(server), us.get(server + WITH_TLS)
    return None if plain is None or tls is None else tls - plain


def _tls_notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    for in_flight in (1, PIPELINED):
        own, loops = (tls_cost_us(rows, server, HEARTBEATS, in_flight) for server in (CALLBOARD, BARE))
        if own is not None and loops is not None:
            notes.append(
                f"TLS adds {own:.1f} us of server CPU to a heartbeat with {in_flight} in flight; the event loop's own"
                f" TLS adds {loops:.1f} us to the bare server's ({own / loops:.0%})."
            )
    return notes


def _to_json(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    """The result for ``--output``: times in the unit of their name."""
    return {
        "bench": "server",
        "machine": machine(),
        "connections": options.connections,
        "groups": options.groups,
        "offsets_partitions": _partitions(options.groups),
        "seconds": options.seconds,
        "rounds": options.rounds,
        "target": options.bootstrap_server,
        "rows": [row._asdict() for row in result.rows],
        "offsets_compared": result.offsets_compared,
        "ready_s": result.ready_s,
        "tls_cost_us": {
            server: {in_flight: tls_cost_us(result.rows, server, HEARTBEATS, in_flight) for in_flight in (1, PIPELINED)}
            for server in (CALLBOARD, BARE)
        },
        "memory": None if result.memory is None else result.memory._asdict(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
