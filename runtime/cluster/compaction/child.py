"""Runs compaction jobs in a child process of the server (``common.child_process``), at a low priority."""

from __future__ import annotations

from collections.abc import Iterator

from ...log.compaction.child import lower_priority
from ...log.compaction.job import CompactionReport
from .job import ClusterCompactionJob, run


def run_in_child(job: ClusterCompactionJob) -> Iterator[CompactionReport]:
    lower_priority()
    yield run(job)
