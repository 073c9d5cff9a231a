"""LoadQueue: loads the content of partitions that come at the same time together.

The segments of a partition become the files of a partition's folder, so the loader of local files reads them: in this
process if they are small, else in child processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..disk.disk import Disk, write_all
from ..disk.memory import MemoryDisk
from ..loading.loader import AT_ONCE_BYTES, load_in_subprocesses, load_inline
from ..log.pieces import LoadJob, LoadPiece, LoadReport, PieceHandler
from ..log.reading.segment import segment_name
from .content import read_content
from .manifest import Manifest
from .patient_store import PatientStore
from .segments import SegmentDamaged
from .store import Store

MEMORY_ROOT = Path("/content")


class WaitingLoad(NamedTuple):
    """``job.folder`` is the name of the partition's folder."""

    job: LoadJob
    manifest: Manifest
    take: PieceHandler
    done: asyncio.Future[None]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.manifest.segments)


class LoadQueue:
    """``scratch``: a folder for files, None if other processes may not be used. Its content is removed after use."""

    def __init__(self, store: Store, scratch: Path | None) -> None:
        self._store = PatientStore(store)
        self._scratch = scratch
        self._waiting: list[WaitingLoad] = []
        self._worker: asyncio.Task[None] | None = None

    async def load(self, job: LoadJob, manifest: Manifest, take: PieceHandler) -> None:
        """Pass the pieces of a partition to ``take``; its report is the last one. Raises Superseded."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append(WaitingLoad(job, manifest, take, done))
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._load_together([load for load in waiting if not load.done.cancelled()])
        finally:
            self._worker = None

    async def _load_together(self, loads: Sequence[WaitingLoad]) -> None:
        is_large = sum(load.size for load in loads) > AT_ONCE_BYTES
        root = self._scratch if is_large else None
        disk: Disk = MemoryDisk() if root is None else Disk()
        jobs = await asyncio.gather(*(self._write_files(load, disk, root or MEMORY_ROOT) for load in loads))
        present = [job for job in jobs if job is not None]
        take = _dispatch({load.job.partition: load for load in loads})
        if root is not None:
            await load_in_subprocesses(present, take)
        else:
            for job in present:
                load_inline([job], take, disk)
                await asyncio.sleep(0)
        for job in present:
            _remove_files(disk, Path(job.folder))

    async def _write_files(self, load: WaitingLoad, disk: Disk, root: Path) -> LoadJob | None:
        """The job with its folder; None if the load has ended, because the content cannot be read."""
        folder = root / load.job.folder
        disk.make_folder(folder)
        try:
            for segment, data in await read_content(self._store, load.manifest):
                _write_file(disk, folder / segment_name(segment.base), data)
        except SegmentDamaged as error:
            load.take(load.job, LoadReport(failure=str(error)))
            _end(load, None)
            return None
        except Exception as error:
            _end(load, error)
            return None
        return load.job._replace(folder=str(folder), log_bytes=load.size)


def _end(load: WaitingLoad, error: Exception | None) -> None:
    if not load.done.done():
        load.done.set_exception(error) if error is not None else load.done.set_result(None)


def _dispatch(loads: dict[int, WaitingLoad]) -> Callable[[LoadJob, LoadPiece], None]:
    def take(job: LoadJob, piece: LoadPiece) -> None:
        load = loads[job.partition]
        if load.done.done():
            return
        try:
            load.take(job, piece)
        except Exception as error:
            _end(load, error)
        else:
            if isinstance(piece, LoadReport):
                _end(load, None)

    return take


def _write_file(disk: Disk, path: Path, data: bytes) -> None:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(disk, fd, data, 0)
    finally:
        disk.close(fd)


def _remove_files(disk: Disk, folder: Path) -> None:
    for name in disk.names(folder):
        disk.remove(folder / name)
