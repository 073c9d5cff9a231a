"""``callboard bench actors``: the cost of an actor, compared with asyncio tasks, pykka's threads and a bare deque.

The same actors do the same work in all designs (``actor_designs.py``); at the end their counts must equal the number of
messages sent. Each measurement runs in a new process; rounds of all designs are interleaved, and ratios are computed
within a round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from callboard.bench.actor_designs import BURST, TOKENS, WORKERS
from callboard.bench.harness import (
    BenchError,
    add_output,
    interleaved,
    machine,
    median_or_none,
    print_table,
    ratios,
    write_json,
)

TASKS = "tasks"
LOOP = "loop"
PYKKA = "pykka"
LABELS = {
    "deque": "bare deque (lower bound)",
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

PYKKA_MAX = 2000  # threads; with ten thousand, starting and switching take minutes
MESSAGES_EACH_MIN = 2  # so that most of a hundred thousand actors get some
ASKS = 3000
QUICK_ACTORS = (10, 1000, 10_000)
QUICK_MESSAGES = 20_000
QUICK_ASKS = 500
TIMEOUT_S = 900.0  # of one child
PURPOSE = "Compare actors on all dispatchers with asyncio tasks and queues, pykka's ThreadingActor and a bare deque."

COLUMNS = (
    "design",
    *(f"{name.removesuffix('_per_s')}/s\n(x tasks)" for name in RATES),
    "ask p50\nus",
    "ask p99\nus",
    "start\nus each",
    "idle\nB each",
    "stop all\ns",
)


class DesignRun(NamedTuple):
    actors: int
    design: str


Found = dict[str, float | None]
Figures = dict[DesignRun, list[Found]]  # a round each


class Row(NamedTuple):
    """Medians over the rounds of a design at a size. ``x_*``: medians of the rounds' ratios of rates."""

    actors: int
    design: str
    figures: Found
    x_tasks: dict[str, float]
    x_pykka: dict[str, float]


class Aim(NamedTuple):
    """A target and the measured value; None if this run did not measure it."""

    name: str
    aim: str
    measured: str | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON; returns 1 if counts were wrong or a design did not run."""
    options = _options(argv)
    try:
        rows = run(options)
    except BenchError as error:
        print(f"actors: {error}", file=sys.stderr)
        return 1
    _show(options, rows)
    if options.output is not None:
        write_json(options.output, _to_json(options, rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="callboard bench actors", description=PURPOSE)
    parser.add_argument(
        "--actors", type=_sizes, default=(10, 1000, 10_000, 100_000), metavar="N,N", help="(10,1000,10000,100000)"
    )
    parser.add_argument(
        "--messages", type=int, metavar="N", default=200_000, help="messages of each kind of work (default 200000)"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", default=3, help="rounds of each design at each size (default 3)"
    )
    parser.add_argument("--uvloop", action="store_true", help="also measure actors and tasks on uvloop")
    add_output(parser)
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
        parser.error("--uvloop: uvloop is not installed; run: pip install uvloop")
    return options


def _sizes(text: str) -> tuple[int, ...]:
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of actors, each at least 1, as 10,1000")
    return tuple(dict.fromkeys(sizes))


def run(options: argparse.Namespace) -> list[Row]:
    """Measure. Raises BenchError if a child process fails, as it does when messages were lost."""
    jobs = {
        DesignRun(size, design): ["-m", "callboard.bench.actor_designs", design, *map(str, _work(options, size))]
        for size in options.actors
        for design in LABELS
        if (options.uvloop or design not in UVLOOP) and (design != PYKKA or size <= PYKKA_MAX)
    }
    figures: Figures = {job: [] for job in jobs}
    results = interleaved(jobs, options.rounds, TIMEOUT_S)
    console = Console(stderr=True)
    for job, result in track(
        results, "actors", options.rounds * len(jobs), console=console, disable=not console.is_terminal
    ):
        figures[job].append(result)
    return [_row(figures, job) for job in jobs]


def _work(options: argparse.Namespace, size: int) -> tuple[int, int, int]:
    return size, max(options.messages, MESSAGES_EACH_MIN * size), options.asks


def _row(figures: Figures, job: DesignRun) -> Row:
    results = figures[job]
    return Row(
        job.actors,
        job.design,
        {name: median_or_none([result[name] for result in results]) for name in results[0]},
        _ratios(results, figures[DesignRun(job.actors, TASKS)]),
        _ratios(results, figures.get(DesignRun(job.actors, PYKKA))),
    )


def _ratios(results: Sequence[Found], base_results: Sequence[Found] | None) -> dict[str, float]:
    if base_results is None:
        return {}
    return {name: ratios(_rates(results, name), _rates(base_results, name)).median for name in RATES}


def _rates(rounds: Sequence[Found], name: str) -> list[float]:
    return [rate for result in rounds if (rate := result[name]) is not None]


# Showing --------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    for size in options.actors:
        title = f"{size:,} actors, {_work(options, size)[1]:,} messages; median of {options.rounds}"
        print_table(title, COLUMNS, [_cells(row) for row in rows if row.actors == size], [])
    cells = [[aim.name, aim.aim, aim.measured or "not in this run"] for aim in _aims(rows)]
    print_table("Targets", ("", "target", "measured"), cells, _notes())


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

    def rate_at(size: int, show: Callable[[Row], str]) -> str | None:
        return show(loops[size]) if size in loops else None

    weighed = [row for row in loops.values() if row.figures["bytes"] is not None]
    idle_bytes = max(weighed, key=lambda row: row.actors).figures["bytes"] if weighed else None
    return [
        Aim(
            "actors on the loop to asyncio tasks, 10,000 actors",
            ">= 2x",
            rate_at(10_000, lambda row: _times(row.x_tasks)),
        ),
        Aim(
            "actors on the loop to pykka's, 1,000 actors",
            ">= 20x",
            rate_at(1000, lambda row: _times(row.x_pykka)),
        ),
        Aim(
            "memory of an idle actor, three attributes",
            "<= 1,500 B",
            None if idle_bytes is None else f"{idle_bytes:,.0f} B",
        ),
        Aim("stop_all of 100,000", "< 2 s", rate_at(100_000, lambda row: f"{row.figures['stop_s']:.2f} s")),
    ]


def _times(ratio: dict[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('_per_s')} {ratio[name]:.1f}x" for name in RATES)


def _notes() -> list[str]:
    return [
        "No message was lost or counted twice: in every run the actors' counts equal the number of messages sent.",
        "Flood: all messages are sent at once, to random actors. This favours designs that empty one queue after the "
        f"other: a task does so without limit; an actor yields after 64 messages. Bursts: {BURST} messages, the next "
        f"burst after they are handled, as in a server. Hops: {TOKENS} tokens are passed from actor to actor.",
        "Ask: one request at a time, from the loop or, for threads, from the main thread. Start: until the last actor "
        "has replied. Stop all: until all actors have stopped, the newest first; with pykka the time grows with the "
        "square of their number, since its registry is a list.",
        "Idle: resident bytes per actor, including its three attributes (the row of the deque shows these alone), "
        "without a thread's kernel memory. Empty: too few actors to distinguish from the allocator's reserve.",
        f"Pykka's threads are measured with up to {PYKKA_MAX:,} actors.",
    ]


def _to_json(options: argparse.Namespace, rows: Sequence[Row]) -> dict[str, Any]:
    """The result for ``--output``: rates per second, times in the unit of their name, bytes per actor."""
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
