"""The compaction of one partition as a piece of work for somebody else: a process, a task of Spark, a thread.

It takes plain values and gives a report, whatever happens, so that one damaged partition does not stop the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Literal, NamedTuple

from ...disk.disk import Disk
from ...disk.modes import disk_like
from ...engine.clock import wall_clock_ms
from ..format.errors import DamagedBatch, UnsupportedCompression
from ..manifest import ManifestError
from .garbage import publish_and_collect
from .history import taken_to
from .kernel import Progress
from .plan import CompactionPlan, below_open_transactions, make_plan
from .publish import GRACE_MS, is_publishing_due
from .swap import CompactionDraft, CompactionSettings, compact, ignore

Status = Literal["compacted", "nothing", "waiting", "damaged", "failed"]


class CompactionJob(NamedTuple):
    """A partition's folder, and how it is to be compacted; ``grace_ms`` as in ``publish_and_collect``."""

    folder: Path
    settings: CompactionSettings
    grace_ms: int = GRACE_MS


class CompactionReport(NamedTuple):
    """What became of a job. ``waiting``: for a transaction, or a history; ``damaged``: the log, which is as it was;
    ``failed``: the disk. ``reason`` says what.

    ``files_removed``: old ones, whose content is elsewhere since the runs before.
    """

    partition: str
    status: Status
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    files_removed: int = 0
    reason: str = ""


def run(
    job: CompactionJob, disk: Disk | None = None, clock: Callable[[], int] = wall_clock_ms, progress: Progress = ignore
) -> CompactionReport:
    """Compact, publish, collect. Nothing is raised but bugs."""
    disk, name, began = disk or disk_like(job.folder.parent), job.folder.name, time.perf_counter()
    try:
        draft = compact(disk, job.folder, job.settings, clock, progress=progress)
        waits_for = _what_waits_for(disk, job) if draft is None else ""
        tidied = publish_and_collect(disk, job.folder, clock(), job.grace_ms)
    except (DamagedBatch, UnsupportedCompression, ManifestError) as error:
        return CompactionReport(name, "damaged", reason=str(error))
    except OSError as error:
        return CompactionReport(name, "failed", reason=f"{job.folder}: {error}")
    made = _report(name, draft, time.perf_counter() - began)
    if waits_for:
        made = made._replace(status="waiting", reason=waits_for)
    return made._replace(files_removed=tidied.replaced + tidied.collected)


def _what_waits_for(disk: Disk, job: CompactionJob) -> str:
    """Why nothing was compacted although it is due; empty when it is not."""
    plan = make_plan(disk, job.folder)
    if not plan.is_due(job.settings.now_ms, job.settings.min_ratio):
        return _whether_history(disk, job)
    shorter = below_open_transactions(disk, plan)
    if shorter.first_open is None:
        return ""
    return f"{job.folder}: a transaction is open since offset {shorter.first_open}; what follows waits for its end"


def _whether_history(disk: Disk, job: CompactionJob) -> str:
    limit = taken_to(disk, job.folder)
    whole = make_plan(disk, job.folder, with_history=False)
    if limit is None or not whole.is_due(job.settings.now_ms, job.settings.min_ratio):
        return ""
    return f"{job.folder}: history has taken it up to offset {limit}; run callboard history keep, or history off"


def is_due(disk: Disk, job: CompactionJob, plan: CompactionPlan) -> bool:
    """Whether there is anything to do for a job, by names and sizes."""
    now_ms = job.settings.now_ms
    return plan.is_due(now_ms, job.settings.min_ratio) or (
        is_publishing_due(disk, job.folder, plan.manifest, now_ms, job.grace_ms)
    )


def _report(name: str, draft: CompactionDraft | None, seconds: float) -> CompactionReport:
    if draft is None:
        return CompactionReport(name, "nothing", seconds=seconds)
    before, after = draft.records_before, draft.records_after
    return CompactionReport(name, "compacted", before, after, draft.bytes_before, draft.bytes_after, seconds)


def exit_with_parent() -> None:
    """For a process of a pool: to end when the one that started it does, however that ends.

    Otherwise it waits for work for ever: each of a pool holds both ends of the pipe that the work comes through.
    """
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)  # in the middle of whatever it is, as a kill would: what it writes does not count yet
