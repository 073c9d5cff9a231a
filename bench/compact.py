"""Compaction speed of one process, two processes and Spark, compared with copying the log's files.

A log is generated (``loggen``), and each of its partitions is compacted as ``callboard compact`` does it, by processes
that have already imported all modules. The copy reads, writes and syncs the same files, as a lower bound. Spark has two
threads for tasks, so it is compared with two processes. Its start is measured separately: until the session exists, and
until its Python workers have compacted some thousand records.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from callboard.bench.harness import BenchError, add_output, machine, print_table, ratios, summarise, write_json
from callboard.bench.loggen import LogShape, write_log
from callboard.bench.process_usage import ProcessUsage, descendants
from callboard.runtime.common.errors import StartError
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.job import CompactionJob, CompactionReport, run
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.manifest import FOLDER
from callboard.runtime.log.reading.columns import has_numpy
from callboard.runtime.log.reading.segment import CHUNK_BYTES

PURPOSE = __doc__.splitlines()[0]
AIM_RECORDS_S = 2_200_000  # per core, with numpy
MASTER = "local[2]"
WARM_UP = LogShape(5000, 4, groups=50, segment_bytes=50_000)
QUICK = {"records": 200_000, "partitions": 4, "groups": 500, "segment_bytes": 1 << 20, "rounds": 1}

Jobs = Callable[[Sequence[CompactionJob]], Sequence[CompactionReport]]


class CompactionSetup(NamedTuple):
    """How the log is compacted. ``workers``: processes, or Spark's threads. ``fast``: with numpy."""

    workers: int
    fast: bool
    on_spark: bool = False

    def __str__(self) -> str:
        count = f"{self.workers} process{'es' if self.workers > 1 else ''}"
        return f"{f'Spark, {MASTER}' if self.on_spark else count}, {'numpy' if self.fast else 'plain Python'}"


class CompactionRound(NamedTuple):
    """One compaction of the whole log. CPU time and memory exclude the process of the benchmark.

    ``java_cpu_s``: Java's part of the CPU time. ``kernel_s``: the sum of the partitions' times; the rest of the
    workers' time is scheduling.
    """

    seconds: float
    cpu_s: float
    java_cpu_s: float
    kernel_s: float
    records: int
    bytes_before: int
    bytes_after: int
    peak_bytes: int


class SparkStart(NamedTuple):
    """Seconds until Spark's session existed, and then until it had compacted a small log."""

    session_s: float
    first_s: float


