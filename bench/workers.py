"""``callboard bench workers``: the cost of a request to ``serve --workers N``, compared with one process.

Three servers get the same heartbeats and durable commits, in interleaved runs: one process, one worker, and N workers.
Each group's members are connected to its worker. One worker shows what its code costs; the difference to N workers is
what the processors cost that they share with each other and with the load generator. So CPU times of N workers are
theirs only with more cores than workers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    parse_address,
    print_table,
    summarise,
    write_json,
)
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, HEARTBEATS, LoadProcess, group_names
from callboard.bench.process_usage import descendants
from callboard.runtime.cli.workers_folder import STORE
from callboard.runtime.client.cluster import Cluster
from callboard.runtime.settings.address import Address

PURPOSE = "Measure heartbeats and durable commits to workers, compared with one process."
IN_FLIGHT = (1, 16)
ONE = "one process"
WARM_UP_S = 0.3
QUICK_S = 0.5
SETTLE_S = 60.0
SETTLE_PAUSE_S = 0.2
OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = 50
COLUMNS = ("server", "requests", "load", "requests/s", "us/req", "least\nus/req", "of one\nprocess", "least of\nleast")


class Row(NamedTuple):
    """One line of the table: medians over the rounds, and the least CPU time. CPU times are in us for each request.

    ``ratio``: the median of the ratios of each round; ``least_ratio``: that of the least CPU times.
    """

    server: str
    requests: str
    connections: int
    in_flight: int
    requests_per_s: float
    cpu_us: float
    least_cpu_us: float
    ratio: float
    least_ratio: float


class Result(NamedTuple):
    """``split``: how many partitions of the offsets topic each worker has."""

    rows: list[Row]
    split: list[int]
    offsets_compared: int


def cpu_us(run: LoadResult) -> float:
    if run.server_cpu_s is None:
        raise BenchError("CPU times of other processes are unknown on this system: it is not Linux")
    if not run.server_cpu_s:
        raise BenchError("a server used no CPU time that the system has counted; give more --seconds")
    return 1e6 * run.server_cpu_s / run.answers


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; returns 1 if a response was wrong or a server did not run."""
    options = _options(argv)
    try:
        result = run(options)
    except BenchError as error:
        print(f"workers: {error}", file=sys.stderr)
        return 1
    _show(options, result)
    if options.output is not None:
        write_json(options.output, _to_json(options, result))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench workers", description=PURPOSE)
    parser.add_argument("--workers", type=int, metavar="N", default=2, help="processes (default 2)")
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=1.0, help="of each run (default 1)")
    parser.add_argument("--rounds", type=int, metavar="N", default=10, help="runs of each kind (default 10)")
    parser.add_argument(
        "--connections", type=int, metavar="N", default=50, help="members, each in a group of its own (default 50)"
    )
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s, as a smoke test")
    options = parser.parse_args(argv)
    if options.quick:
        options.seconds, options.rounds = QUICK_S, 1
    for name, least in (("workers", 2), ("seconds", 0.01), ("rounds", 1), ("connections", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: expected at least {least}")
    return options


def run(options: argparse.Namespace) -> Result:
    """Takes somewhat more than ``seconds * rounds * 12``. Raises BenchError if a response is wrong."""
    with ExitStack() as stack:
        one = stack.enter_context(serving(0))
        one_worker = stack.enter_context(serving(1))
        workers = stack.enter_context(serving(options.workers))
        split = settled_split(workers.address, options.workers)
        servers = {ONE: one, "one worker": one_worker, f"{options.workers} workers": workers}
        loads = {name: stack.enter_context(load_of(server, options.connections)) for name, server in servers.items()}
        rows = [
            row
            for in_flight in IN_FLIGHT
            for requests in (HEARTBEATS, COMMITS)
            for row in _rows(loads, requests, in_flight, options)
        ]
        compared = sum(load.verify() for load in loads.values())
    return Result(rows, split, compared)


@contextmanager
def serving(workers: int) -> Iterator[Server]:
    """``callboard serve`` on an empty folder in the current one: that for temporary files may be in memory.

    0 is a server without workers. A folder of workers is served by workers even if there is only one.
    """
    with tempfile.TemporaryDirectory(prefix="bench-workers-", dir=Path.cwd()) as folder:
        if workers:
            (Path(folder) / STORE).mkdir()
        command = ["-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", folder]
        command += ["--workers", str(max(workers, 1)), "--set", "group_initial_rebalance_delay_ms=0"]
        with Server(command, "callboard serve") as server:
            yield server


def load_of(server: Server, connections: int) -> LoadProcess:
    pids = [server.pid, *sorted(descendants(server.pid))]
    return LoadProcess(server.address, connections, group_names(connections), True, pids)


def settled_split(address: str, workers: int) -> list[int]:
    """Wait until each worker has its part of the partitions. Returns their numbers."""
    least = PARTITIONS // workers
    deadline = time.monotonic() + SETTLE_S
    with Cluster(Address(*parse_address(address)), SETTLE_S) as cluster:
        while time.monotonic() < deadline:
            [topic] = cluster.metadata([OFFSETS_TOPIC]).topics
            split = Counter(int(partition.leader_id) for partition in topic.partitions)
            if len(split) == workers and min(split.values()) >= least:
                return sorted(split.values(), reverse=True)
            time.sleep(SETTLE_PAUSE_S)
    raise BenchError(f"the workers do not share the partitions after {SETTLE_S:.0f} s: {dict(split)}")


def _rows(loads: dict[str, LoadProcess], requests: str, in_flight: int, options: argparse.Namespace) -> list[Row]:
    """Interleaved runs of one kind of request. The order changes from round to round."""
    for load in loads.values():
        load.run(requests, in_flight, min(WARM_UP_S, options.seconds))
    runs: dict[str, list[LoadResult]] = {name: [] for name in loads}
    order = list(loads)
    for _ in range(options.rounds):
        for name in order:
            runs[name].append(loads[name].run(requests, in_flight, options.seconds))
        order.append(order.pop(0))
    base_us = [cpu_us(result) for result in runs[ONE]]
    rows = []
    for name, results in runs.items():
        each_us = [cpu_us(result) for result in results]
        rate = summarise([result.answers / result.elapsed_s for result in results]).median
        ratio = summarise([own / base for own, base in zip(each_us, base_us, strict=True)]).median
        figures = (rate, summarise(each_us).median, min(each_us), ratio, min(each_us) / min(base_us))
        rows.append(Row(name, requests, options.connections, in_flight, *figures))
    return rows


def _show(options: argparse.Namespace, result: Result) -> None:
    title = (
        f"Workers compared with one process: {options.connections} connections, each with a group of its own; "
        f"{options.rounds} x {options.seconds:g} s on {os.cpu_count()} cores"
    )
    notes = [
        f"Every response was compared with the expected bytes; {result.offsets_compared} last committed offsets were "
        "read back and are correct.",
        f"The workers have {' and '.join(map(str, result.split))} of the {PARTITIONS} partitions of the offsets topic.",
        "Us/req: CPU time in microseconds, with that of the process which supervises the workers; medians, and the "
        "least of all rounds, which other programs on the machine disturb least.",
        "The load generator needs a core itself: rates are those of the workers only with more cores than workers.",
    ]
    print_table(title, COLUMNS, [_cells(row) for row in result.rows], notes)


def _cells(row: Row) -> list[str]:
    return [
        row.server,
        row.requests,
        f"{row.connections} x {row.in_flight}",
        f"{row.requests_per_s:,.0f}",
        f"{row.cpu_us:.1f}",
        f"{row.least_cpu_us:.1f}",
        f"{row.ratio:.2f}",
        f"{row.least_ratio:.2f}",
    ]


def _to_json(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    return {
        "bench": "workers",
        "machine": machine(),
        "workers": options.workers,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "cores": os.cpu_count(),
        "split": result.split,
        "offsets_compared": result.offsets_compared,
        "rows": [row._asdict() for row in result.rows],
    }


if __name__ == "__main__":
    raise SystemExit(main())
