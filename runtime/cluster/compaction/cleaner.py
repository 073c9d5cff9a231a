"""The log cleaner of a node in a cluster: compacts the partitions that it owns.

The manifests that it knows tell which partitions are due, so nothing is asked of the store while none is. The work is
done by a child process of low priority with a connection of its own. However it ends, each partition is as it was
before, or compacted.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple, Protocol

from ...common.child_process import ChildProcess
from ...engine.clock import wall_clock_ms
from ...log.compaction.cleaner import ANY_RATIO, RETRY_S, BackgroundCleaner, log_report
from ...log.compaction.job import CompactionReport
from ...log.compaction.swap import CompactionSettings
from ...log.due_partition import DuePartition
from ...log.partition import partition_name
from ...log.partition_counts import PartitionCounts
from ...settings.table import Settings
from ..manifest import Segment
from ..session import Phase, Session
from .job import ClusterCompactionJob
from .plan import CompactionPlan, make_plan

CHILD_FUNCTION = f"{__package__}.child:run_in_child"


class HasSession(Protocol):
    @property
    def session(self) -> Session | None:
        """The newest one of the node; None before the first."""


class Workers(Protocol):
    """Compacts partitions."""

    def compact(self, partitions: list[int], settings: CompactionSettings) -> AsyncGenerator[CompactionReport, None]:
        """One after the other, with a report for each. Raises OSError and ChildEnded."""

    def name_of(self, partition: int) -> str:
        """The name of a partition, by its number among all."""

    def kill(self) -> None:
        """End the work now."""


class ChildWorkers:
    """``Workers``. Each call of ``compact`` has a child process. ``scratch``: a folder for its files."""

    def __init__(self, url: str, counts: PartitionCounts, scratch: Path) -> None:
        self._url = url
        self._counts = counts
        self._scratch = scratch
        self._child: ChildProcess | None = None

    async def compact(
        self, partitions: list[int], settings: CompactionSettings
    ) -> AsyncGenerator[CompactionReport, None]:
        self._child = child = ChildProcess(CHILD_FUNCTION)
        try:
            await child.start()
            for partition in partitions:
                job = ClusterCompactionJob(self._url, partition, self.name_of(partition), settings, self._scratch)
                async for report in child.results(job):
                    yield report
        finally:
            self._child = None
            await child.stop()

    def name_of(self, partition: int) -> str:
        return partition_name(partition, self._counts)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()


class LastRun(NamedTuple):
    """The closed segments of a partition at its last run, and the time of the run (monotonic, in s)."""

    segments: tuple[Segment, ...]
    at_s: float


class ClusterCleaner(BackgroundCleaner):
    """Compacts the partitions that a node owns. ``clock_s`` is monotonic, ``clock_ms`` counts from 1970."""

    def __init__(
        self,
        owner: HasSession,
        workers: Workers,
        settings: Settings,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        super().__init__(settings)
        self._owner = owner
        self._workers = workers
        self._settings = settings
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._last_runs: dict[int, LastRun] = {}

    def kill(self) -> None:
        self._workers.kill()

    async def compact_due_partitions(self, min_ratio: float | None = None) -> None:
        session = self._active_session()
        if session is None:
            return
        due = list(self._due(session) if min_ratio is None else self._compactable(session))
        if not due:
            return
        self.runs += 1
        partitions, settings = list(due), self._compaction_settings(min_ratio)
        async with aclosing(self._workers.compact(due, settings)) as reports:
            async for report in reports:
                log_report(report)
                await session.log.follow_compaction(partitions.pop(0))

    async def compactable(self) -> Sequence[DuePartition]:
        session = self._active_session()
        plans = {} if session is None else self._compactable(session)
        return [
            DuePartition(self._workers.name_of(partition), plan.clean_bytes, plan.dirty_bytes)
            for partition, plan in plans.items()
        ]

    def _active_session(self) -> Session | None:
        session = self._owner.session
        return session if session is not None and session.phase == Phase.ACTIVE else None

    def _compactable(self, session: Session) -> Mapping[int, CompactionPlan]:
        held, now_ms = session.log.held, self._clock_ms()
        plans = {partition: make_plan(held[partition].manifest) for partition in sorted(held)}
        return {partition: plan for partition, plan in plans.items() if plan.is_due(now_ms, ANY_RATIO)}

    def _due(self, session: Session) -> Mapping[int, LastRun]:
        """Those that are dirty enough and were not left unchanged by a run in the last RETRY_S."""
        now_s, now_ms, due = self._clock_s(), self._clock_ms(), dict[int, LastRun]()
        for partition in session.log.held:
            plan = make_plan(session.log.held[partition].manifest)
            last = self._last_runs.get(partition)
            is_tried = last is not None and last.segments == plan.segments and now_s < last.at_s + RETRY_S
            if not is_tried and plan.is_due(now_ms, self._settings.log_cleaner_min_cleanable_ratio):
                due[partition] = LastRun(plan.segments, now_s)
        self._last_runs |= due
        return due

    def _compaction_settings(self, min_ratio: float | None) -> CompactionSettings:
        settings = self._settings
        return CompactionSettings(
            self._clock_ms(),
            f"callboard serve, process {os.getpid()}",
            settings.log_cleaner_min_cleanable_ratio if min_ratio is None else min_ratio,
            settings.log_cleaner_delete_retention_ms,
            keys_bytes_max=settings.log_cleaner_dedupe_buffer_size,
        )