class CompactionFigures(NamedTuple):
    """The measurements, in the order of the rounds in each list. ``starts`` is empty without Spark."""

    copies_s: list[float]
    rounds: dict[CompactionSetup, list[CompactionRound]]
    starts: list[SparkStart]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 if a log could not be written or compacted."""
    options = _options(argv)
    try:
        return _run(options)
    except (BenchError, OSError) as error:
        print(f"compact: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    shape = LogShape(
        options.records,
        options.partitions,
        groups=options.groups,
        segment_bytes=options.segment_bytes,
        transaction_rate=options.transaction_rate,
        burst_rate=options.burst_rate,
    )
    reason = spark_is_missing() if options.spark else "disabled by --no-spark"
    with tempfile.TemporaryDirectory(prefix="callboard-compact-", dir=options.data) as folder:
        began = time.perf_counter()
        written = write_log(Path(folder) / "log", shape, options.seed)
        written_s = time.perf_counter() - began
        write_log(Path(folder) / "small", WARM_UP)
        figures = measure(Path(folder), options.rounds, not reason)
    print_table(
        *_table(figures),
        [
            f"the log has {written.records:,} records in {written.files} files, generated in {written_s:.1f} s"
            f" ({written.records / written_s / 1e6:.1f} M records/s); the open file of each partition is not compacted",
            *([f"without Spark: {reason}"] if reason else _spark_notes(figures)),
            f"target with numpy: {AIM_RECORDS_S / 1e6:.1f} M records per CPU second",
        ],
    )
    if options.output is not None:
        result = {
            "log": {**written._asdict(), "seconds": written_s},
            "copies_s": figures.copies_s,
            "ways": {str(setup): [run._asdict() for run in rounds] for setup, rounds in figures.rounds.items()},
            "spark_starts": [start._asdict() for start in figures.starts],
            "machine": machine(),
        }
        write_json(options.output, result)
    return 0


def measure(folder: Path, rounds: int, with_spark: bool) -> CompactionFigures:
    """Measure each setup once per round, alternating, so that disturbances of the machine affect all of them alike.

    ``folder`` has the ``log``, and a ``small`` log for Spark's start.
    """
    setups = [CompactionSetup(count, fast) for fast in ([True] if has_numpy() else []) for count in (1, 2)] + [
        CompactionSetup(1, False)
    ]
    figures = CompactionFigures([], {setup: [] for setup in setups}, [])
    for _ in range(rounds):
        figures.copies_s.append(copy(folder / "log"))
        for setup in setups:
            with in_processes(setup.workers) as (run_all, workers):
                figures.rounds[setup].append(compact(folder / "log", setup, run_all, workers))
        if with_spark:
            setup = CompactionSetup(2, has_numpy(), on_spark=True)
            with on_spark(folder / "small", setup) as (run_all, start):
                figures.rounds.setdefault(setup, []).append(compact(folder / "log", setup, run_all))
            figures.starts.append(start)
    return figures


def copy(root: Path) -> float:
    """Seconds to read, write and sync all closed files of the log."""
    began = time.perf_counter()
    for folder in sorted(root.iterdir()):
        for path in sorted(folder.glob("*.log"))[:-1]:
            with path.open("rb") as source, (root / "copy").open("wb") as target:
                shutil.copyfileobj(source, target, CHUNK_BYTES)
                target.flush()
                os.fsync(target.fileno())
            (root / "copy").unlink()
    return time.perf_counter() - began


def compact(root: Path, setup: CompactionSetup, run_all: Jobs, other_pids: Iterable[int] = ()) -> CompactionRound:
    """Compact the log from the start, and restore it. ``other_pids``: processes that are not measured."""
    folders = _largest_first(root)
    settings = CompactionSettings(wall_clock_ms(), "bench", fast=setup.fast)
    with ProcessUsage(other_pids) as watch:
        began = time.perf_counter()
        reports = run_all([CompactionJob(folder, settings) for folder in folders])
        seconds = time.perf_counter() - began
    for folder in folders:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return CompactionRound(
        seconds,
        sum(watch.cpu_s.values()),
        watch.cpu_s.get("java", 0.0),
        sum(report.seconds for report in reports),
        sum(report.records_before for report in reports),
        sum(report.bytes_before for report in reports),
        sum(report.bytes_after for report in reports),
        watch.peak_bytes,
    )


def _largest_first(root: Path) -> list[Path]:
    return sorted(root.iterdir(), key=lambda path: -_size(path))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


# Running jobs ---------------------------------------------------------------------------------------------------


@contextmanager
def in_processes(count: int) -> Iterator[tuple[Jobs, set[int]]]:
    """A function that runs jobs in ``count`` processes, and the other child processes, which are not measured."""
    other_pids = descendants(os.getpid())
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        list(pool.map(warm_up, range(count * 4), chunksize=1))
        yield lambda jobs: _raise_on_failure(pool.map(run, jobs, chunksize=1)), other_pids


def warm_up(_number: int) -> None:
    """Import modules before the measurement; imports take as long as compacting a hundred thousand records."""
    if has_numpy():
        import callboard.runtime.log.reading.known_keys
        import callboard.runtime.log.reading.spans_fast  # noqa: F401
    time.sleep(0.05)  # so that each process gets one of these calls


def spark_is_missing() -> str:
    """Why Spark cannot be measured; empty if it can."""
    try:
        from callboard.spark.compaction import compactor

        compactor(MASTER)
    except (ModuleNotFoundError, StartError) as error:
        return str(error)
    return ""


@contextmanager
def on_spark(small: Path, setup: CompactionSetup) -> Iterator[tuple[Jobs, SparkStart]]:
    """A function that runs jobs on a warmed-up Spark, and the times of its start."""
    from callboard.spark.compaction import compactor, start_session

    began = time.perf_counter()
    with start_session(MASTER):  # the compactor uses this session
        session_s = time.perf_counter() - began
        runner = compactor(MASTER)

        def run_all(jobs: Sequence[CompactionJob]) -> list[CompactionReport]:
            return _raise_on_failure(runner(jobs, {job.folder: _size(job.folder) for job in jobs}, lambda _size: None))

        first_s = compact(small, setup, run_all).seconds
        yield run_all, SparkStart(session_s, first_s)


def _raise_on_failure(reports: Iterator[CompactionReport]) -> list[CompactionReport]:
    round_figures = list(reports)
    for report in round_figures:
        if report.status not in (
            "compacted",
            "nothing",
            "waiting",
        ):  # waiting: for a transaction that ends in the open file
            raise BenchError(f"{report.partition} is {report.status}: {report.reason}")
    return round_figures


# Output --------------------------------------------------------------------------------------------------------


def _table(figures: CompactionFigures) -> tuple[str, list[str], list[list[str]]]:
    first = next(iter(figures.rounds.values()))[0]
    mb_before, mb_after = first.bytes_before / 1e6, first.bytes_after / 1e6
    rows = [["copy of the files", f"{summarise(figures.copies_s).median:.2f}", "", "", "", "1.00", ""]]
    rows += [_row(setup, rounds, figures.copies_s) for setup, rounds in figures.rounds.items()]
    title = f"compacting {first.records:,} records in closed files, {mb_before:.1f} MB -> {mb_after:.1f} MB"
    return title, ["", "s", "M records/s", "M records/CPU s", "MB/s", "x copy", "peak MB"], rows


def _row(setup: CompactionSetup, figures: Sequence[CompactionRound], copies_s: Sequence[float]) -> list[str]:
    seconds = [run.seconds for run in figures]
    rate = summarise([run.records / run.seconds for run in figures]).median / 1e6
    core = [run.records / run.cpu_s for run in figures if run.cpu_s]
    speed = summarise([run.bytes_before / run.seconds for run in figures]).median / 1e6
    times, peak = ratios(seconds, copies_s).median, max(run.peak_bytes for run in figures)
    return [
        str(setup),
        f"{summarise(seconds).median:.2f}",
        f"{rate:.2f}",
        f"{summarise(core).median / 1e6:.2f}" if core else "",
        f"{speed:.0f}",
        f"{times:.2f}",
        f"{peak / 1e6:.0f}" if peak else "",
    ]


def _spark_notes(figures: CompactionFigures) -> Iterator[str]:
    spark_rounds = figures.rounds[CompactionSetup(2, has_numpy(), on_spark=True)]
    session_s, first_s = (summarise(column).median for column in zip(*figures.starts, strict=True))
    yield f"Spark's start: {session_s:.1f} s until its session exists, {first_s:.1f} s more for a first small log"
    inside = summarise([run.kernel_s / run.seconds / 2 for run in spark_rounds]).median
    core = [run.records / (run.cpu_s - run.java_cpu_s) / 1e6 for run in spark_rounds if run.cpu_s > run.java_cpu_s]
    java_s = summarise([run.java_cpu_s for run in spark_rounds]).median
    yield f"afterwards compaction takes {100 * inside:.0f} % of its two threads' time"
    if core:
        yield f"its Python workers compact {summarise(core).median:.2f} M records/CPU s; Java uses {java_s:.1f} s more"
    if beside := figures.rounds.get(CompactionSetup(2, has_numpy())):
        times = ratios([run.seconds for run in spark_rounds], [run.seconds for run in beside]).median
        yield f"without its start Spark takes {times:.2f} times as long as two processes"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench compact", description=PURPOSE)
    parser.add_argument(
        "--records",
        type=_positive,
        metavar="N",
        default=10_000_000,
        help="number of records in all partitions (%(default)s)",
    )
    parser.add_argument("--partitions", type=_positive, metavar="N", default=50, help="(%(default)s)")
    parser.add_argument("--groups", type=_positive, metavar="N", default=5000, help="number of groups (%(default)s)")
    parser.add_argument(
        "--segment-bytes", type=_positive, metavar="N", default=4 << 20, help="size of the log's files (%(default)s)"
    )
    parser.add_argument(
        "--transaction-rate",
        type=float,
        metavar="RATIO",
        default=0.02,
        help="share of batches that begin a transaction (%(default)s)",
    )
    parser.add_argument(
        "--burst-rate",
        type=float,
        metavar="RATIO",
        default=0.01,
        help="share of commits that begin a burst (%(default)s)",
    )
    parser.add_argument("--rounds", type=_positive, metavar="N", default=3, help="each way so often (%(default)s)")
    parser.add_argument("--seed", type=int, metavar="N", default=1, help="(%(default)s)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder for the log, which is removed afterwards")
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True, help="also measure Spark")
    parser.add_argument("--quick", action="store_true", help="one round of 200,000 records, as a smoke test")
    add_output(parser)
    if "--quick" in (sys.argv[1:] if argv is None else argv):
        parser.set_defaults(**QUICK)
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return number
