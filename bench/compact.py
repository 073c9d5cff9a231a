"""How fast a log is compacted: by one process, by two and by Spark, beside a copy of its files.

A log is made up (``loggen``), and each of its partitions is compacted as ``callboard compact`` does it, by processes
that have imported everything before the clock starts. The copy reads and writes the same files in chunks and syncs
them: what any tool would need that looks at nothing. Spark has two threads for tasks, so it is set beside two
processes. Its start has a clock of its own: until its session is there, and until its Python workers have compacted
some thousand records.
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

from callboard.bench.harness import BenchError, machine, print_table, ratios, summarise, write_json
from callboard.bench.loggen import Shape, write_log
from callboard.bench.tree import Watch, descendants
from callboard.runtime.common.errors import StartError
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.job import Job, Report, run
from callboard.runtime.log.compaction.swap import Settings
from callboard.runtime.log.manifest import FOLDER
from callboard.runtime.log.reading.segment import CHUNK_BYTES
from callboard.runtime.log.reading.spans import has_numpy

PURPOSE = __doc__.splitlines()[0]
AIM_RECORDS_S = 2_200_000  # a core, with numpy
MASTER = "local[2]"
WARM_UP = Shape(5000, 4, groups=50, segment_bytes=50_000)
QUICK = {"records": 200_000, "partitions": 4, "groups": 500, "segment_bytes": 1 << 20, "rounds": 1}

Jobs = Callable[[Sequence[Job]], Sequence[Report]]


class Way(NamedTuple):
    """How the log is compacted. ``workers``: processes, or threads of Spark; ``fast``: with numpy."""

    workers: int
    fast: bool
    on_spark: bool = False

    def __str__(self) -> str:
        count = f"{self.workers} process{'es' if self.workers > 1 else ''}"
        return f"{f'Spark, {MASTER}' if self.on_spark else count}, {'numpy' if self.fast else 'plain Python'}"


class Round(NamedTuple):
    """One compaction of the whole log. CPU time and memory are those of all processes but this one.

    ``java_cpu_s``: of the CPU time, that of Java. ``kernel_s``: what the partitions took, added up; the rest of the
    workers' time is that of who gives them work.
    """

    seconds: float
    cpu_s: float
    java_cpu_s: float
    kernel_s: float
    records: int
    bytes_before: int
    bytes_after: int
    peak_bytes: int


class Start(NamedTuple):
    """Seconds until Spark's session was there, and then for the first small log."""

    session_s: float
    first_s: float


