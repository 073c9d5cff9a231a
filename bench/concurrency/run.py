"""The laboratory's parent process: options, a fresh process for each measurement, progress, tables, the report.

If a process fails, hangs or prints invalid output, its measurement is FAILED, with the end of its standard error, and
the run continues. If the oracle finds an error, the engine is WRONG and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

from callboard.bench.concurrency import compare, histograms, plots, report
from callboard.bench.concurrency.builds import (
    THIS_PYTHON,
    check_pythons,
    describe_builds,
    doubled_cores,
    free_threaded_pythons,
)
from callboard.bench.concurrency.findings import case_name, key_sentences
from callboard.bench.concurrency.own_code import UnknownName
from callboard.bench.concurrency.plan import (
    Case,
    MeasurementStep,
    Plan,
    duration,
    make_plan,
    step_timeout_s,
    total_duration_s,
)
from callboard.bench.concurrency.progress import ProgressDisplay, progress
from callboard.bench.concurrency.report import COLUMNS
from callboard.bench.concurrency.results import (
    BASE,
    RIGHT,
    WRONG,
    LabRun,
    Measurement,
    Summary,
    SummaryTable,
    failure,
    read_line,
    summaries,
)
from callboard.bench.concurrency.schema import json_schema
from callboard.bench.concurrency.styles import percent, rate, times
from callboard.bench.concurrency.sweep import sweep
from callboard.bench.harness import BenchError, ChildProcess, machine, print_table
from callboard.runtime.common.python_build import python_build

CHILD = ("-m", "callboard.bench.concurrency.measured_process")
PURPOSE = "Compare actors, locks and event loops for one coordinator under the same load, and write a report."
OUT = Path("concurrency-report")
UNSENT_MAX = 0.01  # with a larger share of unsent requests an engine has not reached the rate
RATE_MAX = 1_000_000.0

SECONDS, ROUNDS = 2.0, 5
QUICK_SECONDS, QUICK_ROUNDS = 0.2, 1
QUICK_GROUPS_MAX = 1000
QUICK_BUDGET_S = 45.0  # for measurements; with start, plots and page the run takes under a minute


class Catalogue(NamedTuple):
    """All engines and workloads, by id."""

    engines: dict[str, dict[str, Any]]
    workloads: dict[str, dict[str, Any]]


def main(argv: Sequence[str] | None = None, child: Sequence[str] = CHILD) -> int:
    """Measure, write the files, print the tables; returns 1 if an engine was wrong or nothing could be run.

    With ``--compare``, only compare two files: see ``compare.main``.

    ``child`` is the command of the measured process after ``python``.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    options = parse(arguments, catalogue())
    if options.schema:
        print(json.dumps(json_schema(), indent=2))
        return 0
    if options.compare:
        return compare.main(*options.compare)
    try:
        if options.histograms and not histograms.is_installed():
            raise BenchError("--histograms needs hdrhistogram; run: pip install 'callboard[bench]'")
        child = (*child, "--histogram") if options.histograms else child
        if not (options.cores or options.pythons):
            return _run(options, arguments, child)
        for text in describe_builds(check_pythons(options.pythons)):
            print(text)
        return sweep(
            options,
            lambda options, variant: _run(options, arguments, (*child, *variant.arguments), variant.python),
        )
    except BenchError as error:
        print(f"concurrency: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, arguments: Sequence[str], child: Sequence[str], python: str = THIS_PYTHON) -> int:
    if options.html:
        plots.require()
    run = report.load(options.results) if options.results else measure(options, arguments, child, python)
    table = summaries(run)
    paths = [] if options.results else report.write_numbers(options.output, run)
    show(run, table)
    if options.html:
        paths.append(report.write_html(options.output, run, table))
    for path in paths:
        print(f"wrote {path}")
    return exit_code(run)


def exit_code(run: LabRun) -> int:
    """1 if an engine was wrong, or no measurement was right."""
    statuses = {measurement.status for measurement in run.measurements}
    return 1 if WRONG in statuses or RIGHT not in statuses else 0


# Options --------------------------------------------------------------------------------------------------------------


def catalogue() -> Catalogue:
    """All engines and workloads."""
    from callboard.bench.concurrency.engines import ENGINES
    from callboard.bench.concurrency.workloads import WORKLOADS

    return Catalogue({name: engine_row(name) for name in ENGINES}, {name: workload_row(name) for name in WORKLOADS})


def engine_row(name: str) -> dict[str, Any]:
    """What the report needs of an engine. Raises UnknownName."""
    from callboard.bench.concurrency.engines import find_engine

    spec = find_engine(name)
    return {
        "label": spec.label,
        "max_groups": spec.max_groups,
        "has_locks": spec.has_locks,
        "has_loop": spec.has_loop,
    }


def workload_row(name: str) -> dict[str, Any]:
    """What the report needs of a workload. Raises UnknownName."""
    from callboard.bench.concurrency.workloads import find_workload

    spec = find_workload(name)
    return {"label": spec.label, "shows": spec.shows, "groups": list(spec.groups)}


def parse(arguments: Sequence[str], available: Catalogue) -> argparse.Namespace:
    """Parse and check the options; exits with a message about the first invalid one."""
    parser = _parser(available)
    options = parser.parse_args(arguments)
    if options.seconds is None:
        options.seconds = QUICK_SECONDS if options.quick else SECONDS
    if options.rounds is None:
        options.rounds = QUICK_ROUNDS if options.quick else ROUNDS
    for name in ("seconds", "rounds"):
        if not 0 < getattr(options, name) < float("inf"):
            parser.error(f"--{name} {getattr(options, name)}: expected more than 0")
    if not 0 <= options.rate <= RATE_MAX:
        parser.error(f"--rate {options.rate}: expected 0 to {RATE_MAX:,.0f}")
    available_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    if options.cores and max(options.cores) > available_cores:
        parser.error(f"--cores {max(options.cores)}: expected at most {available_cores}, the cores of this process")
    if options.sweep:
        options.cores = options.cores or doubled_cores(available_cores)
        options.pythons = options.pythons or [THIS_PYTHON, *free_threaded_pythons()]
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: expected 0 or more")
    if options.output.exists() and not options.output.is_dir():
        parser.error(f"--output {options.output}: found a file, expected a folder")
    options.engines = {name: available.engines[name] for name in options.engines}
    options.workloads = {name: available.workloads[name] for name in options.workloads}
    try:
        options.engines |= {path: engine_row(path) for path in options.engine}
        options.workloads |= {path: workload_row(path) for path in options.workload}
    except UnknownName as error:
        parser.error(str(error))
    return options


def _parser(available: Catalogue) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="callboard bench concurrency", description=PURPOSE)
    all_engines, all_workloads = list(available.engines), list(available.workloads)
    parser.add_argument(
        "--engines", type=_names("engine", all_engines), default=all_engines, metavar="A,B", help=_choices(all_engines)
    )
    parser.add_argument(
        "--workloads",
        type=_names("workload", all_workloads),
        default=all_workloads,
        metavar="A,B",
        help=_choices(all_workloads),
    )
    parser.add_argument(
        "--engine", action="append", default=[], metavar="MODULE:CLASS", help="also an engine of your own; repeatable"
    )
    parser.add_argument(
        "--workload", action="append", default=[], metavar="MODULE:NAME", help="also a workload of your own; repeatable"
    )
    parser.add_argument("--groups", type=_sizes, metavar="N,N", help="numbers of groups (default: the workload's)")
    parser.add_argument(
        "--seconds", type=float, metavar="SECONDS", help=f"seconds of each measurement (default {SECONDS:g})"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"measurements of each kind (default {ROUNDS})")
    _add_variants(parser)
    parser.add_argument(
        "--seed", type=int, metavar="N", default=1, help="seed of the requests and of the order (default 1)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=OUT, metavar="DIR", help=f"folder for the output files (default ./{OUT})"
    )
    parser.add_argument(
        "--histograms", action="store_true", help="also keep the latencies as HdrHistograms; needs hdrhistogram"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of less than a minute")
    parser.add_argument("--no-html", dest="html", action="store_false", help="write no page; does not need matplotlib")
    no_measurement = parser.add_mutually_exclusive_group()
    no_measurement.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar=("OLD", "NEW"),
        help="only compare these two results.json: requests/s and CPU per request",
    )
    no_measurement.add_argument("--schema", action="store_true", help="only print the JSON Schema of results.json")
    no_measurement.add_argument(
        "--results", type=Path, metavar="FILE", help="only write the report of this results.json"
    )
    return parser


