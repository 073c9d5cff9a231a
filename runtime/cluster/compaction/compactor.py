"""Compactor: compacts one partition in the store.

It has no session, so nothing fences it. It may sleep for a day and then create a version that was deleted long ago. So
it lists the manifests again before it reports a success, and it deletes nothing: what it has written for a version that
another one took is garbage, and is collected by the owner of the partition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ...common.errors import StartError
from ...disk.disk import Disk, read_file, write_all
from ...log.compaction.job import CompactionJob, CompactionReport, report_of, waiting_reason
from ...log.compaction.plan import make_plan as make_folder_plan
from ...log.compaction.swap import CompactionDraft, CompactionSettings, write_draft
from ...log.format.errors import DamagedBatch, UnsupportedCompression
from ...log.manifest import CompactedSegment, segments_folder
from ...log.reading.segment import segment_name
from ..keys import segment_key
from ..manifest import Manifest, ManifestMissing, Segment, create_manifest, newest_manifest
from ..segments import SegmentDamaged, read_segment
from ..store import Store
from .files import manifest_file, segment_path
from .plan import SEGMENT_BYTES_MAX, CompactionPlan, make_plan

MAX_ATTEMPTS = 5
"""If other compactions win each time, they do the work."""


class Compactor:
    """``store`` is patient. ``folder``: for files of one partition at a time; what is in it is removed.

    ``token``: returns 8 random bytes.
    """

    def __init__(
        self,
        store: Store,
        disk: Disk,
        folder: Path,
        settings: CompactionSettings,
        token: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._disk = disk
        self._folder = folder
        self._settings = settings._replace(segment_bytes=min(settings.segment_bytes, SEGMENT_BYTES_MAX))
        self._token = token

    async def compact(self, partition: int, name: str) -> CompactionReport:
        """Compact if it is worth it. ``name``: of the partition, for the report. Raises StoreRefused, OSError."""
        started_s = time.perf_counter()
        try:
            report = await self._compact(partition, name)
        except (SegmentDamaged, ManifestMissing, DamagedBatch, UnsupportedCompression, StartError) as error:
            return CompactionReport(name, "damaged", reason=self._reason(name, str(error)))
        finally:
            remove_files(self._disk, self._folder)
        return report._replace(seconds=time.perf_counter() - started_s)

    async def _compact(self, partition: int, name: str) -> CompactionReport:
        for _ in range(MAX_ATTEMPTS):
            plan = make_plan(await newest_manifest(self._store, partition))
            if not plan.is_due(self._settings.now_ms, self._settings.min_ratio):
                return CompactionReport(name, "nothing")
            if not await self._read(plan):
                continue
            draft = self._clean()
            if draft is None:
                return self._waiting(name)
            if await self._replace(plan.manifest, draft):
                return report_of(name, draft, 0.0)
        return CompactionReport(name, "waiting", reason=f"{name}: other compactions were faster {MAX_ATTEMPTS} times")

    def _waiting(self, name: str) -> CompactionReport:
        reason = waiting_reason(self._disk, CompactionJob(self._folder, self._settings))
        if not reason:
            return CompactionReport(name, "nothing")
        return CompactionReport(name, "waiting", reason=self._reason(name, reason))

    def _reason(self, name: str, text: str) -> str:
        """With the name of the partition instead of that of its files."""
        return f"{name}: {text.replace(f'{self._folder}: ', '').replace(f'{self._folder}/', '')}"

    async def _read(self, plan: CompactionPlan) -> bool:
        """Write the closed segments to files. False if a newer manifest has replaced one of them."""
        remove_files(self._disk, self._folder)
        try:
            for segment in plan.segments:
                self._write(segment_path(segment), await read_segment(self._store, segment))
        except SegmentDamaged:
            newest = await newest_manifest(self._store, plan.manifest.partition)
            if newest.version == plan.manifest.version:
                raise
            return False
        if (manifest := manifest_file(plan.segments)) is not None:
            self._write(*manifest)
        self._write(Path(segment_name(plan.segments[-1].end)), b"")  # closes the one before it
        return True

    def _write(self, path: Path, data: bytes) -> None:
        """Not synced: the files are only for this run."""
        path = self._folder / path
        self._disk.make_folder(path.parent)
        fd = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(self._disk, fd, data, 0)
        finally:
            self._disk.close(fd)

    def _clean(self) -> CompactionDraft | None:
        """None if it is not worth it below the first open transaction."""
        return write_draft(self._disk, self._folder, make_folder_plan(self._disk, self._folder), self._settings)

    async def _replace(self, manifest: Manifest, draft: CompactionDraft) -> bool:
        """Create the next manifest. False if another compaction was faster.

        A checkpoint may have been faster, or a new owner: then the segments that were read still come first, and the
        version after that one gets their replacement, in segments of its own.
        """
        cleaned = manifest.segments[: len(draft.manifest.replaced)]
        while manifest.segments[: len(cleaned)] == cleaned:
            version = manifest.version + 1
            written = [
                await self._store_segment(manifest.partition, version, source) for source in draft.manifest.segments
            ]
            segments = (*written, *manifest.segments[len(cleaned) :])
            following = manifest._replace(version=version, token=self._token().hex(), segments=segments)
            if await create_manifest(self._store, following):
                return await self._stands(following, written)
            manifest = await newest_manifest(self._store, manifest.partition)
        return False

    async def _store_segment(self, partition: int, version: int, source: CompactedSegment) -> Segment:
        key = segment_key(partition, version, self._token().hex())
        await self._store.put(key, read_file(self._disk, segments_folder(self._folder) / source.file))
        return Segment(key, source.base, source.end, source.size, source.crc32c, True, source.delete_horizon_ms)

    async def _stands(self, created: Manifest, written: Sequence[Segment]) -> bool:
        """False if it was created behind newer ones, because its version had been deleted before."""
        newest = await newest_manifest(self._store, created.partition)
        return newest.version == created.version or newest.segments[: len(written)] == tuple(written)


def remove_files(disk: Disk, folder: Path) -> None:
    """Remove the files in a folder and in its folders."""
    for name in disk.names(folder):
        path = folder / name
        if disk.kind(path) == "folder":
            remove_files(disk, path)
        else:
            with suppress(FileNotFoundError):
                disk.remove(path)
