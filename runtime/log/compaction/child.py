"""Runs compaction jobs in a child process of the server (``common.child_process``), at a low priority."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from .job import CompactionJob, CompactionReport, run

NICENESS = 10


def run_in_child(job: CompactionJob) -> Iterator[CompactionReport]:
    lower_priority()
    yield run(job)


@cache
def lower_priority() -> None:
    """Once for each process: commits of the server must not wait for compaction."""
    os.nice(NICENESS)