def _add_variants(parser: argparse.ArgumentParser) -> None:
    """How the load is measured: with a rate, and with other cores and Pythons."""
    parser.add_argument(
        "--rate",
        type=float,
        default=0,
        metavar="N",
        help="send N requests per second, due at fixed times (default 0: the next request follows a response)",
    )
    parser.add_argument(
        "--cores",
        type=_sizes,
        default=[],
        metavar="N,N",
        help="measure with so many cores, one number after the other, and compare (default: all cores)",
    )
    parser.add_argument(
        "--pythons",
        type=_python_names,
        default=[],
        metavar="A,B",
        help="measure with these interpreters, one after the other, and compare (default: this one)",
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="measure with 1, 2, 4... and all cores, and with each free-threaded Python on PATH beside this one",
    )


def _choices(names: Sequence[str]) -> str:
    return f"some of: {', '.join(names)} (default: all)"


def _names(kind: str, available: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        requested = [name.strip() for name in text.split(",")]
        unknown = [name for name in requested if name not in available]
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no {kind} {unknown[0]!r}; there are: {', '.join(available)}")
        return list(dict.fromkeys(requested))

    return names


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    invalid = [part for part in parts if not part.isdecimal() or int(part) < 1]
    if invalid:
        raise argparse.ArgumentTypeError(f"{invalid[0]!r}: expected numbers of at least 1, for example 100,1000")
    return sorted({int(part) for part in parts})


def _python_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    missing = [name for name in names if not which(name)]
    if missing:
        raise argparse.ArgumentTypeError(f"found no interpreter {missing[0]!r}; expected for example python3.13t")
    return list(dict.fromkeys(names))


def cases(options: argparse.Namespace) -> list[Case]:
    """The workloads with their numbers of groups. ``--groups`` does not apply to workloads of one group."""
    cases = []
    for name, properties in options.workloads.items():
        sizes: list[int] = properties["groups"]
        if options.groups and sizes != [1]:
            sizes = options.groups
        elif options.quick:
            sizes = [min(max(sizes), QUICK_GROUPS_MAX)]
        cases += [Case(name, size) for size in sizes]
    return cases


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(
    options: argparse.Namespace, arguments: Sequence[str], child: Sequence[str], python: str = THIS_PYTHON
) -> LabRun:
    """Run the plan. An interrupt ends it early; finished measurements are kept."""
    limits = {name: properties["max_groups"] for name, properties in options.engines.items()}
    plan = make_plan(cases(options), limits, options.rounds, options.seconds, options.seed, options.rate)
    if not plan.steps:
        raise BenchError(f"nothing to run: {'; '.join(plan.left_out)}; give fewer groups or other engines")
    for description in plan.left_out:
        print(f"left out: {description}")
    print(f"{len(plan.steps)} measurements, about {duration(total_duration_s(plan.steps))} with the report")
    budget_s = QUICK_BUDGET_S if options.quick else None
    with progress(plan.steps) as display:
        measured = list(_until_interrupted(measurements(plan, child, display, budget_s, time.monotonic, python)))
    pythons = [measurement.python for measurement in measured if measurement.python]
    return LabRun(
        date=datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        command=shlex.join(["callboard", "bench", "concurrency", *arguments]),
        machine=machine(),
        python={"build": python or python_build(), **(pythons[0] if pythons else {})},
        options=_options_for_json(options),
        engines=options.engines,
        workloads=options.workloads,
        planned=len(plan.steps),
        left_out=plan.left_out,
        measurements=measured,
    )


def _until_interrupted(measured: Iterator[Measurement]) -> Iterator[Measurement]:
    try:
        yield from measured
    except KeyboardInterrupt:
        print("interrupted; the report has the finished measurements", file=sys.stderr)


def measurements(
    plan: Plan,
    child: Sequence[str],
    display: ProgressDisplay,
    budget_s: float | None,
    now_s: Callable[[], float],
    python: str = THIS_PYTHON,
) -> Iterator[Measurement]:
    """The measurement of every step. With a budget, no step starts after it is spent."""
    end_s = None if budget_s is None else now_s() + budget_s
    for step in plan.steps:
        left_s = None if end_s is None else end_s - now_s()
        if left_s is not None and left_s <= 0:
            return
        display.begin(step)
        timeout_s = step_timeout_s(step) if left_s is None else min(step_timeout_s(step), left_s)
        measurement = measure_once(step, child, timeout_s, python)
        display.end(measurement)
        yield measurement


def measure_once(
    step: MeasurementStep, child: Sequence[str], timeout_s: float, python: str = THIS_PYTHON
) -> Measurement:
    """Run one measurement in a new process."""
    name = f"{step.engine} on {step.workload}"
    try:
        with ChildProcess([*child, *step.arguments()], name, python or sys.executable) as process:
            line = process.read_line(timeout_s)
        return read_line(step, line)
    except BenchError as error:
        return failure(step, str(error))


def _options_for_json(options: argparse.Namespace) -> dict[str, Any]:
    names: Mapping[str, Any] = vars(options)
    chosen = {name: names[name] for name in ("groups", "seconds", "rounds", "rate", "seed", "quick")}
    return {**chosen, "engines": list(options.engines), "workloads": list(options.workloads)}


# Tables ---------------------------------------------------------------------------------------------------------------


def show(run: LabRun, table: SummaryTable) -> None:
    """Print a table for each workload, and a summary."""
    if run.options.get("rate"):
        print(f"\nopen loop: {rate(run.options['rate'])} requests/s are due; latencies begin when a request was due")
    for case, case_summaries in table.items():
        print()
        names = ("engine", "requests/s", "spread", f"of {BASE}", *(column.heading for column in COLUMNS))
        rows = [_row(summary) for summary in case_summaries.values()]
        columns, notes = [name.replace(" ", "\n") for name in names], _notes(case_summaries)
        print_table(case_name(case), columns, rows, notes, str(run.python.get("build", "")))
    for sentence in key_sentences(run, table):
        print(sentence)


def _row(summary: Summary) -> list[str]:
    if summary.throughput is None:
        return [summary.engine, summary.status, *[""] * (2 + len(COLUMNS))]
    median, spread = summary.throughput
    figures = [column.write(summary.figure(column.figure)) for column in COLUMNS]
    return [
        summary.engine,
        f"{rate(median)} starved" if summary.is_starved else rate(median),
        percent(spread if len(summary.rounds) > 1 else None),
        times(summary.ratio),
        *figures,
    ]


def _notes(case_summaries: Mapping[str, Summary]) -> list[str]:
    reasons = [f"{name}: {reason}" for name, summary in case_summaries.items() for reason in summary.reasons]
    return [*reasons, *(_unsent(summary) for summary in case_summaries.values() if summary.unsent_share > UNSENT_MAX)]


def _unsent(summary: Summary) -> str:
    return (
        f"{summary.engine} did not keep up: {percent(summary.unsent_share)} of the requests that were due were not sent"
    )
