"""Compaction by Spark: the log's own kernel, one task for each log partition or some small ones, nothing shuffled.

A key never leaves its partition, so a task needs nothing of another. It writes, and makes the result the log, as every
compactor does: so Spark, local compactors and a server may all be at one folder. The folder must be one that all
workers see under the same path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from heapq import heapreplace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from ..runtime.log.compaction.job import CompactionJob, CompactionReport, run
from .session import check, in_short, session
from .tasks import freeze_once

Advance = Callable[[int], None]

POLL_S = 0.1  # how often the bar is looked after
TASK_BYTES = 64 * 1024 * 1024
"""Small partitions share a task up to this size: a task costs Spark some 50 ms, which is half of compacting 20 MB."""

TASKS_MIN = 16  # even then, so that all processors of a machine have some

JAVA = ("-XX:TieredStopAtLevel=1",)
"""The work is Python's. To compile the driver better than that costs Java a second of CPU, and its start two."""

_KINDS = {str: "string", int: "bigint", float: "double"}
_SCHEMA = ", ".join(
    f"{name} {_KINDS[type(value)]}"
    for name, value in zip(CompactionReport._fields, CompactionReport("", "nothing"), strict=True)
)


def compactor(
    master: str | None,
) -> Callable[[Sequence[CompactionJob], Mapping[Path, int], Advance], Iterator[CompactionReport]]:
    """What runs jobs. ``master`` as in ``session``; StartError without Java."""
    check(master)
    return partial(compact, master)


def compact(
    master: str | None, jobs: Sequence[CompactionJob], sizes: Mapping[Path, int], advance: Advance = lambda _size: None
) -> Iterator[CompactionReport]:
    """Run jobs, in their order. Where ``sizes`` says that nothing will be read, this process tidies up by itself.

    ``advance`` hears of the bytes of jobs that are done. A job that Spark lost is reported as failed; the log is then
    what it was, or already compacted. The session ends with the work: Spark's workers complain when they are idle.
    """
    yield from (run(job) for job in jobs if not sizes[job.folder])
    due = [job._replace(folder=job.folder.absolute()) for job in jobs if sizes[job.folder]]
    if not due:
        return
    try:
        with start(master) as spark:
            yield from _on_spark(spark, due, [sizes[job.folder] for job in jobs if sizes[job.folder]], advance)
    except (PySparkException, Py4JError) as error:
        words = _in_a_line(error) if isinstance(error, PySparkException) else in_short(error)
        reason = f"Spark has ended the work: {words}"
        yield from (CompactionReport(job.folder.name, "failed", reason=f"{job.folder}: {reason}") for job in due)


def start(master: str | None) -> AbstractContextManager[SparkSession]:
    """A session as compaction wants it: the bar is ours, and Java has little to do."""
    return session("callboard compact", master, {"spark.ui.showConsoleProgress": "false"}, JAVA)


def _on_spark(
    spark: SparkSession, jobs: Sequence[CompactionJob], sizes: Sequence[int], advance: Advance
) -> Iterator[CompactionReport]:
    done, tasks = _counter(spark), share_out(sizes)
    frame = spark.range(0, len(tasks), numPartitions=len(tasks)).mapInArrow(_task(jobs, sizes, tasks, done), _SCHEMA)
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.collect)
        told = 0
        while not rows.done():
            time.sleep(POLL_S)
            if done is not None and done.value > told:
                advance(done.value - told)
                told = done.value
        found = rows.result()
    advance(sum(sizes) - told)
    reports = {report.partition: report for report in map(_report, found)}
    yield from (reports[job.folder.name] for job in jobs)


def share_out(sizes: Sequence[int]) -> list[list[int]]:
    """Which jobs each task does, by their places in ``sizes`` (bytes): the largest first, each to who has least."""
    count = min(len(sizes), max(TASKS_MIN, -(-sum(sizes) // TASK_BYTES)))
    tasks: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size, number, indexes = tasks[0]
        heapreplace(tasks, (size + sizes[index], number, [*indexes, index]))
    return [indexes for _, _, indexes in sorted(tasks, key=lambda task: task[1])]


def _task(
    jobs: Sequence[CompactionJob], sizes: Sequence[int], tasks: Sequence[Sequence[int]], done: Any
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        freeze_once()
        for batch in batches:
            for index in chain.from_iterable(tasks[number] for number in batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_pylist([run(jobs[index])._asdict()])
                if done is not None:
                    done.add(sizes[index])

    return task


def _counter(spark: SparkSession) -> Any:
    """Counts across tasks. Spark Connect has none, and so no bar."""
    try:
        return spark.sparkContext.accumulator(0)
    except PySparkException:
        return None


def _report(row: Row) -> CompactionReport:
    return CompactionReport(**row.asDict())


def _in_a_line(error: Exception) -> str:
    """The end of what Spark says is what happened; before it stands where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("SQLSTATE")]
    return " ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else repr(error)
