"""``callboard bench actors``: what an actor costs, beside an asyncio task with a queue, pykka's threads, a bare deque.

The same actors do the same work in all designs (``actor_designs.py``); at the end their counts must add up to what was
sent. A design's work is done in a fresh process, rounds of all designs are interleaved, and ratios are taken within a
round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from callboard.bench.actor_designs import BURST, TOKENS, WORKERS
from callboard.bench.harness import BenchError, interleaved, machine, median_known, print_table, ratios, write_json

TASKS = "tasks"
LOOP = "loop"
PYKKA = "pykka"
LABELS = {
    "deque": "bare deque (the floor)",
    LOOP: "actors, loop",
    "loop-uvloop": "actors, uvloop",
    "threads": "actors, threads (1)",
    "threads-4": f"actors, threads ({WORKERS})",
    "simulation": "actors, simulation",
    TASKS: "asyncio task + queue",
    "tasks-uvloop": "the same on uvloop",
    PYKKA: "pykka ThreadingActor",
}
UVLOOP = ("loop-uvloop", "tasks-uvloop")
RATES = ("flood_per_s", "bursts_per_s", "hops_per_s")

PYKKA_MAX = 2000  # threads; ten thousand take minutes to start and to switch between
MESSAGES_EACH_MIN = 2  # so that at a hundred thousand actors most get some
ASKS = 3000
QUICK_ACTORS = (10, 1000, 10_000)
QUICK_MESSAGES = 20_000
QUICK_ASKS = 500
TIMEOUT_S = 900.0  # of one child
PURPOSE = "Actors of all dispatchers, beside asyncio tasks with queues, pykka's ThreadingActor and a bare deque."

COLUMNS = (
    "design",
    *(f"{name.removesuffix('_per_s')}/s\n(x tasks)" for name in RATES),
    "ask p50\nus",
    "ask p99\nus",
    "start\nus each",
    "idle\nB each",
    "stop all\ns",
)


class Job(NamedTuple):
    actors: int
    design: str


Found = dict[str, float | None]
Figures = dict[Job, list[Found]]  # a round each


class Row(NamedTuple):
    """A design at a size: medians over the rounds. The ``x_`` are medians of each round's ratio of rates."""

    actors: int
    design: str
    figures: Found
    x_tasks: dict[str, float]
    x_pykka: dict[str, float]


