"""What is worth compacting in a partition: decided by names and sizes, without reading a record.

Only closed files are, and only below the first open transaction. That one is found when it is met: most logs have none,
so nothing is read twice for it.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, file_size
from ..format.transaction_records import ABORT, COMMIT
from ..manifest import LogFile, Manifest, log_files
from ..reading.segment import scan
from .history import taken_to

MIN_CLEANABLE_DIRTY_RATIO = 0.5
"""Kafka's ``min.cleanable.dirty.ratio``: so each byte is rewritten about once for each byte that is new."""

_KIND_BYTES = slice(2, 4)


class CompactionPlan(NamedTuple):
    """What one run would read. ``end``: the first offset that it leaves alone.

    ``outcomes``: how the transactions ended whose markers lie at or behind ``end``: whether committed, by producer id.
    ``first_open``: where the transaction begins that kept ``end`` back; None when none did.
    """

    manifest: Manifest
    files: tuple[LogFile, ...]
    end: int
    clean_bytes: int
    dirty_bytes: int
    outcomes: dict[int, bool]
    first_open: int | None = None

    @property
    def dirty_ratio(self) -> float:
        """Which part of the bytes was never compacted; 0 when there are none."""
        return self.dirty_bytes / total if (total := self.clean_bytes + self.dirty_bytes) else 0.0

    def has_expired(self, now_ms: int) -> bool:
        """Whether a tombstone or a marker may go for good."""
        horizons = (segment.delete_horizon_ms for segment in self.manifest.segments)
        return any(horizon is not None and horizon <= now_ms for horizon in horizons)

    def is_due(self, now_ms: int, min_ratio: float) -> bool:
        """Whether it is worth it: by Kafka's ratio, or because tombstones have had their time."""
        is_dirty = self.dirty_bytes > 0 and self.dirty_ratio > min_ratio
        return bool(self.files) and (is_dirty or self.has_expired(now_ms))


def make_plan(disk: Disk, folder: Path, *, with_history: bool = True) -> CompactionPlan:
    """All that is closed now, and that a history has taken if there is one. OSError, ManifestError as in ``log_files``.

    No files when a history has not even taken what was compacted before it began.
    """
    manifest, files = log_files(disk, folder)
    closed = tuple(file for file in files if file.is_closed)
    end = files[len(closed)].base if len(closed) < len(files) else manifest.clean_end
    limit = taken_to(disk, folder) if with_history else None
    if limit is not None and limit < end:
        ends = [*(file.base for file in closed[1:]), end]
        count = sum(end <= limit for end in ends) if limit >= manifest.clean_end else 0
        closed, end = closed[:count], ends[count - 1] if count else manifest.clean_end
    return _planned(disk, manifest, closed, end)


def below_open_transactions(disk: Disk, plan: CompactionPlan) -> CompactionPlan:
    """The part of a plan that is below the first open transaction. Reads all that was never compacted.

    What was compacted before has no open transaction in it: that is how far it was taken then. DamagedBatch.
    """
    began: dict[int, int] = {}
    ends = [*(file.base for file in plan.files[1:]), plan.end]
    for file in plan.files:
        if not file.is_clean:
            _follow(disk, file, began)
    limit = min(began.values(), default=inf)
    count = sum(end <= limit for end in ends)
    kept, surplus = plan.files[:count], plan.files[count:]
    shorter = _planned(disk, plan.manifest, kept, surplus[0].base if surplus else plan.end)
    return shorter._replace(outcomes=_outcomes(disk, surplus), first_open=None if limit == inf else int(limit))


def _planned(disk: Disk, manifest: Manifest, files: tuple[LogFile, ...], end: int) -> CompactionPlan:
    clean = sum(segment.size for segment in manifest.segments)
    dirty = sum(file_size(disk, file.path) for file in files if not file.is_clean)
    return CompactionPlan(manifest, files, end, clean, dirty, {})


def _follow(disk: Disk, file: LogFile, began: dict[int, int]) -> None:
    """Go on with where the transactions began that are open."""
    for batch in scan(disk, file.path):
        if batch.is_control:
            began.pop(batch.producer_id, None)
        elif batch.is_transactional and batch.record_count:
            began.setdefault(batch.producer_id, batch.base_offset)


def _outcomes(disk: Disk, files: tuple[LogFile, ...]) -> dict[int, bool]:
    """The first end of a transaction of each producer."""
    found: dict[int, bool] = {}
    for file in files:
        for batch in scan(disk, file.path):
            for _, _, key, _ in batch.records() if batch.is_control else ():
                kind = int.from_bytes((key or b"")[_KIND_BYTES], "big")
                if kind in (ABORT, COMMIT):
                    found.setdefault(batch.producer_id, kind == COMMIT)
    return found