class Found(NamedTuple):
    """What was measured, one after the other in each list. No starts without Spark."""

    copies_s: list[float]
    rounds: dict[Way, list[Round]]
    starts: list[Start]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 when a log could not be written or compacted."""
    options = _options(argv)
    try:
        return _run(options)
    except (BenchError, OSError) as error:
        print(f"compact: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    shape = Shape(
        options.records,
        options.partitions,
        groups=options.groups,
        segment_bytes=options.segment_bytes,
        transaction_rate=options.transaction_rate,
        burst_rate=options.burst_rate,
    )
    reason = spark_is_missing() if options.spark else "as --no-spark says"
    with tempfile.TemporaryDirectory(prefix="callboard-compact-", dir=options.folder) as folder:
        began = time.perf_counter()
        written = write_log(Path(folder) / "log", shape, options.seed)
        written_s = time.perf_counter() - began
        write_log(Path(folder) / "small", WARM_UP)
        found = measure(Path(folder), options.rounds, not reason)
    print_table(
        *_table(found),
        [
            f"the log has {written.records:,} records in {written.files} files, made up in {written_s:.1f} s"
            f" ({written.records / written_s / 1e6:.1f} M records/s); the open file of each partition is left",
            *([f"without Spark: {reason}"] if reason else _of_spark(found)),
            f"aim with numpy: {AIM_RECORDS_S / 1e6:.1f} M records for each second of CPU",
        ],
    )
    if options.json is not None:
        told = {
            "log": {**written._asdict(), "seconds": written_s},
            "copies_s": found.copies_s,
            "ways": {str(way): [one._asdict() for one in rounds] for way, rounds in found.rounds.items()},
            "spark_starts": [start._asdict() for start in found.starts],
            "machine": machine(),
        }
        write_json(options.json, told)
    return 0


def measure(folder: Path, rounds: int, with_spark: bool) -> Found:
    """Each way once a round, in turn, so that all of them meet the same troubles of the machine.

    ``folder`` has the ``log``, and a ``small`` one for Spark's start.
    """
    ways = [Way(count, fast) for fast in ([True] if has_numpy() else []) for count in (1, 2)] + [Way(1, False)]
    found = Found([], {way: [] for way in ways}, [])
    for _ in range(rounds):
        found.copies_s.append(copy(folder / "log"))
        for way in ways:
            with in_processes(way.workers) as (run_all, others):
                found.rounds[way].append(compact(folder / "log", way, run_all, others))
        if with_spark:
            way = Way(2, has_numpy(), on_spark=True)
            with on_spark(folder / "small", way) as (run_all, start):
                found.rounds.setdefault(way, []).append(compact(folder / "log", way, run_all))
            found.starts.append(start)
    return found


def copy(root: Path) -> float:
    """Seconds to read, write and sync all files of the log that are closed."""
    began = time.perf_counter()
    for folder in sorted(root.iterdir()):
        for path in sorted(folder.glob("*.log"))[:-1]:
            with path.open("rb") as source, (root / "copy").open("wb") as target:
                shutil.copyfileobj(source, target, CHUNK_BYTES)
                target.flush()
                os.fsync(target.fileno())
            (root / "copy").unlink()
    return time.perf_counter() - began


def compact(root: Path, way: Way, run_all: Jobs, others: Iterable[int] = ()) -> Round:
    """Compact the log from the start, and leave it as it was. ``others``: processes that have no part in it."""
    folders = _largest_first(root)
    settings = Settings(wall_clock_ms(), "bench", fast=way.fast)
    with Watch(others) as watch:
        began = time.perf_counter()
        reports = run_all([Job(folder, settings) for folder in folders])
        seconds = time.perf_counter() - began
    for folder in folders:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return Round(
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


# Who runs the jobs ---------------------------------------------------------------------------------------------------


@contextmanager
def in_processes(count: int) -> Iterator[tuple[Jobs, set[int]]]:
    """What runs jobs in so many processes, and which processes have nothing to do with it."""
    others = descendants(os.getpid())
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        list(pool.map(warm_up, range(count * 4), chunksize=1))
        yield lambda jobs: _none_failed(pool.map(run, jobs, chunksize=1)), others


def warm_up(_number: int) -> None:
    """What the first run imports takes as long as a hundred thousand records."""
    if has_numpy():
        import callboard.runtime.log.reading.known_keys
        import callboard.runtime.log.reading.spans_fast  # noqa: F401
    time.sleep(0.05)  # so that no process takes the turns of another


def spark_is_missing() -> str:
    """Why Spark cannot be measured here; empty where it can."""
    try:
        from callboard.spark.compaction import compactor

        compactor(MASTER)
    except (ModuleNotFoundError, StartError) as error:
        return str(error)
    return ""


@contextmanager
def on_spark(small: Path, way: Way) -> Iterator[tuple[Jobs, Start]]:
    """What runs jobs on a Spark whose Python workers run already, and how long all that took."""
    from callboard.spark.compaction import compactor, start_session

    began = time.perf_counter()
    with start_session(MASTER):  # which those that want one later then take
        session_s = time.perf_counter() - began
        runner = compactor(MASTER)

        def run_all(jobs: Sequence[Job]) -> list[Report]:
            return _none_failed(runner(jobs, {job.folder: _size(job.folder) for job in jobs}, lambda _size: None))

        first_s = compact(small, way, run_all).seconds
        yield run_all, Start(session_s, first_s)


def _none_failed(reports: Iterator[Report]) -> list[Report]:
    found = list(reports)
    for report in found:
        if report.status not in ("compacted", "nothing", "waiting"):  # for a transaction that ends in the open file
            raise BenchError(f"{report.partition} is {report.status}: {report.reason}")
    return found


# What is shown -------------------------------------------------------------------------------------------------------


def _table(found: Found) -> tuple[str, list[str], list[list[str]]]:
    one = next(iter(found.rounds.values()))[0]
    before, after = one.bytes_before / 1e6, one.bytes_after / 1e6
    rows = [["copy of the files", f"{summarise(found.copies_s).median:.2f}", "", "", "", "1.00", ""]]
    rows += [_row(way, rounds, found.copies_s) for way, rounds in found.rounds.items()]
    title = f"compacting {one.records:,} records in closed files, {before:.1f} MB -> {after:.1f} MB"
    return title, ["", "s", "M records/s", "and CPU s", "MB/s", "x copy", "peak MB"], rows


def _row(way: Way, found: Sequence[Round], copies_s: Sequence[float]) -> list[str]:
    seconds = [one.seconds for one in found]
    rate = summarise([one.records / one.seconds for one in found]).median / 1e6
    core = [one.records / one.cpu_s for one in found if one.cpu_s]
    speed = summarise([one.bytes_before / one.seconds for one in found]).median / 1e6
    times, peak = ratios(seconds, copies_s).median, max(one.peak_bytes for one in found)
    return [
        str(way),
        f"{summarise(seconds).median:.2f}",
        f"{rate:.2f}",
        f"{summarise(core).median / 1e6:.2f}" if core else "",
        f"{speed:.0f}",
        f"{times:.2f}",
        f"{peak / 1e6:.0f}" if peak else "",
    ]


def _of_spark(found: Found) -> Iterator[str]:
    on_it = found.rounds[Way(2, has_numpy(), on_spark=True)]
    session_s, first_s = (summarise(column).median for column in zip(*found.starts, strict=True))
    yield f"Spark's start: {session_s:.1f} s until its session is there, {first_s:.1f} s more with a first small log"
    inside = summarise([one.kernel_s / one.seconds / 2 for one in on_it]).median
    core = [one.records / (one.cpu_s - one.java_cpu_s) / 1e6 for one in on_it if one.cpu_s > one.java_cpu_s]
    java_s = summarise([one.java_cpu_s for one in on_it]).median
    yield f"then the kernel has {100 * inside:.0f} % of its two threads' time"
    if core:
        yield f"its Python workers do {summarise(core).median:.2f} M records a CPU second; Java takes {java_s:.1f} more"
    if beside := found.rounds.get(Way(2, has_numpy())):
        times = ratios([one.seconds for one in on_it], [one.seconds for one in beside]).median
        yield f"without its start it takes {times:.2f} times as long as two processes"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench compact", description=PURPOSE)
    parser.add_argument("--records", type=_positive, default=10_000_000, help="in all partitions (%(default)s)")
    parser.add_argument("--partitions", type=_positive, default=50, help="of the log (%(default)s)")
    parser.add_argument("--groups", type=_positive, default=5000, help="that commit (%(default)s)")
    parser.add_argument("--segment-bytes", type=_positive, default=4 << 20, help="of the log's files (%(default)s)")
    parser.add_argument("--transaction-rate", type=float, default=0.02, help="begin with a batch (%(default)s)")
    parser.add_argument("--burst-rate", type=float, default=0.01, help="of commits begin a burst (%(default)s)")
    parser.add_argument("--rounds", type=_positive, default=3, help="each way so often (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the log (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where the log is made; it is removed afterwards")
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True, help="measure Spark, too")
    parser.add_argument("--quick", action="store_true", help="one round of 200,000 records, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    if "--quick" in (sys.argv[1:] if argv is None else argv):
        parser.set_defaults(**QUICK)
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return number
