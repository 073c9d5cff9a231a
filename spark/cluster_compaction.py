"""Compaction of a cluster's log with Spark: the tasks read from the store and write to it, and share no file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..runtime.cluster.compaction.job import ClusterWork, run
from ..runtime.log.compaction.job import CompactionReport
from .compaction import ReportProgress, SparkJob, run_jobs
from .session import check_environment


def compactor(master: str | None) -> Callable[[Sequence[ClusterWork], ReportProgress], Iterator[CompactionReport]]:
    """A function that compacts what is due. ``master`` as in ``session``. Raises StartError without Java."""
    check_environment(master)
    return partial(compact, master)


def compact(
    master: str | None, work: Sequence[ClusterWork], report_progress: ReportProgress
) -> Iterator[CompactionReport]:
    """Each task opens the store itself. A task that Spark runs twice loses its manifest against the first one."""
    jobs = [SparkJob(partial(run, each.job), each.job.name, each.size) for each in work]
    yield from run_jobs(master, jobs, report_progress)
