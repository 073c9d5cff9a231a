"""``callboard bench cluster``: what a cluster costs, on the stores of the given URLs.

* ``commits``: durable commits per second of one node whose rounds go to a store, compared with one whose rounds go to a
  journal on this machine's disk. Rounds of all servers are interleaved, and the ratio is computed in each round.
* ``takeover``: how long a node takes to load 17 of 50 partitions of a million groups, after the register has given it
  those of a dead node.
* ``idle``: what three nodes without clients do in a minute. Store operations are counted for PostgreSQL only.

Each store must be empty, and is not empty afterwards: use another database or folder for each part.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from callboard.bench.cluster_idle import measure_idle
from callboard.bench.cluster_takeover import measure_takeover
from callboard.bench.group_setup import create_topic, find_coordinator
from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    median_or_none,
    print_table,
    ratios,
    write_json,
)
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, LoadProcess, group_names
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client
from callboard.runtime.cluster.engines import open_store, without_password
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register_log import newest_register

JOURNAL = "journal"
PIPELINED = 16
WARM_UP_S = 0.5
SESSION_TIMEOUT = "cluster_session_timeout_ms=10000"
"""A node answers commits while it has its lease. One that the load has stalled for longer would refuse them."""
COLUMNS = (
    "rounds go to",
    "in flight",
    "commits/s",
    "of the\njournal",
    "p50\nms",
    "p99\nms",
    "server\nus/commit",
    "server\nCPU",
)

Rounds = dict[tuple[str, int], list[LoadResult]]  # by store and number of requests in flight


class Row(NamedTuple):
    """Medians over the rounds. ``of_journal``: the median of each round's ratio."""

    store: str
    in_flight: int
    commits_per_s: float
    of_journal: float
    p50_ms: float
    p99_ms: float
    server_cpu_us: float | None
    server_cpu_share: float | None


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    result: dict[str, Any] = {"machine": machine()}
    try:
        for url in options.cluster:
            asyncio.run(_check_empty(url))
        result[options.measure] = MEASURES[options.measure](options)
    except BenchError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    if options.output is not None:
        write_json(options.output, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="callboard bench cluster", description="Measure what a cluster costs.")
    parser.add_argument(
        "--cluster", metavar="URL", action="append", required=True, help="an empty store; may be repeated"
    )
    parser.add_argument("--measure", choices=MEASURES, default="commits", help="what to measure (default commits)")
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--rounds", type=int, metavar="N", default=5, help="runs of each kind (default 5)")
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument(
        "--groups", type=int, metavar="N", default=1_000_000, help="of the takeover (default 1,000,000)"
    )
    parser.add_argument("--idle-seconds", type=float, metavar="SECONDS", default=60.0, help="default 60")
    add_output(parser)
    return parser


async def _check_empty(url: str) -> None:
    store = open_store(url, "bench")
    try:
        register = await newest_register(PatientStore(store))
    finally:
        await store.close()
    if register is not None:
        raise BenchError(f"{without_password(url)} has the cluster {register.cluster_id}; expected an empty store")


# Commits --------------------------------------------------------------------------------------------------------------


@contextmanager
def cluster_server(url: str) -> Iterator[Server]:
    """A node of its own cluster, when it serves all groups of the load."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=Path.cwd()) as folder:
        arguments = ["-m", "callboard", "serve", "--cluster", url, "--node-name", "bench", "--listen", "127.0.0.1:0"]
        arguments += ["--data", folder, "--set", "group_initial_rebalance_delay_ms=0", "--set", SESSION_TIMEOUT]
        with Server(arguments, "callboard serve --cluster") as server:
            yield server


def _show_commits(options: argparse.Namespace) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        servers = {JOURNAL: stack.enter_context(callboard_server())}
        for number, url in enumerate(options.cluster, 1):
            name = f"{number}: {without_password(url)}"
            servers[name] = stack.enter_context(cluster_server(url))
        loads = {name: stack.enter_context(_load(server, options.connections)) for name, server in servers.items()}
        rounds = _interleaved(loads, options)
        compared = sum(load.verify() for load in loads.values())
    rows = [_row(rounds, key) for key in rounds]
    texts = [
        (
            *(row.store, f"{options.connections} x {row.in_flight}", f"{row.commits_per_s:,.0f}"),
            *(f"{row.of_journal:.2f}", f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}"),
            *(_text(row.server_cpu_us, "{:.0f}"), _text(row.server_cpu_share, "{:.0%}")),
        )
        for row in rows
    ]
    note = f"{compared} last offsets were read and compared; the CPU is that of the node, not of its store"
    print_table(f"durable commits, medians of {options.rounds} rounds", COLUMNS, texts, [note])
    return [row._asdict() for row in rows]


def _load(server: Server, connections: int) -> LoadProcess:
    groups = group_names(connections)
    with Client(server.address) as client:
        for group in groups:
            find_coordinator(client, group)
        create_topic(client, connections)
    return LoadProcess(server.address, connections, groups, True, [server.pid])


def _interleaved(loads: dict[str, LoadProcess], options: argparse.Namespace) -> Rounds:
    rounds: Rounds = {}
    for in_flight in (1, PIPELINED):
        for load in loads.values():
            load.run(COMMITS, in_flight, min(WARM_UP_S, options.seconds))
        for _ in range(options.rounds):
            for name, load in loads.items():
                rounds.setdefault((name, in_flight), []).append(load.run(COMMITS, in_flight, options.seconds))
    return rounds


def _row(rounds: Rounds, key: tuple[str, int]) -> Row:
    name, in_flight = key
    results = rounds[key]
    rates, base_rates = ([run.answers / run.elapsed_s for run in rounds[of, in_flight]] for of in (name, JOURNAL))
    cpu_s = [run.server_cpu_s for run in results]
    return Row(
        *(name, in_flight, median(rates), ratios(rates, base_rates).median),
        1e3 * median(run.latency_p50_s for run in results),
        1e3 * median(run.latency_p99_s for run in results),
        median_or_none([s and 1e6 * s / run.answers for s, run in zip(cpu_s, results, strict=True)]),
        median_or_none([s and s / run.elapsed_s for s, run in zip(cpu_s, results, strict=True)]),
    )


def _takeovers(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [measure_takeover(url, options.groups) for url in options.cluster]


def _idleness(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [measure_idle(url, options.idle_seconds) for url in options.cluster]


MEASURES = {"commits": _show_commits, "takeover": _takeovers, "idle": _idleness}


def _text(number: float | None, form: str) -> str:
    return "-" if number is None else form.format(number)
