"""Compaction with Spark: the log's own compaction code, a task for each log partition or for several small ones.

All records of a key are in one partition, so nothing is shuffled. Each task swaps in its result as every compactor
does, so Spark, local compactors and a server may work on one folder at the same time. All workers must see the folder
under the same path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from heapq import heapreplace
from pathlib import Path
from typing import Any, NamedTuple

from .extra import require_extra

require_extra()

import pyarrow as pa  # noqa: E402
from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import Row, SparkSession  # noqa: E402

from ..runtime.log.compaction.job import CompactionJob, CompactionReport, run  # noqa: E402
from .session import check_environment, session, short_message  # noqa: E402
from .tasks import run_for_each  # noqa: E402

ReportProgress = Callable[[int], None]

POLL_S = 0.1  # interval of progress updates
TASK_BYTES = 64 * 1024 * 1024
"""Small partitions share a task up to this size: a task costs Spark some 50 ms, half the time of compacting 20 MB."""

TASKS_MIN = 16  # so that all processors of a machine have work

JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""The work is done in Python. Full JIT compilation would cost Java a second of CPU, and its start two."""

_KINDS = {str: "string", int: "bigint", float: "double"}
_SCHEMA = ", ".join(
    f"{name} {_KINDS[type(value)]}"
    for name, value in zip(CompactionReport._fields, CompactionReport("", "nothing"), strict=True)
)


class SparkJob(NamedTuple):
    """``run`` is picklable. ``name``: of the partition, as in the report. ``size``: the bytes that it will read."""

    run: Callable[[], CompactionReport]
    name: str
    size: int


def compactor(
    master: str | None,
) -> Callable[[Sequence[CompactionJob], Mapping[Path, int], ReportProgress], Iterator[CompactionReport]]:
    """A function that runs jobs. ``master`` as in ``session``. Raises StartError without Java."""
    check_environment(master)
    return partial(compact, master)


def compact(
    master: str | None,
    jobs: Sequence[CompactionJob],
    sizes: Mapping[Path, int],
    report_progress: ReportProgress = lambda _size: None,
) -> Iterator[CompactionReport]:
    """Run jobs, and report them in their order. Jobs whose size in ``sizes`` is 0 run in this process.

    ``report_progress`` is called with the bytes of each finished job. A job that Spark lost is reported as failed; its
    log is unchanged, or already compacted. The session ends with the work, since Spark's idle workers print warnings.
    """
    yield from (run(job) for job in jobs if not sizes[job.folder])
    due = [
        SparkJob(partial(run, job._replace(folder=job.folder.absolute())), job.folder.name, sizes[job.folder])
        for job in jobs
        if sizes[job.folder]
    ]
    yield from run_jobs(master, due, report_progress)


def run_jobs(
    master: str | None, jobs: Sequence[SparkJob], report_progress: ReportProgress
) -> Iterator[CompactionReport]:
    """Run jobs on Spark, and report them in their order."""
    if not jobs:
        return
    try:
        with start_session(master) as spark:
            yield from _run_on_spark(spark, jobs, report_progress)
    except (PySparkException, Py4JError) as error:
        message = _one_line(error) if isinstance(error, PySparkException) else short_message(error)
        reason = f"Spark ended the job: {message}"
        yield from (CompactionReport(job.name, "failed", reason=f"{job.name}: {reason}") for job in jobs)


def start_session(master: str | None) -> AbstractContextManager[SparkSession]:
    """A session for compaction, without Spark's own progress bar."""
    return session("callboard compact", master, {"spark.ui.showConsoleProgress": "false"}, JAVA_OPTIONS)


def _run_on_spark(
    spark: SparkSession, jobs: Sequence[SparkJob], report_progress: ReportProgress
) -> Iterator[CompactionReport]:
    sizes = [job.size for job in jobs]
    counter = _byte_counter(spark)
    tasks = [[jobs[index] for index in indexes] for indexes in assign_jobs_to_tasks(sizes)]
    frame = run_for_each(spark, tasks, partial(_run_task, counter), _SCHEMA, len(tasks))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(frame.collect)
        reported = 0
        while not future.done():
            time.sleep(POLL_S)
            if counter is not None and counter.value > reported:
                report_progress(counter.value - reported)
                reported = counter.value
        rows = future.result()
    report_progress(sum(sizes) - reported)
    reports = {report.partition: report for report in map(_report, rows)}
    yield from (reports[job.name] for job in jobs)


def assign_jobs_to_tasks(sizes: Sequence[int]) -> list[list[int]]:
    """The indexes in ``sizes`` (bytes) of each task's jobs. The largest first, each to the task with the least work."""
    count = min(len(sizes), max(TASKS_MIN, -(-sum(sizes) // TASK_BYTES)))
    tasks: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size, number, indexes = tasks[0]
        heapreplace(tasks, (size + sizes[index], number, [*indexes, index]))
    return [indexes for _, _, indexes in sorted(tasks, key=lambda task: task[1])]


def _run_task(counter: Any, jobs: Sequence[SparkJob]) -> Iterator[pa.RecordBatch]:
    for job in jobs:
        yield pa.RecordBatch.from_pylist([job.run()._asdict()])
        if counter is not None:
            counter.add(job.size)


def _byte_counter(spark: SparkSession) -> Any:
    """An accumulator of compacted bytes. None with Spark Connect, which has no accumulators."""
    try:
        return spark.sparkContext.accumulator(0)
    except PySparkException:
        return None


def _report(row: Row) -> CompactionReport:
    return CompactionReport(**row.asDict())


def _one_line(error: Exception) -> str:
    """The first and last lines of a Spark error: where it happened and what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("SQLSTATE")]
    return " ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else repr(error)
