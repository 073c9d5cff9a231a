"""``callboard bench server --tail``: what held the server's event loop longest, under the load of the benchmark.

The server runs on a loop that measures each callback (``timed_loop.py``), which costs some microseconds each. So this
run says nothing about rates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.bench.harness import machine, print_table
from callboard.bench.load_generator import LoadProcess
from callboard.bench.serving import callboard_server
from callboard.bench.timed_loop import Hold

SCHEMA = 1
LISTED = 6
WARM_UP_S = 0.5
ANSWER_TIMEOUT_S = 30.0
COLUMNS = (
    *(
        "requests",
        "load",
        "held the loop longest",
        "longest\nms",
        "most CPU\nms",
        "calls above\n1 ms",
        "calls above\n1 ms CPU",
    ),
    "callbacks",
)


class TailRun(NamedTuple):
    """One load. ``holds``: the longest first; ``callbacks``: how many were measured, with their parts."""

    requests: str
    in_flight: int
    callbacks: int
    holds: list[Hold]


def run_tail(
    requests: Sequence[str], in_flight: Sequence[int], connections: int, groups: Sequence[str], seconds: float
) -> list[TailRun]:
    """Raises BenchError if a response was wrong."""
    runs = []
    with (
        callboard_server(program="callboard.bench.timed_loop") as server,
        LoadProcess(server.address, connections, groups, True, [server.pid]) as load,
    ):
        for count in in_flight:
            for kind in requests:
                load.run(kind, count, min(WARM_UP_S, seconds))
                server.write_line("forget")
                server.read_line(ANSWER_TIMEOUT_S)
                load.run(kind, count, seconds)
                server.write_line("report")
                runs.append(parse_tail(kind, count, server.read_line(ANSWER_TIMEOUT_S)))
        load.verify()
    return runs


def parse_tail(requests: str, in_flight: int, line: str) -> TailRun:
    report = json.loads(line)
    return TailRun(requests, in_flight, report["callbacks"], [Hold(**hold) for hold in report["holds"]])


def show_tail(runs: Sequence[TailRun], connections: int, seconds: float) -> None:
    rows = [row for run in runs for row in _rows(run, connections)]
    notes = [
        "CPU: the time in which the loop's thread ran. In the rest it waited: for a disk, the interpreter's lock, or a "
        "processor that other programs used.",
        "Members of the consumer protocol join and leave within the run, so their rows have that, too.",
        "Turns of an actor, and garbage collections, are parts of callbacks. Callbacks below 0.1 ms are not listed.",
    ]
    print_table(f"What held the event loop longest, in {seconds:g} s under each load", COLUMNS, rows, notes)


def _rows(run: TailRun, connections: int) -> list[list[str]]:
    load = [run.requests, f"{connections} x {run.in_flight}"]
    if not run.holds:
        return [[*load, "nothing above 0.1 ms", "", "", "0", "0", f"{run.callbacks:,}"]]
    return [
        [
            *load,
            hold.name,
            f"{hold.longest_ns / 1e6:.2f}",
            f"{hold.cpu_longest_ns / 1e6:.2f}",
            f"{hold.long}",
            f"{hold.cpu_long}",
            f"{run.callbacks:,}",
        ]
        for hold in run.holds[:LISTED]
    ]


def tail_json(runs: Sequence[TailRun], connections: int, seconds: float) -> dict[str, Any]:
    """The result for ``--output``."""
    return {
        "bench": "server --tail",
        "schema": SCHEMA,
        "machine": machine(),
        "connections": connections,
        "seconds": seconds,
        "runs": [{**run._asdict(), "holds": [hold._asdict() for hold in run.holds]} for run in runs],
    }
