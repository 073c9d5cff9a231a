"""What ``callboard compact`` does."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ...actors.text import format_count
from ..common.errors import StartError
from ..common.printing import print_error, print_json, print_lines
from ..disk.disk import Disk, file_size, read_file
from ..engine.clock import wall_clock_ms
from ..log.compaction.job import CompactionJob, CompactionReport, exit_with_parent, is_due, run
from ..log.compaction.plan import make_plan
from ..log.compaction.swap import CompactionSettings
from ..log.folder import FORMAT, INFO_NAME, parse_info
from ..log.manifest import log_files
from ..log.partition import TOPIC, TRANSACTIONS_TOPIC
from .byte_progress import Advance, byte_progress
from .tables import Column, Table, format_number, print_table

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3
PARENT_GONE_EXIT_CODE = 0  # the server has ended; a run may be aborted at any time
PARTITIONS_MAX = 10_000
MEMORY_MIN = 1 << 20  # Kafka's minimum for one cleaner thread
SPARK_MODULE = "callboard.spark.compaction"
"""Imported by name, since the runtime must not import Spark. ``compactor(master)`` in it returns a ``Runner``."""

_FOLDER = re.compile(rf"({re.escape(TOPIC)}|{re.escape(TRANSACTIONS_TOPIC)})-([0-9]{{1,5}})")
_EVERY = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SIZE = re.compile(r"([1-9][0-9]{0,18})([KMG]?)")
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_PLAN_COLUMNS = (
    Column("partition", "partition"),
    Column("generation", "generation", True),
    Column("clean_bytes", "compacted bytes", True),
    Column("dirty_bytes", "closed bytes", True),
    Column("open_bytes", "open bytes", True),
    Column("dirty_ratio", "ratio"),
    Column("is_due", "to do"),
)


Runner = Callable[[Sequence[CompactionJob], Mapping[Path, int], Advance], Iterator[CompactionReport]]
"""Runs jobs, the largest first; the mapping has the bytes to read of each. Yields reports as jobs finish."""


class Choice(NamedTuple):
    """What to compact, and how. ``log``: a data folder, or the URL of a cluster's store.

    ``partitions``: the list on the command line; None for all.
    """

    log: Path | str
    partitions: str | None
    ratio: float
    delete_retention_ms: int
    segment_bytes: int
    grace_ms: int
    memory_bytes: int

    @property
    def settings(self) -> CompactionSettings:
        """As of now."""
        owner = f"callboard compact, process {os.getpid()}"
        return CompactionSettings(
            wall_clock_ms(),
            owner,
            self.ratio,
            self.delete_retention_ms,
            self.segment_bytes,
            keys_bytes_max=self.memory_bytes,
        )


def find_jobs(choice: Choice) -> list[CompactionJob]:
    """The jobs as of now. StartError for an invalid folder or list."""
    folders = choose_folders(Path(choice.log), choice.partitions)
    return [CompactionJob(folder, choice.settings, choice.grace_ms) for folder in folders]


def parse_every(text: str | None, once: bool) -> int | None:
    """Parse ``10m`` to seconds; None: run once. StartError."""
    if text is None:
        return None
    match = _EVERY.fullmatch(text.strip())
    if not match or once:
        requirement = " without --once" if match else ""
        raise StartError(f"bad --every '{text}': expected a number and s, m, h or d, as in 10m{requirement}")
    return int(match[1]) * _SECONDS[match[2]]


def parse_memory(text: str) -> int:
    """Parse ``512M`` to bytes. StartError."""
    match = _SIZE.fullmatch(text.strip().upper())
    size = int(match[1]) * _BYTES[match[2]] if match else 0
    if size < MEMORY_MIN:
        raise StartError(f"bad --memory '{text}': expected bytes, or a number and K, M or G, as in 512M; at least 1M")
    return size


def repeat(
    work: Callable[[], int],
    every_s: float | None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run ``work`` every ``every_s`` seconds, counted from start to start; once for None."""
    while True:
        started_s = clock()
        code = work()
        if every_s is None:
            return code
        sys.stdout.flush()
        sleep(max(0.0, started_s + every_s - clock()))


