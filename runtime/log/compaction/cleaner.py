"""What the log cleaners of all stores share: when they run, how they end, and what they log.

This module imports no code of compaction, because a server with an empty log needs none.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from ...common.errors import CompactionRuns
from ...common.logs import get_logger
from ..due_partition import DuePartition

if TYPE_CHECKING:
    from .job import CompactionReport

RETRY_S = 600.0
"""A partition that is still due after a run is tried again after this time: a transaction is open, or it is damaged."""
ANY_RATIO: Final = -1.0
"""Instead of ``log_cleaner_min_cleanable_ratio``: each partition with closed segments that are not compacted is due."""

REPORTED_SIZES = ("records_before", "records_after", "bytes_before", "bytes_after")

log = get_logger("callboard.log")


class CleanerSettings(Protocol):
    """Settings of a node, which may change while it runs."""

    @property
    def log_cleaner_enable(self) -> bool: ...

    @property
    def log_cleaner_backoff_ms(self) -> int: ...


class BackgroundCleaner(ABC):
    """Checks every ``log_cleaner_backoff_ms`` and compacts the partitions that are due. Failures are logged.

    ``runs``: how often partitions were compacted. ``is_running``: whether that is being done.
    """

    def __init__(self, schedule: CleanerSettings) -> None:
        self.runs = 0
        self.is_running = False
        self._schedule = schedule
        self._task: asyncio.Task[None] | None = None
        self._asked: asyncio.Task[None] | None = None

    @abstractmethod
    async def compact_due_partitions(self, min_ratio: float | None = None) -> None:
        """Compact the partitions that are due, one after the other. Raises OSError and ChildEnded.

        ``min_ratio``: instead of that of the settings, also for partitions that were tried just now.
        """

    @abstractmethod
    async def compactable(self) -> Sequence[DuePartition]:
        """The partitions that ``compact_now`` compacts."""

    @abstractmethod
    def kill(self) -> None:
        """End the work in progress now. The partition in progress is as before, or compacted."""

    def start(self) -> None:
        """Start on the running loop, unless the settings disable it."""
        if self._schedule.log_cleaner_enable:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def compact_now(self) -> None:
        """Begin to compact all partitions, however few of their bytes are dirty. Raises CompactionRuns."""
        if self.is_running:
            raise CompactionRuns("the log is being compacted: wait until that is done")
        self.is_running = True
        self._asked = asyncio.get_running_loop().create_task(self._compact(ANY_RATIO))

    async def stop(self) -> None:
        """End the work in progress too, and wait until it has ended."""
        self.halt()
        for task in filter(None, (self._task, self._asked)):
            with suppress(asyncio.CancelledError):
                await task

    def halt(self) -> None:
        """The same without waiting."""
        for task in filter(None, (self._task, self._asked)):
            task.cancel()
        self.kill()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._schedule.log_cleaner_backoff_ms / 1000)
            if not self.is_running:
                await self._compact(None)

    async def _compact(self, min_ratio: float | None) -> None:
        self.is_running = True
        try:
            await self.compact_due_partitions(min_ratio)
        except Exception as error:  # the log keeps growing, but the node can go on
            log.error("the log could not be compacted", reason=str(error) or repr(error))
        finally:
            self.is_running = False


def log_report(report: CompactionReport) -> None:
    """Log what became of a partition, if it is of interest."""
    if report.status == "compacted":
        sizes = {name: getattr(report, name) for name in REPORTED_SIZES}
        log.info("compacted", partition=report.partition, **sizes, seconds=round(report.seconds, 3))
    elif report.status == "waiting":
        log.warning("the log is not compacted further", partition=report.partition, reason=report.reason)
    elif report.status in ("damaged", "failed"):
        log.error("a partition cannot be compacted", partition=report.partition, reason=report.reason)
