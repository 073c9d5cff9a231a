"""``callboard bench commit``: the cost of durability. Compares group commit with one sync per commit and with no sync.

Each round measures a loop that writes a commit's bytes and calls ``fdatasync``; the log alone, used as the writer's
actor uses it, with 50 and 1000 commits in flight; and servers with ``--sync always`` and ``--sync none`` over TCP.
Disks differ by a factor of a hundred, so only ratios within a round are meaningful. If a sync takes 0.1 ms, the
server's CPU time per request is the limit, and the figures over TCP say nothing about the log.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from callboard.actors.ports import Entry
from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.bench.harness import (
    BenchError,
    MedianAndSpread,
    Server,
    add_output,
    machine,
    print_table,
    ratios,
    summarise,
    write_json,
)
from callboard.bench.load_connections import IN_FLIGHT_MAX
from callboard.bench.load_generator import COMMITS, LoadProcess, group_names
from callboard.runtime.cli.serve import SWITCH_INTERVAL_S
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.offsets_log import OffsetsLog

PURPOSE = "Compare durable commits with one fdatasync per commit, and with a server that never syncs."
IN_FLIGHT_IN_ALL = 1000
FEW_IN_FLIGHT = 50
WARM_UP_S = 0.3
QUICK_S = 0.5
COMMIT_BYTES = 180
"""The size of a single commit in the journal: a frame with a batch of one record."""
ALLOCATED_BYTES = 16 * 1024 * 1024  # zeros that are overwritten, as in the journal; syncing these is cheapest
BARE, FEW_IN_LOG, MANY_IN_LOG = "fdatasync per commit", "log alone, 50 in flight", "log alone, 1000 in flight"
ALWAYS, NONE, MANY = "always", "none", "always, 1000 in flight"
KINDS = (BARE, FEW_IN_LOG, MANY_IN_LOG, NONE, ALWAYS, MANY)
PARTITIONS = 50
GROUPS = 4000


class CommitRound(NamedTuple):
    """One run of one kind: commits per second, and the time of a commit, or of a sync, in seconds."""

    rate: float
    p50_s: float
    p99_s: float


class Aim(NamedTuple):
    """A ratio and its target: at least ``bound``, or at most."""

    what: str
    found: MedianAndSpread
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        return self.found.median >= self.bound if self.at_least else self.found.median <= self.bound


Rounds = Mapping[str, Sequence[CommitRound]]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; 1 if a server did not run or a response was wrong."""
    options = _options(argv)
    try:
        rounds = run(options)
    except (BenchError, OSError) as error:
        print(f"commit: {error}", file=sys.stderr)
        return 1
    results = aims(rounds)
    _show(options, rounds, results)
    if options.output is not None:
        write_json(options.output, _to_json(options, rounds, results))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench commit", description=PURPOSE)
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="runs of each kind (default 3)")
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder on the disk to measure (default: here)")
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help="one round of 0.5 s, as a smoke test")
    options = parser.parse_args(argv)
    if options.quick:
        options.seconds, options.rounds = QUICK_S, 1
    for name in ("seconds", "rounds", "connections"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} {getattr(options, name)}: expected more than 0")
    if options.connections * IN_FLIGHT_MAX < IN_FLIGHT_IN_ALL:
        parser.error(
            f"--connections {options.connections}: {IN_FLIGHT_IN_ALL} must be in flight, one connection allows at most"
            f" {IN_FLIGHT_MAX}"
        )
    return options


