"""The log cleaner: compacts the log while the server runs, in a child process.

The server itself only decides, by names and sizes of files, which partitions are due. The child process has a low
priority, so commits do not wait for it. However it ends, the log is as it was before, or compacted.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..common.child_process import ChildProcess
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk
from ..engine.clock import wall_clock_ms
from ..log.compaction.cleaner import ANY_RATIO, RETRY_S, BackgroundCleaner, log_report
from ..log.due_partition import DuePartition
from ..log.partition import TOPIC, TRANSACTIONS_TOPIC
from ..settings.table import Settings as NodeSettings

if TYPE_CHECKING:
    from ..log.compaction.job import CompactionJob
    from ..log.compaction.plan import CompactionPlan

CHILD_FUNCTION = f"{__package__.rpartition('.')[0]}.log.compaction.child:run_in_child"

log = get_logger("callboard.runtime")


class LastRun(NamedTuple):
    """The state of a partition at its last run, and the time of the run (monotonic, in s)."""

    generation: int
    end: int
    at_s: float


class Cleaner(BackgroundCleaner):
    """Compacts the partitions in a folder of this machine."""

    def __init__(
        self,
        data: Path,
        settings: NodeSettings,
        disk: Disk | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """``clock_s`` is monotonic, ``clock_ms`` counts from 1970."""
        super().__init__(settings)
        self._data = data
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._settings = settings
        self._disk = disk or Disk()
        self._last_runs: dict[str, LastRun] = {}
        self._child: ChildProcess | None = None

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def compact_due_partitions(self, min_ratio: float | None = None) -> None:
        """Compact the partitions that are due, one after the other, in a child process.

        Raises OSError if no process can be started, and ChildEnded.
        """
        if min_ratio is None:
            names = await asyncio.to_thread(self.due)
        else:
            names = [row.name for row in await self.compactable()]
        if not names:
            return
        self.runs += 1
        self._child = child = ChildProcess(CHILD_FUNCTION)
        try:
            await child.start()
            for name in names:
                async for report in child.results(self._job(self._data / name, min_ratio)):
                    log_report(report)
        finally:
            self._child = None
            await child.stop()

    async def compactable(self) -> Sequence[DuePartition]:
        return await asyncio.to_thread(self._compactable)

    def _compactable(self) -> list[DuePartition]:
        from ..log.compaction.plan import make_plan

        found: list[DuePartition] = []
        for name in sorted(filter(_is_partition, self._disk.names(self._data)), key=_order):
            with suppress(StartError, OSError):  # a run logs it
                plan = make_plan(self._disk, self._data / name)
                if plan.is_due(self._clock_ms(), ANY_RATIO):
                    found.append(DuePartition(name, plan.clean_bytes, plan.dirty_bytes))
        return found

    def due(self) -> list[str]:
        """Folder names of partitions that are dirty enough and were not left unchanged by a run in the last RETRY_S."""
        jobs = [self._job(self._data / name) for name in self._disk.names(self._data) if _is_partition(name)]
        return [job.folder.name for job in jobs if self._is_due(job)]

    def _is_due(self, job: CompactionJob) -> bool:
        from ..log.compaction.job import is_due  # not needed while the log is empty
        from ..log.compaction.plan import make_plan

        name, now_s = job.folder.name, self._clock_s()
        last_run = self._last_runs.get(name)
        try:
            plan: CompactionPlan | None = make_plan(self._disk, job.folder)
        except (StartError, OSError) as error:
            plan = None
            if last_run is None:
                log.error("a partition cannot be compacted", partition=name, reason=str(error))
        this_run = LastRun(plan.manifest.generation, plan.end, now_s) if plan else LastRun(-1, -1, now_s)
        if last_run is not None and last_run[:2] == this_run[:2] and now_s < last_run.at_s + RETRY_S:
            return False
        if plan is not None and not is_due(self._disk, job, plan):
            return False
        self._last_runs[name] = this_run
        return plan is not None

    def _job(self, folder: Path, min_ratio: float | None = None) -> CompactionJob:
        from ..log.compaction.defaults import GRACE_MS
        from ..log.compaction.job import CompactionJob
        from ..log.compaction.swap import CompactionSettings

        settings = self._settings
        compaction_settings = CompactionSettings(
            self._clock_ms(),
            f"callboard serve, process {os.getpid()}",
            settings.log_cleaner_min_cleanable_ratio if min_ratio is None else min_ratio,
            settings.log_cleaner_delete_retention_ms,
            settings.offsets_topic_segment_bytes,
            keys_bytes_max=settings.log_cleaner_dedupe_buffer_size,
        )
        return CompactionJob(folder, compaction_settings, GRACE_MS)


def _order(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def _is_partition(name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return topic in (TOPIC, TRANSACTIONS_TOPIC) and number.isascii() and number.isdecimal()
