"""``callboard bench timers``: the cost of a deadline on the timing wheel, a heap, sorted buckets and asyncio.

Every design schedules the same deadlines, moves them, lets them expire tick by tick and cancels them
(``timer_designs.py``); each expiry is checked. Each measurement runs in a new process; rounds of all designs are
interleaved, and ratios are computed within a round.

There are three workloads. ``near``: due in 5 to 45 s, as sessions are. ``hour``: an hour ahead, scheduled in the order
of expiry, so that they pass through the wheel's upper level. ``week``: few deadlines over a long time, where the owner
waits for the next deadline instead of checking each tick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from callboard.bench.harness import BenchError, add_output, interleaved, machine, print_table, ratios, write_json
from callboard.bench.timer_designs import EMPTY

WHEEL = "wheel"
OBJECTS = "objects"
WORST_MS_AIM = 2.0
BYTES_AIM = 50
AIM_TIMERS = 1_000_000
QUICK_TIMERS = 100_000
TIMEOUT_S = 600.0  # of one child process; at a million timers the slowest takes 30 s
WEEK_SHARE = 10  # this workload has a tenth of the timers, since each needs a wake-up
PURPOSE = "Compare deadlines on the timing wheel with a heap, a SortedDict of buckets and asyncio's call_at."

LABELS = {
    OBJECTS: "objects, not scheduled",
    WHEEL: "wheel",
    "lazy": "wheel, lazy renewal",
    "timers": "Timers (by owner and name)",
    "heap": "heapq, lazy deletion",
    "buckets": "SortedDict of buckets",
    "asyncio": "asyncio call_at",
}
DESIGNS_OF = {
    "near": tuple(LABELS),
    "hour": (OBJECTS, WHEEL, "heap", "buckets"),
    "week": (OBJECTS, WHEEL, "heap", "buckets"),
    EMPTY: (WHEEL, "timers", "heap", "buckets"),
}
TITLES = {
    "near": "due in 5 to 45 s",
    "hour": "due in an hour, scheduled in order",
    "week": "due within a week",
    EMPTY: "Time in which nothing is due: us per call",
}
TIMES = ("insert_ns", "renew_ns", "expire_ns", "cancel_ns")
COLUMNS = (
    "design",
    *(f"{name.removesuffix('_ns')} ns\n(x wheel)" for name in TIMES),
    "worst\ntick ms",
    "own B",
    "own B\nrenewed",
    "whole B",
    "turns per\ntimer",
)
EMPTY_TIMES = ("day_0_ns", "day_1_ns", "tick_0_ns", "tick_1_ns")
EMPTY_COLUMNS = ("design", "a day,\nno timers", "a day,\no timers", "a tick,\nno timers", "a tick,\no timers")


class DesignRun(NamedTuple):
    work: str
    design: str


Figures = dict[DesignRun, list[dict[str, float]]]  # a round each


class Row(NamedTuple):
    """Medians over the rounds of a design and workload. ``x_wheel``: medians of the rounds' ratios to the wheel.

    ``own_bytes``: what the design adds per timer to an object with an owner and a name (``Timers`` needs no such
    object, so its value is the total). ``renewed_bytes``: the same after each timer was renewed once.
    """

    work: str
    design: str
    figures: dict[str, float]
    x_wheel: dict[str, float]
    own_bytes: float | None
    renewed_bytes: float | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON; returns 1 if a design failed or expired a timer wrongly."""
    options = _options(argv)
    try:
        rows = run(options)
    except BenchError as error:
        print(f"timers: {error}", file=sys.stderr)
        return 1
    _show(options, rows)
    if options.output is not None:
        write_json(options.output, _to_json(options, rows))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench timers", description=PURPOSE)
    parser.add_argument(
        "--timers", type=int, metavar="N", default=AIM_TIMERS, help="timers scheduled at once (default 1000000)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="rounds of each design (default 3)")
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help=f"one round of at most {QUICK_TIMERS} timers")
    options = parser.parse_args(argv)
    if options.quick:
        options.timers, options.rounds = min(options.timers, QUICK_TIMERS), 1
    for name in ("timers", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected at least 1")
    return options


def run(options: argparse.Namespace) -> list[Row]:
    """Measure. Raises BenchError if a child process fails, as it does when a timer expires at a wrong time."""
    jobs = {
        DesignRun(work, design): ["-m", "callboard.bench.timer_designs", design, work, str(_count(options, work))]
        for work, designs in DESIGNS_OF.items()
        for design in designs
    }
    figures: Figures = {job: [] for job in jobs}
    results = interleaved(jobs, options.rounds, TIMEOUT_S)
    console = Console(stderr=True)
    for job, result in track(
        results, "timers", options.rounds * len(jobs), console=console, disable=not console.is_terminal
    ):
        figures[job].append(result)
    return [_row(figures, job) for job in jobs]


def _count(options: argparse.Namespace, work: str) -> int:
    count: int = options.timers
    return max(1, count // WEEK_SHARE) if work == "week" else count


def _row(figures: Figures, job: DesignRun) -> Row:
    results = figures[job]
    wheel = figures[DesignRun(job.work, WHEEL)]
    times = [name for name in results[0] if name.endswith("_ns") and name in wheel[0]]
    return Row(
        job.work,
        job.design,
        {name: median(result[name] for result in results) for name in results[0]},
        {
            name: ratios([result[name] for result in results], [result[name] for result in wheel]).median
            for name in times
        },
        _over_objects(figures, job, "bytes"),
        _over_objects(figures, job, "renewed_bytes"),
    )


def _over_objects(figures: Figures, job: DesignRun, name: str) -> float | None:
    """Bytes that a design needs in addition to the objects, which are measured before renewal."""
    if job.work == EMPTY or job.design == OBJECTS:
        return None
    bare = figures[DesignRun(job.work, OBJECTS)]
    return median(result[name] - base_result["bytes"] for result, base_result in zip(figures[job], bare, strict=True))


# Showing --------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    for work in ("near", "hour", "week"):
        title = f"{_count(options, work):,} timers {TITLES[work]}; median of {options.rounds}"
        print_table(title, COLUMNS, [_cells(row) for row in rows if row.work == work], [])
    print_table(TITLES[EMPTY], EMPTY_COLUMNS, [_empty_cells(row) for row in rows if row.work == EMPTY], _notes(rows))
    print_table("Targets", ("", "target", "measured"), _aims(options, rows), [])


def _cells(row: Row) -> list[str]:
    figures = row.figures
    return [
        LABELS[row.design],
        *(_time(row, name) for name in TIMES),
        _figure(figures.get("worst_ms"), ".2f"),
        _figure(row.own_bytes, ".0f"),
        _figure(row.renewed_bytes, ".0f"),
        _figure(figures["bytes"], ".0f"),
        _figure(figures.get("wake_ups"), ".3f"),
    ]


def _empty_cells(row: Row) -> list[str]:
    return [LABELS[row.design], *(f"{row.figures[name] / 1e3:.2f}" for name in EMPTY_TIMES)]


def _time(row: Row, name: str) -> str:
    if name not in row.figures:
        return ""
    ratio = "" if row.design == OBJECTS else f" ({row.x_wheel[name]:.2f})"
    return f"{row.figures[name]:,.0f}{ratio}"


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _notes(rows: Sequence[Row]) -> list[str]:
    return [
        "Every timer expired exactly once, at its tick; no timer expired after it was cancelled.",
        "The first row is the measuring loop over objects that are not scheduled; its time is in insert, renew and "
        "cancel. At a million timers, renew and cancel mostly wait for memory, since their order is random.",
        "Renewal moves each deadline once, by up to 3 s. Lazy designs do part of this work at expiry: the heap skips "
        "dead entries; lazy renewal reschedules an early expiry, once per session timeout instead of once per "
        "heartbeat.",
        "Own B: resident bytes per timer in addition to an object with an owner and a name that exists anyway; "
        "renewed: the same after the renewals; whole: including that object, its name and the reference to it. Timers "
        "needs no such object, so its own bytes are its total.",
        "Expire and worst tick are CPU time of the thread, which other programs do not lengthen. The objects are "
        "excluded from garbage collection (gc.freeze), as in a server after loading. The worst tick of lazy renewal is "
        "that of the last early expiry, which frees the memory of all first deadlines.",
        "A day is 86,400,000 ticks; the wheel advances over it in one step.",
    ]


def _aims(options: argparse.Namespace, rows: Sequence[Row]) -> list[list[str]]:
    by_job: Mapping[tuple[str, str], Row] = {(row.work, row.design): row for row in rows}
    near_row, hour_row = by_job["near", WHEEL], by_job["hour", WHEEL]
    size = f"at {options.timers:,} timers" + (
        "" if options.timers == AIM_TIMERS else f" (the target is for {AIM_TIMERS:,})"
    )
    return [
        [f"worst tick, {size}", f"< {WORST_MS_AIM:g} ms", f"{near_row.figures['worst_ms']:.2f} ms"],
        ["the same an hour ahead", f"< {WORST_MS_AIM:g} ms", f"{hour_row.figures['worst_ms']:.2f} ms"],
        ["the wheel's own bytes per timer", f"<= {BYTES_AIM} B", f"{_figure(near_row.own_bytes, '.0f')} B"],
        ["the same an hour ahead", f"<= {BYTES_AIM} B", f"{_figure(hour_row.own_bytes, '.0f')} B"],
    ]


def _to_json(options: argparse.Namespace, rows: Sequence[Row]) -> dict[str, Any]:
    """The result for ``--output``: times in the unit of their name, bytes per timer."""
    return {
        "bench": "timers",
        "machine": machine(),
        "timers": options.timers,
        "week_timers": _count(options, "week"),
        "rounds": options.rounds,
        "rows": [row._asdict() for row in rows],
    }


if __name__ == "__main__":
    raise SystemExit(main())