def run(options: argparse.Namespace) -> Rounds:
    """Measure; takes somewhat more than ``seconds * rounds * 4``. Raises BenchError."""
    parent = options.data or Path.cwd()
    rounds: dict[str, list[CommitRound]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        loads = {sync: _load(stack, options.connections, parent, sync) for sync in (ALWAYS, NONE)}
        for load in loads.values():
            load.run(COMMITS, 1, WARM_UP_S)
        for _ in range(options.rounds):
            rounds[BARE].append(measure_syncs(parent, options.seconds))
            rounds[FEW_IN_LOG].append(measure_log(parent, FEW_IN_FLIGHT, options.seconds))
            rounds[MANY_IN_LOG].append(measure_log(parent, IN_FLIGHT_IN_ALL, options.seconds))
            rounds[NONE].append(_round(loads[NONE], 1, options.seconds))
            rounds[ALWAYS].append(_round(loads[ALWAYS], 1, options.seconds))
            in_flight = max(1, round(IN_FLIGHT_IN_ALL / options.connections))
            rounds[MANY].append(_round(loads[ALWAYS], in_flight, options.seconds))
        for load in loads.values():
            load.verify()
    return rounds


def measure_syncs(parent: Path, seconds: float) -> CommitRound:
    """Write the bytes of one commit and sync, repeatedly, as without group commit."""
    disk, durations_s = Disk(), list[float]()
    with tempfile.NamedTemporaryFile(prefix="commit-", dir=parent) as file:
        fd = file.fileno()
        disk.write(fd, bytes(ALLOCATED_BYTES), 0)
        disk.sync(fd)
        data = os.urandom(COMMIT_BYTES)
        started = begun = time.perf_counter()
        while begun - started < seconds:
            disk.write(fd, data, len(durations_s) * COMMIT_BYTES % (ALLOCATED_BYTES - COMMIT_BYTES))
            disk.sync(fd)
            ended_s = time.perf_counter()
            durations_s.append(ended_s - begun)
            begun = ended_s
    durations_s.sort()
    return CommitRound(
        len(durations_s) / (begun - started), median(durations_s), durations_s[int(len(durations_s) * 0.99)]
    )


def measure_log(parent: Path, in_flight: int, seconds: float) -> CommitRound:
    """Append ``in_flight`` commits of different groups at once, and again when all are durable."""
    rounds = [[_commit(first + number) for number in range(in_flight)] for first in range(0, 20 * in_flight, in_flight)]
    durations_s = list[float]()
    answered = threading.Event()
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as a server does
    with tempfile.TemporaryDirectory(prefix="commit-", dir=parent) as folder:
        log = OffsetsLog(Path(folder), PARTITIONS)
        log.open()
        try:
            started = begun = time.perf_counter()
            while begun - started < seconds:
                answered.clear()
                log.append(rounds[len(durations_s) % len(rounds)], 1, lambda _outcomes: answered.set())
                answered.wait()
                ended_s = time.perf_counter()
                durations_s.append(ended_s - begun)
                begun = ended_s
            failure = log.stats().failure
        finally:
            log.close()
            sys.setswitchinterval(switch_interval_s)
    if failure:
        raise BenchError(f"the log failed: {failure}")
    durations_s.sort()
    return CommitRound(
        in_flight * len(durations_s) / (begun - started), median(durations_s), durations_s[int(len(durations_s) * 0.99)]
    )


def _commit(number: int) -> Entry:
    record = OffsetRecord(f"workers-of-service-{number % GROUPS}", "jobs", number % 12, OffsetValue(number))
    return Entry(number % PARTITIONS, (record,))


@contextmanager
def _server(parent: Path, sync: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="commit-", dir=parent) as folder:
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data", folder, "--sync", sync]
        arguments += ["--set", "group_initial_rebalance_delay_ms=0"]
        with Server(["-m", "callboard", *arguments], f"callboard serve --sync {sync}") as server:
            yield server


def _load(stack: ExitStack, connections: int, parent: Path, sync: str) -> LoadProcess:
    server = stack.enter_context(_server(parent, sync))
    return stack.enter_context(LoadProcess(server.address, connections, group_names(connections), True, [server.pid]))


def _round(load: LoadProcess, in_flight: int, seconds: float) -> CommitRound:
    outcome = load.run(COMMITS, in_flight, seconds)
    return CommitRound(outcome.answers / outcome.elapsed_s, outcome.latency_p50_s, outcome.latency_p99_s)


def aims(rounds: Rounds) -> list[Aim]:
    """The ratios with targets, computed within rounds."""
    rates = {kind: [commit_round.rate for commit_round in kind_rounds] for kind, kind_rounds in rounds.items()}
    p99s, syncs = ([commit_round.p99_s for commit_round in rounds[kind]] for kind in (FEW_IN_LOG, BARE))
    return [
        Aim(
            "1000 durable commits in flight, to one fdatasync a commit",
            ratios(rates[MANY_IN_LOG], rates[BARE]),
            40,
            True,
        ),
        Aim("commits without a sync to durable ones", ratios(rates[NONE], rates[ALWAYS]), 1.5, False),
        Aim("p99 of a durable commit, 50 in flight, to the p99 of a sync", ratios(p99s, syncs), 3, False),
    ]


def _show(options: argparse.Namespace, rounds: Rounds, results: Sequence[Aim]) -> None:
    title = f"{options.connections} connections, one group each; median of {options.rounds} x {options.seconds:g} s"
    rows = [_cells(kind, kind_rounds) for kind, kind_rounds in rounds.items()]
    notes = [
        f"{aim.what}: {aim.found.median:.1f}, target {'at least' if aim.at_least else 'at most'} {aim.bound:g}:"
        f" {'met' if aim.is_met else 'missed'}"
        for aim in results
    ]
    notes.append(f"the first and the last ratio over TCP: {_through_tcp(rounds)}")
    print_table(title, ("what", "commits/s", "spread", "p50 ms", "p99 ms"), rows, notes)


def _through_tcp(rounds: Rounds) -> str:
    bare = rounds[BARE]
    rate = ratios([commit_round.rate for commit_round in rounds[MANY]], [commit_round.rate for commit_round in bare])
    p99 = ratios([commit_round.p99_s for commit_round in rounds[ALWAYS]], [commit_round.p99_s for commit_round in bare])
    return f"{rate.median:.1f}, {p99.median:.1f}"


def _cells(kind: str, kind_rounds: Sequence[CommitRound]) -> list[str]:
    rate = summarise([commit_round.rate for commit_round in kind_rounds])
    times = [
        summarise([getattr(commit_round, name) for commit_round in kind_rounds]).median for name in ("p50_s", "p99_s")
    ]
    return [kind, f"{rate.median:,.0f}", f"{rate.spread:.0%}", *(f"{1e3 * time_s:.2f}" for time_s in times)]


def _to_json(options: argparse.Namespace, rounds: Rounds, results: Sequence[Aim]) -> dict[str, Any]:
    return {
        "seconds": options.seconds,
        "connections": options.connections,
        "rounds": {
            kind: [commit_round._asdict() for commit_round in kind_rounds] for kind, kind_rounds in rounds.items()
        },
        "aims": [{**aim._asdict(), "found": aim.found.median, "is_met": aim.is_met} for aim in results],
        "machine": machine(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
