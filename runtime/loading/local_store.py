"""LocalStore: the log in local files, as a store that can be loaded partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..disk.disk import Disk
from ..log.offsets_log import OffsetsLog
from ..log.pieces import LoadJob, LoadReport, PieceHandler
from .loader import AT_ONCE_BYTES, load_in_subprocesses, load_inline, make_jobs

LoadInBackground = Callable[[Sequence[LoadJob], PieceHandler], Awaitable[None]]


class LocalStore(OffsetsLog):
    """See ``LogStore``. A small log is read on the caller's thread, a large one by subprocesses.

    ``in_background``: reads the log instead of subprocesses. ``allows_workers``: whether other threads and processes
    may be used.
    """

    has_local_files = True

    def __init__(
        self,
        folder: Path,
        partitions: int,
        *,
        disk: Disk,
        in_background: LoadInBackground | None = None,
        allows_workers: bool = True,
        **options: Any,
    ) -> None:
        """``options``: those of ``OffsetsLog``."""
        super().__init__(folder, partitions, disk=disk, **options)
        self._in_background = in_background
        self._allows_workers = allows_workers
        self._unloaded: set[int] = set()

    def jobs(self, epochs: Mapping[int, int]) -> list[LoadJob]:
        jobs = make_jobs(self._folder, self, self._disk)
        return [job._replace(epoch=epochs[job.partition]) for job in jobs if job.partition in epochs]

    def loads_in_background(self, jobs: Sequence[LoadJob]) -> bool:
        is_large = sum(job.log_bytes for job in jobs) > AT_ONCE_BYTES
        return self._in_background is not None or (is_large and self._allows_workers and self._disk.is_real)

    async def load(self, jobs: Sequence[LoadJob], take: PieceHandler) -> None:
        readable = [job for job in jobs if await self._is_flushed(job, take)]
        if self._in_background is not None:
            await self._in_background(readable, take)
        elif self.loads_in_background(readable):
            await load_in_subprocesses(readable, take)
        else:
            load_inline(readable, take, self._disk)

    async def _is_flushed(self, job: LoadJob, take: PieceHandler) -> bool:
        """Write what was acknowledged since the start to the partition's file. If that fails, the job has failed."""
        if job.partition not in self._unloaded:
            return True
        self._unloaded.discard(job.partition)
        flush = partial(self.read, job.partition)
        try:
            if self._allows_workers:
                await asyncio.to_thread(flush)
            else:
                flush()
        except OSError as error:
            take(job, LoadReport(failure=str(error)))
            return False
        return True

    def unload(self, partition: int) -> None:
        self._unloaded.add(partition)
