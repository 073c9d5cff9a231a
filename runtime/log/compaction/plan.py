"""Decides what to compact in a partition, by file names and sizes and without reading records.

Only closed files are compacted, and only below the first open transaction. Most logs have none, so it is searched only
after a run has met one.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, file_size
from ..format.transaction_records import ABORT, COMMIT
from ..manifest import TRIES, LogFile, Manifest, is_replaced, log_files
from ..reading.segment import scan
from .history import history_limit

_KIND_BYTES = slice(2, 4)


class CompactionPlan(NamedTuple):
    """The files that one run would read. ``end``: the first offset that it does not compact.

    ``outcomes``: for transactions whose markers are at or after ``end``, whether they were committed, by producer id.
    ``first_open``: the first offset of the open transaction that limits ``end``; None without one.
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
        return dirty_ratio(self.clean_bytes, self.dirty_bytes)

    def has_expired(self, now_ms: int) -> bool:
        return any_expired((segment.delete_horizon_ms for segment in self.manifest.segments), now_ms)

    def is_due(self, now_ms: int, min_ratio: float) -> bool:
        """Whether a run is worth it: by Kafka's ratio, or because of expired tombstones."""
        is_dirty = self.dirty_bytes > 0 and self.dirty_ratio > min_ratio
        return bool(self.files) and (is_dirty or self.has_expired(now_ms))


def dirty_ratio(clean_bytes: int, dirty_bytes: int) -> float:
    """The share of bytes that was never compacted; 0 in an empty log."""
    return dirty_bytes / total if (total := clean_bytes + dirty_bytes) else 0.0


def any_expired(horizons: Iterable[int | None], now_ms: int) -> bool:
    """Whether a tombstone or a marker has passed its delete horizon."""
    return any(horizon is not None and horizon <= now_ms for horizon in horizons)


def make_plan(disk: Disk, folder: Path, *, with_history: bool = True) -> CompactionPlan:
    """Plan all files that are closed and, if there is a history, copied by it. Errors as in ``log_files``.

    The plan has no files if the history has not yet copied the part that was compacted before it existed. Files that
    another compaction removes meanwhile are planned anew. Raises FileNotFoundError for one that is gone otherwise.
    """
    for _ in range(TRIES - 1):
        manifest, files = log_files(disk, folder)
        try:
            return _plan_of(disk, folder, manifest, files, with_history)
        except FileNotFoundError:
            if not is_replaced(disk, folder, manifest):
                raise
    return _plan_of(disk, folder, *log_files(disk, folder), with_history)


def _plan_of(
    disk: Disk, folder: Path, manifest: Manifest, files: tuple[LogFile, ...], with_history: bool
) -> CompactionPlan:
    closed = tuple(file for file in files if file.is_closed)
    end = files[len(closed)].base if len(closed) < len(files) else manifest.clean_end
    limit = history_limit(disk, folder) if with_history else None
    if limit is not None and limit < end:
        ends = [*(file.base for file in closed[1:]), end]
        count = sum(end <= limit for end in ends) if limit >= manifest.clean_end else 0
        closed, end = closed[:count], ends[count - 1] if count else manifest.clean_end
    return _new_plan(disk, manifest, closed, end)


def below_open_transactions(disk: Disk, plan: CompactionPlan) -> CompactionPlan:
    """The part of a plan below the first open transaction. Reads all files that were never compacted.

    Compacted files have no open transactions, because earlier runs stopped below them. Raises DamagedBatch.
    """
    open_since: dict[int, int] = {}
    ends = [*(file.base for file in plan.files[1:]), plan.end]
    for file in plan.files:
        if not file.is_compacted:
            _track_open_transactions(disk, file, open_since)
    limit = min(open_since.values(), default=inf)
    count = sum(end <= limit for end in ends)
    kept_files, remaining_files = plan.files[:count], plan.files[count:]
    shorter_plan = _new_plan(disk, plan.manifest, kept_files, remaining_files[0].base if remaining_files else plan.end)
    return shorter_plan._replace(
        outcomes=_read_outcomes(disk, remaining_files), first_open=None if limit == inf else int(limit)
    )


def _new_plan(disk: Disk, manifest: Manifest, files: tuple[LogFile, ...], end: int) -> CompactionPlan:
    clean_bytes = sum(segment.size for segment in manifest.segments)
    dirty_bytes = sum(file_size(disk, file.path) for file in files if not file.is_compacted)
    return CompactionPlan(manifest, files, end, clean_bytes, dirty_bytes, {})


def _track_open_transactions(disk: Disk, file: LogFile, open_since: dict[int, int]) -> None:
    """Update the first offsets of open transactions with a file."""
    for batch in scan(disk, file.path):
        if batch.is_control:
            open_since.pop(batch.producer_id, None)
        elif batch.is_transactional and batch.record_count:
            open_since.setdefault(batch.producer_id, batch.base_offset)


def _read_outcomes(disk: Disk, files: tuple[LogFile, ...]) -> dict[int, bool]:
    """The outcome of the first transaction that each producer ends in these files: whether it was committed."""
    outcomes: dict[int, bool] = {}
    for file in files:
        for batch in scan(disk, file.path):
            for _, _, key, _ in batch.records() if batch.is_control else ():
                kind = int.from_bytes((key or b"")[_KIND_BYTES], "big")
                if kind in (ABORT, COMMIT):
                    outcomes.setdefault(batch.producer_id, kind == COMMIT)
    return outcomes
