"""One run of compaction over one partition: plan, write beside the log, then say that it counts, once.

Everything before the manifest is files that nobody reads; the manifest is one name that appears or does not. So a run
may be killed anywhere. Several may run on one partition, on several machines that share the folder: the second to
finish finds that its manifest's number is taken, throws its files away and plans anew.
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
from ..manifest import Compacted, Manifest, manifest_folder, put_if_absent, segments_folder
from ..reading.segment import CHUNK_BYTES
from ..recovery.missing import refuse_missing
from .history import taken_to
from .join import Joiner, groups
from .kernel import Progress, Rules, Spill, clean_files
from .plan import MIN_CLEANABLE_DIRTY_RATIO, CompactionPlan, below_open_transactions, make_plan
from .publish import try_lock
from .runs import HashRuns
from .seen import KEYS_BYTES_MAX, SeenKeys
from .survivors import Memory, OpenTransaction

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000  # Kafka's delete.retention.ms
SEGMENT_BYTES = 104857600  # Kafka's offsets.topic.segment.bytes
TRIES = 5  # a run that always loses is one too many; whoever wins does its work


class CompactionSettings(NamedTuple):
    """``now_ms``: ms since 1970, the same for a whole run. ``owner``: who it is, for people. Other times in ms.

    ``min_ratio``: compact only where more than this part was never compacted; below 0: wherever there is something.
    ``keys_bytes_max``: memory for the keys of a partition; more of them are kept on disk meanwhile.
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
    def rules(self) -> Rules:
        return Rules(self.now_ms, self.delete_retention_ms, self.fast, self.chunk_bytes)


class CompactionDraft(NamedTuple):
    """A manifest that does not count yet, whose files are written; and what was counted. Plain, so it can travel."""

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
    """Eight characters that nobody else has."""
    return f"{random.SystemRandom().getrandbits(32):08x}"


def ignore(_bytes: int) -> None:
    """A progress that nobody looks at."""


def compact(
    disk: Disk,
    folder: Path,
    settings: CompactionSettings,
    clock: Callable[[], int] = wall_clock_ms,
    new_id: Callable[[], str] = random_id,
    progress: Progress = ignore,
) -> CompactionDraft | None:
    """Compact a partition's folder if it is worth it; what was made the log, or None when nothing was.

    DamagedBatch and UnsupportedCompression name the file and the byte, ManifestError the manifest, MissingFiles a file
    that is gone; OSError for a disk that fails. After any of them the log is what it was before.
    """
    lost: FileNotFoundError | None = None
    for _ in range(TRIES):
        try:
            draft = write_draft(disk, folder, make_plan(disk, folder), settings, new_id, progress)
            if draft is None or commit_draft(disk, folder, draft, clock(), new_id()):
                return draft
        except FileNotFoundError as error:  # a file that was planned with is gone: others were quicker
            lost = error
    if lost is not None:
        raise lost
    return None


def write_draft(
    disk: Disk,
    folder: Path,
    plan: CompactionPlan,
    settings: CompactionSettings,
    new_id: Callable[[], str] = random_id,
    progress: Progress = ignore,
) -> CompactionDraft | None:
    """Write what a plan would make the log, durably, without making it so; None when it is not worth it."""
    if not plan.is_due(settings.now_ms, settings.min_ratio):
        return None
    refuse_missing(disk, folder)
    try:
        return _Run(disk, folder, plan, settings, new_id(), progress).write()
    except OpenTransaction:
        shorter = below_open_transactions(disk, plan)
    if not shorter.is_due(settings.now_ms, settings.min_ratio):
        return None
    return _Run(disk, folder, shorter, settings, new_id(), progress).write()


def commit_draft(disk: Disk, folder: Path, draft: CompactionDraft, now_ms: int, unique: str) -> bool:
    """Make a draft the log. False when another run was first, or is tidying, or a history has not taken as much.

    Then the draft's files are gone.

    Alone, because who slept for a day (a suspended machine) may find them collected: a look shows it, and only as long
    as nobody collects does it stay true. ``now_ms``: the time of this call, since from now on readers know of them.
    """
    disk.make_folder(manifest_folder(folder))
    # The names that the manifest relies on: its folders, its files, and the next segment, which proves that it may.
    for path in (folder, segments_folder(folder).parent, segments_folder(folder)):
        disk.sync_folder(path)
    with try_lock(disk, folder) as alone:
        made = disk.names(segments_folder(folder)) if alone else ()
        is_whole = all(segment.file in made for segment in draft.manifest.segments)
        limit = taken_to(disk, folder)
        manifest = draft.manifest._replace(created_ms=now_ms)
        is_kept = limit is None or manifest.clean_end <= limit
        if alone and is_whole and is_kept and put_if_absent(disk, folder, manifest, unique):
            return True
    _remove_all(disk, [segments_folder(folder) / segment.file for segment in draft.manifest.segments])
    return False


class _Run:
    """Writes one draft."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        plan: CompactionPlan,
        settings: CompactionSettings,
        run_id: str,
        progress: Progress,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._plan = plan
        self._settings = settings
        self._suffix = f"{plan.manifest.generation + 1:010d}-{settings.now_ms // 1000:08x}{run_id}"
        self._progress = progress
        self._made: list[Path] = []

    def write(self) -> CompactionDraft:
        try:
            return self._write()
        except FileExistsError:  # somebody else's, by a chance in four milliards
            raise
        except BaseException:
            _remove_all(self._disk, self._made)
            raise

    def _write(self) -> CompactionDraft:
        where = segments_folder(self._folder)
        self._disk.make_folder(where)
        spill_path = self._new(f"{self._suffix}.spill")
        fd = self._disk.open(spill_path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            spill, has_transactions = self._clean(fd)
            joiner = Joiner(self._disk, where, fd, self._settings.rules, has_transactions)
            segments = self._join(joiner, spill)
        finally:
            self._disk.close(fd)
        with suppress(FileNotFoundError):  # collected, because this run has lost already
            self._disk.remove(spill_path)
        return CompactionDraft(self._manifest(segments), spill.records_before, spill.bytes_before)

    def _clean(self, spill_fd: int) -> tuple[Spill, bool]:
        """What stays, and whether there are transactions."""
        numbers = count()
        runs = HashRuns(self._disk, lambda: self._new(f"{next(numbers):020d}-{self._suffix}.spill"))
        memory = Memory(SeenKeys(runs, self._settings.keys_bytes_max), self._plan.outcomes)
        try:
            rules, end = self._settings.rules, self._plan.end
            spill = clean_files(self._disk, self._plan.files, spill_fd, memory, rules, self._progress, end)
        finally:
            runs.remove()
        return spill, bool(memory.committed)

    def _join(self, joiner: Joiner, spill: Spill) -> tuple[Compacted, ...]:
        parts = groups(spill.sources, self._plan.end, self._settings.segment_bytes)
        return tuple(
            joiner.write(self._new(f"{sources[0].base:020d}-{self._suffix}.log").name, sources, end)
            for sources, end in parts
        )

    def _manifest(self, segments: tuple[Compacted, ...]) -> Manifest:
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

    def _new(self, name: str) -> Path:
        path = segments_folder(self._folder) / name
        self._made.append(path)
        return path


def _remove_all(disk: Disk, paths: list[Path]) -> None:
    """What cannot be removed is collected as garbage later."""
    for path in paths:
        with suppress(OSError):
            disk.remove(path)