def make_runner(processes: int | None, spark: bool, master: str | None) -> Runner:
    if not spark:
        return partial(_run_locally, process_count(processes, master))
    runner: Runner = spark_compactor(SPARK_MODULE, processes, master)
    return runner


def process_count(processes: int | None, master: str | None) -> int:
    """Of a run without Spark."""
    if master is not None:
        raise StartError(f"bad --master '{master}': it needs --spark")
    return processes or os.cpu_count() or 1


def spark_compactor(module: str, processes: int | None, master: str | None) -> Any:
    """What ``compactor`` of a module returns."""
    if processes is not None:
        raise StartError(f"bad --processes {processes}: with --spark the number is set by --master, as in local[2]")
    try:
        return import_module(module).compactor(master)
    except ModuleNotFoundError as error:
        raise StartError(str(error)) from None


def choose_folders(data: Path, partitions: str | None) -> list[Path]:
    """The folders of the requested partitions. StartError for an invalid folder or list."""
    if not data.is_dir():
        raise StartError(f"{data}: found no folder, expected the data folder of a server; check the path")
    info = data / INFO_NAME
    if not info.exists():
        raise StartError(
            f"{data}: found no {INFO_NAME}, expected the data folder of a Callboard server; Kafka compacts its own log"
        )
    if parse_info(info, read_file(Disk(), info)).format < FORMAT:
        raise StartError(f"{info}: found an older format than {FORMAT}; start a server of this version on it once")
    folders = {path.name: path for path in sorted(data.iterdir(), key=_partition_key) if _FOLDER.fullmatch(path.name)}
    if partitions is None:
        return list(folders.values())
    requested = parse_partitions(partitions)
    missing = [name for name in requested if name not in folders]
    if missing:
        count = f"{format_count(len(folders), 'partition')} with records"
        raise StartError(f"{data}: found no {missing[0]}, which --partition asks for; it has {count}")
    return [folders[name] for name in requested]


