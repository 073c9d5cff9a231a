"""Compaction during a crash run: writes drafts, commits them, publishes and collects, by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from callboard.runtime.log.compaction.garbage import publish_and_collect
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.swap import CompactionDraft, CompactionSettings, commit_draft, write_draft
from callboard.runtime.log.manifest import manifest_folder
from callboard.runtime.log.partition import DECODERS
from callboard.runtime.log.reading.segment import scan, segment_base
from callboard.runtime.testing.disk.faulty import FaultyDisk

from .model import LogRecord, PartitionModel

RETENTIONS_MS = (0, 1000, 3_600_000, 100_000_000)
GRACES_MS = (0, 0, 60_000, 3_600_000)
SEGMENT_BYTES = (300, 1500, 100_000)
CHUNK_BYTES = (200, 1000, 100_000)


def read_plain_names(disk: FaultyDisk, folder: Path) -> Iterator[LogRecord]:
    """The records for a reader without manifests that skips offsets below the next expected one."""
    decode = DECODERS[folder.name.rpartition("-")[0]]
    expected = 0
    for name in disk.names(folder):
        for batch in scan(disk, folder / name) if segment_base(name) is not None else ():
            for record in decode(batch):
                if record[0] >= expected:
                    yield LogRecord(*record)
            expected = max(expected, batch.last_offset + 1)


class Compaction:
    """The compactors of one log, as in several processes: a draft may wait while others and the log continue."""

    def __init__(self, random: Random, disk: FaultyDisk, models: list[PartitionModel], folders: list[Path]) -> None:
        self._random = random
        self._disk = disk
        self._partitions = list(zip(models, folders, strict=True))
        self._drafts: list[tuple[PartitionModel, Path, CompactionDraft]] = []

    def step(self, now_ms: int, may_fail: bool) -> str:
        """Run one step of one compactor; return a line for the events. ``may_fail``: an OSError is expected."""
        action = self._random.choice(
            (self._write, self._commit, self._commit, self._publish_and_collect, self._publish_and_collect)
        )
        try:
            return action(now_ms)
        except OSError as error:
            if may_fail:
                return f"compaction fails: {error}"
            raise

    def _write(self, now_ms: int) -> str:
        model, folder = self._random.choice(self._partitions)
        settings = CompactionSettings(
            now_ms,
            "test",
            self._random.choice((-1.0, 0.3)),
            self._random.choice(RETENTIONS_MS),
            self._random.choice(SEGMENT_BYTES),
            chunk_bytes=self._random.choice(CHUNK_BYTES),
            fast=False,
        )
        draft = write_draft(self._disk, folder, make_plan(self._disk, folder), settings, self._new_id)
        if draft is None:
            return ""
        self._drafts.append((model, folder, draft))
        return f"draft of generation {draft.manifest.generation} to {draft.manifest.clean_end} in {folder}"

    def _commit(self, now_ms: int) -> str:
        if not self._drafts:
            return self._write(now_ms)
        model, folder, draft = self._drafts.pop(self._random.randrange(len(self._drafts)))
        if not model.is_safe_below(draft.manifest.clean_end):
            return ""
        model.mark_compacted(draft.manifest.clean_end)
        is_committed = commit_draft(self._disk, folder, draft, now_ms, self._new_id())
        return f"generation {draft.manifest.generation} in {folder} {'won' if is_committed else 'lost'}"

    def _publish_and_collect(self, now_ms: int) -> str:
        compacted_folders = [folder for _, folder in self._partitions if self._disk.names(manifest_folder(folder))]
        if not compacted_folders:
            return self._commit(now_ms)
        folder = self._random.choice(compacted_folders)
        counts = publish_and_collect(self._disk, folder, now_ms, self._random.choice(GRACES_MS), self._new_id)
        return f"published and collected {folder}: {counts}" if any(counts) else ""

    def _new_id(self) -> str:
        return f"{self._random.getrandbits(32):08x}"
