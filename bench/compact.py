"""How fast a log is compacted: in one process and in two, beside a copy of its files. ``callboard bench compact``.

A log is made up (``loggen``), and each of its partitions is compacted as ``callboard compact`` does it, by processes
that have imported everything before the clock starts. The copy reads and writes the same files in chunks and syncs
them: what any tool would need that looks at nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from callboard.bench.harness import Measured, machine, print_table, ratios, summarise, write_json
from callboard.bench.loggen import Shape, Written, write_log
from callboard.runtime.log.compaction.job import Job, Report, run
from callboard.runtime.log.compaction.swap import Settings, wall_clock_ms
from callboard.runtime.log.manifest import FOLDER
from callboard.runtime.log.segment import CHUNK_BYTES
from callboard.runtime.log.spans import has_numpy

PURPOSE = __doc__.splitlines()[0]
AIM_RECORDS_S = 2_200_000  # a core, with numpy
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


class Way(NamedTuple):
    """How the log is compacted; ``fast``: with numpy."""

    processes: int
    fast: bool

    def __str__(self) -> str:
        return (
            f"{self.processes} process{'es' if self.processes > 1 else ''}, {'numpy' if self.fast else 'plain Python'}"
        )


class Done(NamedTuple):
    """One partition in one process. ``peak_bytes``: the most memory that the process has had."""

    report: Report
    cpu_s: float
    peak_bytes: int


class Round(NamedTuple):
    """One compaction of the whole log."""

    seconds: float
    cpu_s: float
    records: int
    bytes_before: int
    bytes_after: int
    peak_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON."""
    options = _options(argv)
    shape = Shape(
        options.records,
        options.partitions,
        groups=options.groups,
        segment_bytes=options.segment_bytes,
        transaction_rate=options.transaction_rate,
    )
    ways = [Way(processes, fast) for fast in ([True] if has_numpy() else []) for processes in (1, 2)] + [Way(1, False)]
    with tempfile.TemporaryDirectory(prefix="callboard-compact-", dir=options.folder) as folder:
        root = Path(folder)
        written = write_log(root, shape, options.seed)
        copies, rounds = measure(root, ways, options.rounds)
    _show(written, copies, rounds)
    if options.json is not None:
        told = {str(way): [one._asdict() for one in found] for way, found in rounds.items()}
        write_json(options.json, {"log": written._asdict(), "copies_s": copies, "ways": told, "machine": machine()})
    return 0


def measure(root: Path, ways: Sequence[Way], rounds: int) -> tuple[list[float], dict[Way, list[Round]]]:
    """Each way once a round, in turn, so that all of them meet the same troubles of the machine."""
    found: dict[Way, list[Round]] = {way: [] for way in ways}
    copies = []
    for _ in range(rounds):
        copies.append(copy(root))
        for way in ways:
            found[way].append(compact(root, way))
    return copies, found


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


def compact(root: Path, way: Way) -> Round:
    """Compact the log from the start, and leave it as it was."""
    folders = sorted(root.iterdir(), key=lambda path: -sum(file.stat().st_size for file in path.glob("*.log")))
    settings = Settings(wall_clock_ms(), "bench", fast=way.fast)
    with ProcessPoolExecutor(way.processes, get_context("spawn")) as pool:
        list(pool.map(warm_up, range(way.processes * 4), chunksize=1))
        began = time.perf_counter()
        done = list(pool.map(one_partition, [Job(folder, settings) for folder in folders], chunksize=1))
        seconds = time.perf_counter() - began
    for folder in folders:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
    reports = [one.report for one in done]
    return Round(
        seconds,
        sum(one.cpu_s for one in done),
        sum(report.records_before for report in reports),
        sum(report.bytes_before for report in reports),
        sum(report.bytes_after for report in reports),
        max(one.peak_bytes for one in done),
    )


def warm_up(_number: int) -> None:
    """What the first run imports takes as long as a hundred thousand records."""
    if has_numpy():
        import callboard.runtime.log.spans_fast  # noqa: F401
    time.sleep(0.05)  # so that no process takes the turns of another


def one_partition(job: Job) -> Done:
    """In a process of the pool."""
    cpu_s = time.process_time()
    report = run(job)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
    return Done(report, time.process_time() - cpu_s, peak)


def _show(written: Written, copies: Sequence[float], rounds: dict[Way, list[Round]]) -> None:
    rows = [["copy of the files", f"{summarise(copies).median:.2f}", "", "", "1.00", ""]]
    for way, found in rounds.items():
        wall = summarise([one.records / one.seconds for one in found])
        core = summarise([one.records / one.cpu_s for one in found])
        times: Measured = ratios([one.seconds for one in found], copies)
        seconds = summarise([one.seconds for one in found]).median
        peak = max(one.peak_bytes for one in found) / 1e6
        rates = f"{wall.median / 1e6:.2f}", f"{core.median / 1e6:.2f}"
        rows.append([str(way), f"{seconds:.2f}", *rates, f"{times.median:.2f}", f"{peak:.0f}"])
    one = next(iter(rounds.values()))[0]
    print_table(
        f"compacting {one.records:,} records in closed files, {one.bytes_before / 1e6:.1f} MB"
        f" -> {one.bytes_after / 1e6:.1f} MB",
        ["", "s", "M records/s", "and CPU s", "x copy", "peak MB"],
        rows,
        [
            f"the log has {written.records:,} records in {written.files} files; the open one of each partition is left",
            f"aim with numpy: {AIM_RECORDS_S / 1e6:.1f} M records for each second of CPU",
        ],
    )


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench compact", description=PURPOSE)
    parser.add_argument("--records", type=_positive, default=2_000_000, help="in all partitions (%(default)s)")
    parser.add_argument("--partitions", type=_positive, default=8, help="of the log (%(default)s)")
    parser.add_argument("--groups", type=_positive, default=3000, help="that commit (%(default)s)")
    parser.add_argument("--segment-bytes", type=_positive, default=4 << 20, help="of the log's files (%(default)s)")
    parser.add_argument("--transaction-rate", type=float, default=0.0, help="of commits (%(default)s)")
    parser.add_argument("--rounds", type=_positive, default=3, help="each way so often (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the log (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where the log is made; it is removed afterwards")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return number
