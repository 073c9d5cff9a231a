"""``callboard bench kafka``: the same heartbeats and commits to Callboard and to a Kafka on the same machine.

Both servers get them from the same load generator, which compares each response with the expected bytes. Kafka is
warmed up, since Java compiles its code while it runs. Runs are interleaved, and a ratio compares two runs of the same
round. Callboard syncs each commit before it answers. Kafka does not, by its default; it is measured a second time with
a sync for each write.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from callboard.bench import kafka_plot
from callboard.bench.harness import BenchError, add_output, machine, print_table, write_json
from callboard.bench.kafka_broker import HOW_TO_GET_ONE, Broker, broker, synced_commits
from callboard.bench.kafka_results import (
    CALLBOARD,
    COLUMNS,
    KAFKA,
    NOT_KNOWN,
    RATIO_COLUMNS,
    SCHEMA,
    SYNCED_KAFKA,
    Comparison,
    Load,
    Row,
    cells,
    comparison_json,
    make_comparisons,
    make_rows,
    ratio_cells,
    row_json,
)
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, HEARTBEATS, LoadProcess, group_names
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client
from callboard.bench.workers import load_of, serving, settled_split

PURPOSE = "Compare heartbeats and durable commits of Callboard with those of a Kafka on the same machine."
IN_FLIGHT = (1, 16)
LOADS = tuple(Load(requests, in_flight) for requests in (HEARTBEATS, COMMITS) for in_flight in IN_FLIGHT)
OWN_WARM_UP_S = 0.3
CHANGED_WARM_UP_S = 1.0  # after a change of Kafka's settings
QUICK_S = 0.5
USAGE_EXIT_CODE = 2


class Result(NamedTuple):
    """``offsets_compared``: last committed offsets that were read back from both servers."""

    kafka: Broker
    rows: list[Row]
    comparisons: list[Comparison]
    offsets_compared: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and plot.

    Returns 1 if a response was wrong or a server did not run, 2 without a Kafka.
    """
    options = _options(argv)
    if options.kafka is None and options.bootstrap_server is None:
        print(f"kafka: {HOW_TO_GET_ONE}", file=sys.stderr)
        return USAGE_EXIT_CODE
    try:
        with _ended_by_signals():
            if options.plot is not None:
                kafka_plot.require()
            result = run(options)
    except BenchError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    _show(options, result)
    if options.output is not None:
        write_json(options.output, to_json(options, result))
    if options.plot is not None:
        kafka_plot.save_plot(options.plot, _title(options, result.kafka), result.rows, options.connections)
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench kafka", description=PURPOSE)
    parser.add_argument(
        "--kafka", type=Path, metavar="HOME", help="start the Kafka that is installed in this folder, and stop it"
    )
    parser.add_argument(
        "-b", "--bootstrap-server", metavar="HOST:PORT", help="measure this Kafka, of one node, which is running"
    )
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="runs of each kind (default 3)")
    parser.add_argument(
        "--warm-up", type=float, metavar="SECONDS", default=10.0, help="of Kafka, for each kind of load (default 10)"
    )
    parser.add_argument(
        "--connections", type=int, metavar="N", default=50, help="members, each in a group of its own (default 50)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", default=0, help="run Callboard as serve --workers N (default: one process)"
    )
    add_output(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures into this file, as PNG")
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s, as a smoke test")
    options = parser.parse_args(argv)
    if options.quick:
        options.seconds, options.rounds, options.warm_up = QUICK_S, 1, QUICK_S
    for name, least in (("seconds", 0.01), ("rounds", 1), ("warm_up", 0.01), ("connections", 1), ("workers", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least {least}")
    if options.kafka is not None and options.bootstrap_server is not None:
        parser.error("--kafka and --bootstrap-server: expected one of them")
    return options


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as an exception, so that all servers are stopped."""
    before = {number: signal.signal(number, _exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def run(options: argparse.Namespace) -> Result:
    """Takes about ``rounds * seconds * 10 + warm_up * 4``. Raises BenchError if a response is wrong."""
    with ExitStack() as stack:
        kafka = stack.enter_context(_kafka(options))
        ours = stack.enter_context(_own_load(options))
        pids = [] if kafka.pid is None else [kafka.pid]
        theirs = stack.enter_context(
            LoadProcess(kafka.address, options.connections, group_names(options.connections), True, pids)
        )
        loads = {CALLBOARD: ours, KAFKA: theirs}
        _warm_up(loads, options.warm_up)
        admin = None if kafka.pid is None else stack.enter_context(Client(kafka.address))
        rounds = measured_rounds(loads, admin, options.rounds, options.seconds)
        compared = ours.verify() + theirs.verify()
        for load in loads.values():
            load.leave()
    rows = make_rows(rounds)
    return Result(kafka, rows, make_comparisons(rows), compared)


@contextmanager
def _kafka(options: argparse.Namespace) -> Iterator[Broker]:
    if options.kafka is None:
        yield Broker(options.bootstrap_server, None, NOT_KNOWN, NOT_KNOWN)
        return
    with broker(options.kafka) as started:
        yield started


@contextmanager
def _own_load(options: argparse.Namespace) -> Iterator[LoadProcess]:
    with serving(options.workers) if options.workers else callboard_server() as server:
        if options.workers:
            settled_split(server.address, options.workers)
        with load_of(server, options.connections) as load:
            yield load


def _warm_up(loads: dict[str, LoadProcess], seconds: float) -> None:
    for load in LOADS:
        loads[KAFKA].run(*load, seconds)
        loads[CALLBOARD].run(*load, min(OWN_WARM_UP_S, seconds))


def measured_rounds(
    loads: dict[str, LoadProcess], admin: Client | None, rounds: int, seconds: float
) -> dict[tuple[str, Load], list[LoadResult]]:
    """In each round all loads, alternating between the servers, then Kafka's synced commits.

    ``admin``: changes Kafka's settings for those; None for a Kafka that is not ours to change.
    """
    runs: dict[tuple[str, Load], list[LoadResult]] = {}

    def measure(name: str, process: LoadProcess, load: Load) -> None:
        runs.setdefault((name, load), []).append(process.run(*load, seconds))

    for _ in range(rounds):
        for load in LOADS:
            for name, process in loads.items():
                measure(name, process, load)
        if admin is not None:
            _measure_synced(admin, loads[KAFKA], min(CHANGED_WARM_UP_S, seconds), measure)
    return runs


def _measure_synced(
    admin: Client, kafka: LoadProcess, warm_up_s: float, measure: Callable[[str, LoadProcess, Load], None]
) -> None:
    commits = [load for load in LOADS if load.requests == COMMITS]
    with synced_commits(admin):
        kafka.run(*commits[0], warm_up_s)
        for load in commits:
            measure(SYNCED_KAFKA, kafka, load)
    kafka.run(*commits[0], warm_up_s)


def _title(options: argparse.Namespace, kafka: Broker) -> str:
    ours = f"Callboard with {options.workers} workers" if options.workers else "Callboard"
    theirs = f"Kafka at {kafka.address}" if kafka.pid is None else f"Kafka {kafka.version} on Java {kafka.java}"
    return (
        f"{ours} and {theirs}: {options.connections} connections, each with a group of its own; "
        f"medians of {options.rounds} x {options.seconds:g} s"
    )


def _show(options: argparse.Namespace, result: Result) -> None:
    notes = _notes(options, result)
    print_table(_title(options, result.kafka), COLUMNS, [cells(row, options.connections) for row in result.rows], notes)
    ratios = [ratio_cells(comparison, options.connections) for comparison in result.comparisons]
    note = "Medians of the ratios of each round, and the least and the largest. Above 1: Callboard has more of it."
    print_table("Callboard's figures divided by Kafka's", RATIO_COLUMNS, ratios, [note], python="")


def _notes(options: argparse.Namespace, result: Result) -> list[str]:
    notes = [
        f"Every response was compared with the expected bytes; {result.offsets_compared} last committed offsets were "
        "read back and are correct.",
        f"Kafka ran each load for {options.warm_up:g} s before the first round.",
        "Load: connections x requests in flight on each. Spread: largest less smallest rate, by the median. CPU: "
        "that of the server's processes, user and kernel.",
        "The load generator needs a core itself, as much of it for both servers. All data is on the current disk.",
    ]
    if result.kafka.pid is None:
        notes.append(
            "A Kafka that was not started here keeps its settings, so it has no row with a sync for each write."
        )
    return notes


def to_json(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    """The result for ``--output``: times in the unit of their name."""
    kafka = result.kafka
    return {
        "bench": "kafka",
        "schema": SCHEMA,
        "machine": machine(),
        "kafka": {"version": kafka.version, "java": kafka.java, "target": options.bootstrap_server},
        "connections": options.connections,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "warm_up_s": options.warm_up,
        "workers": options.workers,
        "offsets_compared": result.offsets_compared,
        "rows": [row_json(row) for row in result.rows],
        "ratios": [comparison_json(comparison) for comparison in result.comparisons],
    }


if __name__ == "__main__":
    raise SystemExit(main())
