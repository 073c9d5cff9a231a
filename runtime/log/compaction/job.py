"""The compaction of one partition as a job that a thread, a process or a Spark task can run.

Jobs and reports are plain, picklable values. A job reports errors instead of raising them, so one damaged partition
does not stop the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Literal, NamedTuple

from ...disk.disk import Disk, describe_failure
from ...disk.modes import disk_like
from ...engine.clock import wall_clock_ms
from ..format.errors import DamagedBatch, UnsupportedCompression
from ..manifest import ManifestError
from .defaults import GRACE_MS
from .garbage import publish_and_collect
from .history import history_limit
from .kernel import OnBytesRead
from .plan import CompactionPlan, below_open_transactions, make_plan
from .publish import is_publishing_due
from .swap import CompactionDraft, CompactionSettings, compact, ignore_progress

Status = Literal["compacted", "nothing", "waiting", "damaged", "failed"]


class CompactionJob(NamedTuple):
    """A partition's folder and its settings; ``grace_ms`` as in ``publish_and_collect``."""

    folder: Path
    settings: CompactionSettings
    grace_ms: int = GRACE_MS


class CompactionReport(NamedTuple):
    """The result of a job. ``waiting``: for the end of a transaction, or for the history; ``damaged``: the log is
    damaged and was left as it is; ``failed``: a disk error. ``reason`` has the details.

    ``files_removed``: old files whose content earlier runs have compacted.
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
    job: CompactionJob,
    disk: Disk | None = None,
    clock: Callable[[], int] = wall_clock_ms,
    progress: OnBytesRead = ignore_progress,
) -> CompactionReport:
    """Compact, publish and collect. Errors of the disk and of the log are reported, not raised."""
    disk, name, started_s = disk or disk_like(job.folder.parent), job.folder.name, time.perf_counter()
    try:
        draft = compact(disk, job.folder, job.settings, clock, on_bytes_read=progress)
        reason = waiting_reason(disk, job) if draft is None else ""
        removed = publish_and_collect(disk, job.folder, clock(), job.grace_ms)
    except (DamagedBatch, UnsupportedCompression, ManifestError) as error:
        return CompactionReport(name, "damaged", reason=str(error))
    except OSError as error:
        return CompactionReport(name, "failed", reason=f"{job.folder}: {describe_failure(error)}")
    report = report_of(name, draft, time.perf_counter() - started_s)
    if reason:
        report = report._replace(status="waiting", reason=reason)
    return report._replace(files_removed=removed.replaced + removed.collected)


def waiting_reason(disk: Disk, job: CompactionJob) -> str:
    """Why nothing was compacted although compaction is due; empty if it is not due."""
    plan = make_plan(disk, job.folder)
    if not plan.is_due(job.settings.now_ms, job.settings.min_ratio):
        return _history_reason(disk, job)
    shorter_plan = below_open_transactions(disk, plan)
    if shorter_plan.first_open is None:
        return ""
    return f"{job.folder}: a transaction is open since offset {shorter_plan.first_open}; later records wait for its end"


def _history_reason(disk: Disk, job: CompactionJob) -> str:
    limit = history_limit(disk, job.folder)
    whole_plan = make_plan(disk, job.folder, with_history=False)
    if limit is None or not whole_plan.is_due(job.settings.now_ms, job.settings.min_ratio):
        return ""
    return f"{job.folder}: history has taken it up to offset {limit}; run callboard history keep, or history off"


def is_due(disk: Disk, job: CompactionJob, plan: CompactionPlan) -> bool:
    """Whether the job has anything to do, judged by file names and sizes."""
    now_ms = job.settings.now_ms
    return plan.is_due(now_ms, job.settings.min_ratio) or (
        is_publishing_due(disk, job.folder, plan.manifest, now_ms, job.grace_ms)
    )


def report_of(name: str, draft: CompactionDraft | None, seconds: float) -> CompactionReport:
    if draft is None:
        return CompactionReport(name, "nothing", seconds=seconds)
    before, after = draft.records_before, draft.records_after
    return CompactionReport(name, "compacted", before, after, draft.bytes_before, draft.bytes_after, seconds)


def exit_with_parent() -> None:
    """Initializer for the processes of a pool: exit when the parent process ends, in whatever way.

    Otherwise they would wait for work forever, since each of them holds both ends of the pipe that the work comes from.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)  # like a kill: files without a manifest are not part of the log yet