class Aim(NamedTuple):
    """What was aimed at, and what was measured; None when this run has nothing on it."""

    name: str
    aim: str
    measured: str | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON; returns 1 when counts were wrong or a design did not run."""
    options = _options(argv)
    try:
        rows = run(options)
    except BenchError as error:
        print(f"actors: {error}", file=sys.stderr)
        return 1
    _show(options, rows)
    if options.json is not None:
        write_json(options.json, _plain(options, rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="callboard bench actors", description=PURPOSE)
    parser.add_argument(
        "--actors", type=_sizes, default=(10, 1000, 10_000, 100_000), metavar="N,N", help="(10,1000,10000,100000)"
    )
    parser.add_argument("--messages", type=int, default=200_000, help="of each kind of work (default 200000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each design at each size (default 3)")
    parser.add_argument("--uvloop", action="store_true", help="actors and tasks on uvloop as well")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one round of {QUICK_MESSAGES} messages, at most {QUICK_ACTORS[-1]} actors",
    )
    return parser


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    options.asks = ASKS
    if options.quick:
        options.actors = tuple(size for size in options.actors if size <= QUICK_ACTORS[-1]) or QUICK_ACTORS
        options.messages, options.rounds = min(options.messages, QUICK_MESSAGES), 1
        options.asks = QUICK_ASKS
    for name in ("messages", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected at least 1")
    if options.uvloop and find_spec("uvloop") is None:
        parser.error("--uvloop: it is not installed; expected: pip install uvloop")
    return options


def _sizes(text: str) -> tuple[int, ...]:
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of actors, each at least 1, as 10,1000")
    return tuple(dict.fromkeys(sizes))


def run(options: argparse.Namespace) -> list[Row]:
    """Measure. Raises BenchError when a child fails, which it does when messages were lost."""
    jobs = {
        Job(size, design): ["-m", "callboard.bench.actor_designs", design, *map(str, _work(options, size))]
        for size in options.actors
        for design in LABELS
        if (options.uvloop or design not in UVLOOP) and (design != PYKKA or size <= PYKKA_MAX)
    }
    figures: Figures = {job: [] for job in jobs}
    done = interleaved(jobs, options.rounds, TIMEOUT_S)
    console = Console(stderr=True)
    for job, found in track(
        done, "actors", options.rounds * len(jobs), console=console, disable=not console.is_terminal
    ):
        figures[job].append(found)
    return [_row(figures, job) for job in jobs]


def _work(options: argparse.Namespace, size: int) -> tuple[int, int, int]:
    return size, max(options.messages, MESSAGES_EACH_MIN * size), options.asks


def _row(figures: Figures, job: Job) -> Row:
    own = figures[job]
    return Row(
        job.actors,
        job.design,
        {name: median_known([each[name] for each in own]) for name in own[0]},
        _ratios(own, figures[Job(job.actors, TASKS)]),
        _ratios(own, figures.get(Job(job.actors, PYKKA))),
    )


def _ratios(own: Sequence[Found], base: Sequence[Found] | None) -> dict[str, float]:
    if base is None:
        return {}
    return {name: ratios(_rates(own, name), _rates(base, name)).median for name in RATES}


def _rates(rounds: Sequence[Found], name: str) -> list[float]:
    return [rate for each in rounds if (rate := each[name]) is not None]


# Showing --------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    for size in options.actors:
        title = f"{size:,} actors, {_work(options, size)[1]:,} messages; median of {options.rounds}"
        print_table(title, COLUMNS, [_cells(row) for row in rows if row.actors == size], [])
    cells = [[aim.name, aim.aim, aim.measured or "not in this run"] for aim in _aims(rows)]
    print_table("Aims", ("", "aim", "measured"), cells, _notes())


def _cells(row: Row) -> list[str]:
    figures = row.figures
    return [
        LABELS[row.design],
        *(f"{_figure(figures[name], ',.0f')} ({row.x_tasks[name]:.2f})" for name in RATES),
        _figure(figures["ask_p50_us"], ".1f"),
        _figure(figures["ask_p99_us"], ".1f"),
        _figure(figures["start_us"], ".1f"),
        _figure(figures["bytes"], ",.0f"),
        _figure(figures["stop_s"], ".3f"),
    ]


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _aims(rows: Sequence[Row]) -> list[Aim]:
    loops = {row.actors: row for row in rows if row.design == LOOP}

    def at(size: int, show: Callable[[Row], str]) -> str | None:
        return show(loops[size]) if size in loops else None

    weighed = [row for row in loops.values() if row.figures["bytes"] is not None]
    idle = max(weighed, key=lambda row: row.actors).figures["bytes"] if weighed else None
    return [
        Aim("loop against asyncio tasks, 10,000 actors", ">= 2x", at(10_000, lambda row: _times(row.x_tasks))),
        Aim("loop against pykka ThreadingActor, 1,000 actors", ">= 20x", at(1000, lambda row: _times(row.x_pykka))),
        Aim(
            "an idle actor of the loop, with three attributes", "<= 1,500 B", None if idle is None else f"{idle:,.0f} B"
        ),
        Aim("stop_all of 100,000", "< 2 s", at(100_000, lambda row: f"{row.figures['stop_s']:.2f} s")),
    ]


def _times(ratio: dict[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('_per_s')} {ratio[name]:.1f}x" for name in RATES)


def _notes() -> list[str]:
    return [
        "No message was lost or counted twice: the actors' counts add up to what was sent, in every run.",
        "Flood: all messages are sent at once, to actors at random. It rewards who drains one queue after the other: a "
        f"task does, without a bound; an actor gives way after 64. Bursts: {BURST} messages, the next when those are "
        f"handled, as a server meets them. Hops: {TOKENS} tokens are passed from actor to actor.",
        "Ask: one question at a time, from the loop or, for threads, from the main thread. Start: until the last one "
        "has answered. Stop all: until the youngest to the oldest has stopped; pykka's registry is a list, and takes "
        "a time that grows with the square of their number.",
        "Idle: resident bytes for each, with the three attributes that the bench's actor has (the floor's row shows "
        "them); a thread's kernel memory comes on top. Too few to be told from the allocator's reserve: left out.",
        f"Pykka's threads run up to {PYKKA_MAX:,} actors here.",
    ]


def _plain(options: argparse.Namespace, rows: Sequence[Row]) -> dict[str, Any]:
    """The result for ``--json``: rates a second, times as their names say, bytes for each actor."""
    return {
        "bench": "actors",
        "machine": machine(),
        "messages": options.messages,
        "rounds": options.rounds,
        "rows": [row._asdict() for row in rows],
        "aims": [aim._asdict() for aim in _aims(rows)],
    }


if __name__ == "__main__":
    raise SystemExit(main())
