"""One run of compaction over one partition: plan, write the new files, then make them the log with one manifest.

Files that no manifest names are not read, and the manifest is created atomically, so a run may be killed at any point.
Several runs may work on one partition, even on several machines that share the folder: the second one to finish finds
that the number of its manifest exists, removes its files and plans again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk
from ...engine.clock import wall_clock_ms
from ..manifest import CompactedSegment, Manifest, generations, manifest_folder, put_if_absent, segments_folder
from ..reading.segment import CHUNK_BYTES
from ..recovery.missing import refuse_missing
from .defaults import DELETE_RETENTION_MS, KEYS_BYTES_MAX, MIN_CLEANABLE_DIRTY_RATIO, SEGMENT_BYTES
from .history import history_limit
from .join import SegmentJoiner, group_into_segments
from .kernel import CleaningRules, OnBytesRead, SpillResult, clean_files
from .plan import CompactionPlan, below_open_transactions, make_plan
from .publish import try_lock
from .runs import HashRuns
from .seen import SeenKeys
from .survivors import CleaningState, OpenTransaction

MAX_ATTEMPTS = 5  # if other runs win each time, they do the work


class CompactionSettings(NamedTuple):
    """``now_ms``: ms since 1970, the same for a whole run. ``owner``: a name for people. Other times in ms.

    ``min_ratio``: compact only if more than this share of the bytes was never compacted; below 0: always if any.
    ``keys_bytes_max``: memory for the keys of a partition; further keys are kept on disk.
    """

    now_ms: int
    owner: str
    min_ratio: float = MIN_CLEANABLE_DIRTY_RATIO
    delete_retention_ms: int = DELETE_RETENTION_MS
    segment_bytes: int = SEGMENT_BYTES
    fast: bool | None = None
    chunk_bytes: int = CHUNK_BYTES
    keys_bytes_max: int = KEYS_BYTES_MAX

    @property
    def rules(self) -> CleaningRules:
        return CleaningRules(self.now_ms, self.delete_retention_ms, self.fast, self.chunk_bytes)


class CompactionDraft(NamedTuple):
    """A manifest that is not in effect yet, whose files are written, and the totals before. Picklable."""

    manifest: Manifest
    records_before: int
    bytes_before: int

    @property
    def records_after(self) -> int:
        return sum(segment.records for segment in self.manifest.segments)

    @property
    def bytes_after(self) -> int:
        return sum(segment.size for segment in self.manifest.segments)


def random_id() -> str:
    """Eight random hexadecimal digits."""
    return f"{random.SystemRandom().getrandbits(32):08x}"


def ignore_progress(_bytes: int) -> None:
    """An ``OnBytesRead`` that does nothing."""


def compact(
    disk: Disk,
    folder: Path,
    settings: CompactionSettings,
    clock: Callable[[], int] = wall_clock_ms,
    new_id: Callable[[], str] = random_id,
    on_bytes_read: OnBytesRead = ignore_progress,
) -> CompactionDraft | None:
    """Compact a partition's folder if it is worth it. Returns the draft that became the log, or None.

    Raises DamagedBatch and UnsupportedCompression with the file and the position, ManifestError with the manifest,
    MissingFiles with a file that is gone, and OSError for a disk error. After an error the log is unchanged.
    """
    last_error: FileNotFoundError | None = None
    manifests: list[int] | None = None  # at the last error
    for _ in range(MAX_ATTEMPTS):
        try:
            draft = write_draft(disk, folder, make_plan(disk, folder), settings, new_id, on_bytes_read)
            if draft is None or commit_draft(disk, folder, draft, clock(), new_id()):
                return draft
        except FileNotFoundError as error:  # another run removed a file of the plan, if there are new manifests
            manifests, before = list(generations(disk, folder)), manifests
            last_error = error if manifests == before else None
    if last_error is not None:
        raise last_error
    return None


def write_draft(
    disk: Disk,
    folder: Path,
    plan: CompactionPlan,
    settings: CompactionSettings,
    new_id: Callable[[], str] = random_id,
    on_bytes_read: OnBytesRead = ignore_progress,
) -> CompactionDraft | None:
    """Write the files of a plan durably, without making them the log; None if it is not worth it."""
    if not plan.is_due(settings.now_ms, settings.min_ratio):
        return None
    refuse_missing(disk, folder)
    try:
        return _DraftWriter(disk, folder, plan, settings, new_id(), on_bytes_read).write()
    except OpenTransaction:
        shorter_plan = below_open_transactions(disk, plan)
    if not shorter_plan.is_due(settings.now_ms, settings.min_ratio):
        return None
    return _DraftWriter(disk, folder, shorter_plan, settings, new_id(), on_bytes_read).write()


def commit_draft(disk: Disk, folder: Path, draft: CompactionDraft, now_ms: int, unique: str) -> bool:
    """Make a draft the log. False, with its files removed, if another run was first or holds the lock, or if the
    history has not copied as much.

    Takes the lock: after a pause of a day (a suspended machine) the files of the draft may have been collected, and
    only under the lock does the check for them stay valid. ``now_ms``: the time of this call, when readers begin to see
    the files.
    """
    disk.make_folder(manifest_folder(folder))
    # The manifest depends on the names of its folders and files, and of the next segment, so these must be durable.
    for path in (folder, segments_folder(folder).parent, segments_folder(folder)):
        disk.sync_folder(path)
    with try_lock(disk, folder) as is_locked:
        existing_names = disk.names(segments_folder(folder)) if is_locked else ()
        is_whole = all(segment.file in existing_names for segment in draft.manifest.segments)
        limit = history_limit(disk, folder)
        manifest = draft.manifest._replace(created_ms=now_ms)
        is_within_history = limit is None or manifest.clean_end <= limit
        if is_locked and is_whole and is_within_history and put_if_absent(disk, folder, manifest, unique):
            return True
    _remove_all(disk, [segments_folder(folder) / segment.file for segment in draft.manifest.segments])
    return False


class _DraftWriter:
    """Writes the files of one draft."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        plan: CompactionPlan,
        settings: CompactionSettings,
        run_id: str,
        on_bytes_read: OnBytesRead,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._plan = plan
        self._settings = settings
        self._suffix = f"{plan.manifest.generation + 1:010d}-{settings.now_ms // 1000:08x}{run_id}"
        self._progress = on_bytes_read
        self._created_paths: list[Path] = []

    def write(self) -> CompactionDraft:
        try:
            return self._write()
        except FileExistsError:  # a file of another run with the same random id: do not remove it
            raise
        except BaseException:
            _remove_all(self._disk, self._created_paths)
            raise

    def _write(self) -> CompactionDraft:
        directory = segments_folder(self._folder)
        self._disk.make_folder(directory)
        spill_path = self._new_path(f"{self._suffix}.spill")
        fd = self._disk.open(spill_path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            spill, has_transactions = self._clean_files(fd)
            joiner = SegmentJoiner(self._disk, directory, fd, self._settings.rules, has_transactions)
            segments = self._join_segments(joiner, spill)
        finally:
            self._disk.close(fd)
        with suppress(FileNotFoundError):  # removed already, because another run was first
            self._disk.remove(spill_path)
        return CompactionDraft(self._new_manifest(segments), spill.records_before, spill.bytes_before)

    def _clean_files(self, spill_fd: int) -> tuple[SpillResult, bool]:
        """The kept records, and whether there are transactions."""
        numbers = count()
        runs = HashRuns(self._disk, lambda: self._new_path(f"{next(numbers):020d}-{self._suffix}.spill"))
        state = CleaningState(SeenKeys(runs, self._settings.keys_bytes_max), self._plan.outcomes)
        try:
            rules, end = self._settings.rules, self._plan.end
            spill = clean_files(self._disk, self._plan.files, spill_fd, state, rules, self._progress, end)
        finally:
            runs.remove()
        return spill, bool(state.committed)

    def _join_segments(self, joiner: SegmentJoiner, spill: SpillResult) -> tuple[CompactedSegment, ...]:
        segment_sources = group_into_segments(spill.sources, self._plan.end, self._settings.segment_bytes)
        return tuple(
            joiner.write(self._new_path(f"{sources[0].base:020d}-{self._suffix}.log").name, sources, end)
            for sources, end in segment_sources
        )

    def _new_manifest(self, segments: tuple[CompactedSegment, ...]) -> Manifest:
        old = self._plan.manifest
        return Manifest(
            generation=old.generation + 1,
            parent=old.generation,
            owner=self._settings.owner,
            created_ms=self._settings.now_ms,
            clean_end=self._plan.end,
            segments=segments,
            replaced=tuple(str(file.path.relative_to(self._folder)) for file in self._plan.files),
        )

    def _new_path(self, name: str) -> Path:
        path = segments_folder(self._folder) / name
        self._created_paths.append(path)
        return path


def _remove_all(disk: Disk, paths: list[Path]) -> None:
    """Remove files; those that cannot be removed are collected later."""
    for path in paths:
        with suppress(OSError):
            disk.remove(path)
