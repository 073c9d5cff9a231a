"""What ``callboard compact --cluster`` does: compacts partitions in the store of a cluster, beside its nodes or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...actors.text import format_count
from ..cluster.compaction.job import ClusterCompactionJob, ClusterWork, run
from ..cluster.compaction.plan import make_plan
from ..cluster.manifest import newest_manifest
from ..cluster.store import Store
from ..common.errors import StartError
from ..common.printing import print_error, print_json, print_lines
from ..log.compaction.defaults import GRACE_MS
from ..log.compaction.job import CompactionReport, exit_with_parent
from ..log.partition import partition_name
from .byte_progress import Advance, byte_progress
from .cluster.errors import CommandFailed
from .cluster.stores import require_register, with_store
from .compact_run import Choice, describe_reports, exit_code, parse_partitions, process_count, spark_compactor
from .tables import Column, Table, format_number, print_table

SPARK_MODULE = "callboard.spark.cluster_compaction"
"""Imported by name: the runtime must not import Spark. ``compactor(master)`` in it returns a ``ClusterRunner``."""
LOOK_TIMEOUT_S = 60.0
PLAN_COLUMNS = (
    Column("partition", "partition"),
    Column("version", "version", is_number=True),
    Column("clean_bytes", "compacted bytes", is_number=True),
    Column("dirty_bytes", "closed bytes", is_number=True),
    Column("open_bytes", "open bytes", is_number=True),
    Column("dirty_ratio", "ratio"),
    Column("is_due", "to do"),
)


ClusterRunner = Callable[[Sequence[ClusterWork], Advance], Iterator[CompactionReport]]
"""Runs what is due, the largest first. Yields reports as jobs finish."""


def find_jobs(choice: Choice) -> list[ClusterWork]:
    """By the newest manifests. Raises StartError for partitions that do not exist, and for a store without cluster."""
    url, settings = str(choice.log), choice.settings
    requested = None if choice.partitions is None else parse_partitions(choice.partitions)
    if choice.grace_ms != GRACE_MS:
        raise StartError("bad --grace-minutes: in a cluster the owner of a partition removes what was replaced")

    async def read(store: Store) -> list[ClusterWork]:
        counts = (await require_register(store, url)).counts
        numbers = {partition_name(partition, counts): partition for partition in range(sum(counts))}
        for name in requested or ():
            if name not in numbers:
                raise StartError(f"the cluster has no {name}, which --partition asks for; it has {counts}")
        return [
            ClusterWork(
                ClusterCompactionJob(url, numbers[name], name, settings),
                make_plan(await newest_manifest(store, numbers[name])),
            )
            for name in requested or numbers
        ]

    try:
        return with_store(url, LOOK_TIMEOUT_S, read)
    except CommandFailed as error:
        raise StartError(str(error)) from None


def print_plans(work: Sequence[ClusterWork], as_json: bool) -> None:
    rows = [
        (
            *(job.name, plan.manifest.version, plan.clean_bytes, plan.dirty_bytes, plan.open_bytes),
            *(f"{plan.dirty_ratio:.3f}", "yes" if each.is_due else "no"),
        )
        for each in work
        for job, plan in [each]
    ]
    table = Table(PLAN_COLUMNS, rows)
    if as_json:
        print_json(table.as_json())
    else:
        print_table(table)


def compact(work: Sequence[ClusterWork], runner: ClusterRunner, as_json: bool) -> int:
    """Returns the exit code."""
    started_s = time.perf_counter()
    due = sorted((each for each in work if each.is_due), key=lambda each: -each.size)
    with byte_progress(sum(each.size for each in due), "compacting", is_quiet=as_json) as advance:
        by_name = {report.partition: report for report in runner(due, advance)} if due else {}
    seconds = time.perf_counter() - started_s
    reports = [by_name.get(job.name) or CompactionReport(job.name, "nothing") for job, _ in work]
    if as_json:
        print_json({"seconds": round(seconds, 3), "partitions": [report._asdict() for report in reports]})
    else:
        lines = [describe(report) for report in reports if report.status in ("compacted", "waiting")]
        print_lines("\n".join([*lines, describe_reports(reports, seconds)]))
    for report in reports:
        if report.status in ("damaged", "failed"):
            print_error(report.reason)
    return exit_code(reports)


def describe(report: CompactionReport) -> str:
    if report.status == "waiting":
        return report.reason
    kept, total = format_number(report.records_after), format_count(report.records_before, "record")
    sizes = f"{format_number(report.bytes_after)} of {format_count(report.bytes_before, 'byte')}"
    return f"{report.partition}: kept {kept} of {total}, {sizes}, in {report.seconds:.2f} s"


def make_runner(processes: int | None, spark: bool, master: str | None) -> ClusterRunner:
    if not spark:
        return partial(_run_locally, process_count(processes, master))
    runner: ClusterRunner = spark_compactor(SPARK_MODULE, processes, master)
    return runner


def _run_locally(processes: int, work: Sequence[ClusterWork], advance: Advance) -> Iterator[CompactionReport]:
    processes = min(processes, len(work))
    if processes <= 1:
        for job, plan in work:
            yield run(job)
            advance(plan.clean_bytes + plan.dirty_bytes)
        return
    yield from _run_in_processes(processes, work, advance)


def _run_in_processes(processes: int, work: Sequence[ClusterWork], advance: Advance) -> Iterator[CompactionReport]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=exit_with_parent) as pool:
        futures = {pool.submit(run, _with_memory_share(each.job, processes)): each for each in work}
        for future in as_completed(futures):
            advance(futures[future].size)
            yield future.result()


def _with_memory_share(job: ClusterCompactionJob, processes: int) -> ClusterCompactionJob:
    settings = job.settings
    return job._replace(settings=settings._replace(keys_bytes_max=settings.keys_bytes_max // processes))
