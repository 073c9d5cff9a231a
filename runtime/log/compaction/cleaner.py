"""What the log cleaners of all stores share: when they run, how they end, and what they log.

This module imports no code of compaction, because a server with an empty log needs none.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ...common.logs import get_logger

if TYPE_CHECKING:
    from .job import CompactionReport

RETRY_S = 600.0
"""A partition that is still due after a run is tried again after this time: a transaction is open, or it is damaged."""
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

    ``runs``: how often partitions were compacted.
    """

    def __init__(self, schedule: CleanerSettings) -> None:
        self.runs = 0
        self._schedule = schedule
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def compact_due_partitions(self) -> None:
        """Compact the partitions that are due, one after the other. Raises OSError and ChildEnded."""

    @abstractmethod
    def kill(self) -> None:
        """End the work in progress now. The partition in progress is as before, or compacted."""

    def start(self) -> None:
        """Start on the running loop, unless the settings disable it."""
        if self._schedule.log_cleaner_enable:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the work in progress too, and wait until it has ended."""
        self.halt()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    def halt(self) -> None:
        """The same without waiting."""
        if self._task is not None:
            self._task.cancel()
        self.kill()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._schedule.log_cleaner_backoff_ms / 1000)
            try:
                await self.compact_due_partitions()
            except Exception as error:  # the log keeps growing, but the node can go on
                log.error("the log could not be compacted", reason=str(error) or repr(error))


def log_report(report: CompactionReport) -> None:
    """Log what became of a partition, if it is of interest."""
    if report.status == "compacted":
        sizes = {name: getattr(report, name) for name in REPORTED_SIZES}
        log.info("compacted", partition=report.partition, **sizes, seconds=round(report.seconds, 3))
    elif report.status == "waiting":
        log.warning("the log is not compacted further", partition=report.partition, reason=report.reason)
    elif report.status in ("damaged", "failed"):
        log.error("a partition cannot be compacted", partition=report.partition, reason=report.reason)
