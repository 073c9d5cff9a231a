"""ContentLoader: loads the content of a partition, from the segments of its manifest.

They become the files of a partition's folder, so the loader of local files reads them: in this process if they are
small, else in child processes. Each partition is served as soon as it is loaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ...actors.callboard_error import CallboardError
from ..disk.disk import Disk, write_all
from ..disk.memory import MemoryDisk
from ..loading.child import run  # here, because the first load of a node must not wait for an import
from ..loading.pool import EXPECTED_S, LoadPool
from ..log.pieces import LoadJob, LoadReport, PieceHandler
from ..log.reading.segment import segment_name
from .content import read_content
from .manifest import Manifest, newest_manifests
from .patient_store import PatientStore
from .segments import SegmentDamaged
from .store import Store

MEMORY_ROOT = Path("/content")
SMALL_BYTES = 256 * 1024
"""A partition up to this size holds the loop for some 20 ms when it is loaded in this process."""
INLINE_BYTES_MAX = 2 * 1024 * 1024
"""Of small partitions that load at the same time; above it child processes load them, too."""
LARGE_AT_ONCE = 4
"""Large partitions whose content is in memory at the same time."""


class ContentLoader:
    """``scratch``: a folder for files, None if other processes may not be used. Its content is removed after use."""

    def __init__(self, store: Store, scratch: Path | None) -> None:
        self._store = PatientStore(store)
        self._scratch = scratch
        self._pool = LoadPool()
        self._inline_bytes = 0
        self._reading = asyncio.Semaphore(LARGE_AT_ONCE)
        self._preparing: asyncio.Task[None] | None = None
        self._expected: Collection[int] = ()
        self._expected_until_s = 0.0

    def expect(self, partitions: Collection[int]) -> None:
        """These may be loaded soon. If that takes child processes, they start now. The newest call counts.

        In the next seconds it does nothing for some of them, so that it takes no operations from the loads.
        """
        now_s = asyncio.get_running_loop().time()
        is_known = now_s < self._expected_until_s and set(partitions) <= set(self._expected)
        if self._scratch is None or is_known or not partitions:
            return
        self._expected, self._expected_until_s = partitions, now_s + EXPECTED_S
        if self._preparing is not None:
            self._preparing.cancel()
        self._preparing = asyncio.get_running_loop().create_task(self._prepare(partitions))

    async def _prepare(self, partitions: Collection[int]) -> None:
        """What is wrong with the store or a manifest is reported by the loads."""
        with suppress(CallboardError):
            manifests = await newest_manifests(self._store.impatient, partitions)
            sizes = [size_of(manifest) for manifest in manifests.values()]
            large = [size for size in sizes if size > SMALL_BYTES]
            self._pool.expect(len(large) + (sum(sizes) - sum(large) > INLINE_BYTES_MAX))

    async def load(self, job: LoadJob, manifest: Manifest, take: PieceHandler) -> None:
        """Pass the pieces of a partition to ``take``; its report is the last one. Raises Superseded, OSError.

        ``job.folder`` is the name of the partition's folder.
        """
        size = size_of(manifest)
        job = job._replace(log_bytes=size)
        try:
            if self._scratch is None or self._is_small(size):
                await self._load_inline(job, manifest, take)
            else:
                await self._load_in_child(self._scratch, job, manifest, take)
        except SegmentDamaged as error:
            take(job, LoadReport(failure=str(error)))

    def _is_small(self, size: int) -> bool:
        return size <= SMALL_BYTES and self._inline_bytes + size <= INLINE_BYTES_MAX

    async def _load_inline(self, job: LoadJob, manifest: Manifest, take: PieceHandler) -> None:
        disk = MemoryDisk()
        self._inline_bytes += job.log_bytes
        try:
            job = await self._with_files(job, manifest, disk, MEMORY_ROOT)
            for piece in run(job, disk):
                take(job, piece)
        finally:
            self._inline_bytes -= job.log_bytes

    async def _load_in_child(self, root: Path, job: LoadJob, manifest: Manifest, take: PieceHandler) -> None:
        self._pool.prepare()
        disk = Disk()
        try:
            async with self._reading:
                job = await self._with_files(job, manifest, disk, root)
            await self._pool.load(job, take)
        finally:
            _remove_files(disk, root / job.folder)

    async def _with_files(self, job: LoadJob, manifest: Manifest, disk: Disk, root: Path) -> LoadJob:
        """The job with its folder, in which the segments are files."""
        folder = root / job.folder
        contents = await read_content(self._store, manifest)
        disk.make_folder(folder)
        _remove_files(disk, folder)  # those of a process that was killed
        for segment, data in contents:
            _write_file(disk, folder / segment_name(segment.base), data)
        return job._replace(folder=str(folder))


def size_of(manifest: Manifest) -> int:
    """The bytes of its segments."""
    return sum(segment.size for segment in manifest.segments)


def _write_file(disk: Disk, path: Path, data: bytes) -> None:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(disk, fd, data, 0)
    finally:
        disk.close(fd)


def _remove_files(disk: Disk, folder: Path) -> None:
    if disk.kind(folder) == "folder":
        for name in disk.names(folder):
            disk.remove(folder / name)