def parse_partitions(text: str) -> list[str]:
    """Parse ``0,3-5,__transaction_state-7`` to folder names. StartError."""
    names: dict[str, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last <= PARTITIONS_MAX:
                raise StartError(f"bad --partition '{part}': expected A-B with A up to B, at most {PARTITIONS_MAX}")
            names.update((f"{TOPIC}-{number}", None) for number in range(first, last + 1))
        elif _FOLDER.fullmatch(part.strip()):
            names[part.strip()] = None
        else:
            raise StartError(f"bad --partition '{part}': expected numbers, A-B or {TRANSACTIONS_TOPIC}-N, as in 0,3-5")
    return list(names)


def _partition_key(path: Path) -> tuple[str, int]:
    name, _, number = path.name.rpartition("-")
    return name, int(number) if number.isascii() and number.isdecimal() else -1


def print_plans(jobs: Sequence[CompactionJob], as_json: bool) -> None:
    disk = Disk()
    rows: list[tuple[str | int | None, ...]] = []
    for job in jobs:
        plan = make_plan(disk, job.folder)
        due = "yes" if is_due(disk, job, plan) else "no"
        ratio = f"{plan.dirty_ratio:.3f}"
        name, generation = job.folder.name, plan.manifest.generation
        sizes = plan.clean_bytes, plan.dirty_bytes, _open_bytes(disk, job)
        rows.append((name, generation, *sizes, ratio, due))
    table = Table(_PLAN_COLUMNS, rows)
    if as_json:
        print_json(table.as_json())
    else:
        print_table(table)


def _open_bytes(disk: Disk, job: CompactionJob) -> int:
    """The size of the open segments, which are not compacted."""
    return sum(file_size(disk, file.path) for file in log_files(disk, job.folder).files if not file.is_closed)


def compact(jobs: Sequence[CompactionJob], runner: Runner, as_json: bool) -> int:
    started_s = time.perf_counter()
    sizes = {job.folder: _bytes_to_read(job) for job in jobs}
    jobs = sorted(jobs, key=lambda job: -sizes[job.folder])  # the largest first: it must not start last
    with byte_progress(sum(sizes.values()), "compacting", is_quiet=as_json) as advance:
        reports = list(runner(jobs, sizes, advance))
    seconds = time.perf_counter() - started_s
    reports.sort(key=lambda report: _partition_key(Path(report.partition)))
    if as_json:
        print_json({"seconds": round(seconds, 3), "partitions": [report._asdict() for report in reports]})
    else:
        print_lines(describe_reports(reports, seconds))
    for report in reports:
        if report.reason:
            print_error(f"{report.reason}")
    return exit_code(reports)


def exit_code(reports: Sequence[CompactionReport]) -> int:
    statuses = {report.status for report in reports}
    return DAMAGED_EXIT_CODE if "damaged" in statuses else FAILED_EXIT_CODE if "failed" in statuses else 0


def _bytes_to_read(job: CompactionJob) -> int:
    """The bytes that will be read; 0 when the plan fails, since the run then reports the reason."""
    try:
        plan = make_plan(Disk(), job.folder)
    except (StartError, OSError):
        return 0
    return plan.clean_bytes + plan.dirty_bytes if plan.is_due(job.settings.now_ms, job.settings.min_ratio) else 0


def _run_locally(
    processes: int, jobs: Sequence[CompactionJob], sizes: Mapping[Path, int], advance: Advance
) -> Iterator[CompactionReport]:
    processes = min(processes, sum(size > 0 for size in sizes.values()))
    if processes <= 1:
        return (run(job, progress=advance) for job in jobs)
    return _run_in_processes([_with_memory_share(job, processes) for job in jobs], processes, sizes, advance)


def _with_memory_share(job: CompactionJob, processes: int) -> CompactionJob:
    """Divide the memory between the processes, as Kafka's cleaner threads share one buffer."""
    settings = job.settings
    return job._replace(settings=settings._replace(keys_bytes_max=settings.keys_bytes_max // processes))


def _run_in_processes(
    jobs: Sequence[CompactionJob], processes: int, sizes: Mapping[Path, int], advance: Advance
) -> Iterator[CompactionReport]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=exit_with_parent) as pool:
        futures = {pool.submit(run, job): job for job in jobs}
        for future in as_completed(futures):
            advance(sizes[futures[future].folder])
            yield future.result()


def describe_reports(reports: Sequence[CompactionReport], seconds: float) -> str:
    """A summary in one to three lines."""
    compacted = [report for report in reports if report.status == "compacted"]
    unchanged = sum(report.status == "nothing" for report in reports)
    bytes_before, bytes_after = (
        sum(report.bytes_before for report in compacted),
        sum(report.bytes_after for report in compacted),
    )
    waiting = sum(report.status == "waiting" for report in reports)
    other_counts = f"{unchanged} had nothing to do" + (f", {waiting} waiting" if waiting else "")
    lines = [f"{format_count(len(compacted), 'partition')} compacted, {other_counts}, in {seconds:.1f} s"]
    if bytes_before:
        records = [sum(numbers) for numbers in zip(*(report[2:4] for report in compacted), strict=True)]
        lines.append(
            f"records {format_number(records[0])} -> {format_number(records[1])},"
            f" bytes {format_number(bytes_before)} -> {format_number(bytes_after)}"
            f" ({100 * bytes_after / bytes_before:.1f} %)"
        )
    removed = sum(report.files_removed for report in reports)
    return "\n".join([*lines, *([f"{format_count(removed, 'old file')} removed"] if removed else [])])
