"""The compaction of one partition as a job that a process or a Spark task can run. It opens the store itself.

Jobs and reports are plain, picklable values. A job reports errors instead of raising them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...common.errors import StartError
from ...disk.disk import Disk
from ...log.compaction.job import CompactionReport
from ...log.compaction.swap import CompactionSettings
from ..engines import open_store
from ..patient_store import PatientStore
from ..session_environment import random_token
from ..store import StoreRefused, StoreUnavailable
from .compactor import Compactor
from .plan import CompactionPlan

LIMIT_S = 900.0
"""Of a job, so that a store that is gone does not keep it for ever."""


class ClusterCompactionJob(NamedTuple):
    """``url``: of the store. ``name``: of the partition, for the report.

    ``scratch``: a folder for files of one job at a time, which may have some of a job that was killed; None: a new one.
    """

    url: str
    partition: int
    name: str
    settings: CompactionSettings
    scratch: Path | None = None


class ClusterWork(NamedTuple):
    """The job of a partition, and what it would find now. ``size``: the bytes that it will read; 0: nothing is due."""

    job: ClusterCompactionJob
    plan: CompactionPlan

    @property
    def is_due(self) -> bool:
        return self.plan.is_due(self.job.settings.now_ms, self.job.settings.min_ratio)

    @property
    def size(self) -> int:
        return self.plan.clean_bytes + self.plan.dirty_bytes if self.is_due else 0


def run(job: ClusterCompactionJob) -> CompactionReport:
    try:
        with _scratch_folder(job.scratch) as folder:
            return asyncio.run(_run(job, folder))
    except TimeoutError:
        return _failed(job, f"not done in {LIMIT_S:.0f} s; is the store available?")
    except (StoreRefused, StoreUnavailable, StartError, OSError) as error:
        return _failed(job, str(error))


async def _run(job: ClusterCompactionJob, folder: Path) -> CompactionReport:
    store = open_store(job.url, f"compact-{os.getpid()}")
    try:
        async with asyncio.timeout(LIMIT_S):
            compactor = Compactor(PatientStore(store), Disk(), folder, job.settings, random_token)
            return await compactor.compact(job.partition, job.name)
    finally:
        await store.close()


def _failed(job: ClusterCompactionJob, reason: str) -> CompactionReport:
    return CompactionReport(job.name, "failed", reason=f"{job.name}: {reason}")


@contextmanager
def _scratch_folder(scratch: Path | None) -> Iterator[Path]:
    """A folder inside of one that nobody else uses."""
    if scratch is not None:
        yield scratch / "log"
        return
    with TemporaryDirectory(prefix="callboard-compact-") as folder:
        yield Path(folder) / "log"
