"""The figures of the log, a row for each partition: sizes, compaction, damages, and the durations of syncs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..common.errors import StartError
from ..disk.disk import Disk, file_size
from ..log.manifest import log_files
from ..log.partition import PARTITION_FOLDER
from ..log.stats import SYNC_BOUNDS_S, LogStats, PartitionStats

if TYPE_CHECKING:
    from .node import Node


class PartitionFiles(NamedTuple):
    """``dirty_bytes``: of segments that were never compacted. ``compacted_at_ms``: since 1970; None: never."""

    segments: int
    log_bytes: int
    dirty_bytes: int
    compacted_at_ms: int | None


class PartitionFigures(NamedTuple):
    """``name``: the folder's. ``end_offset`` is None for a partition that was not read yet. ``files``: None if they
    are not known. ``damages``: ranges that cannot be read. ``failure``: why it is not written any more, "" if it is.
    """

    name: str
    end_offset: int | None
    files: PartitionFiles | None
    damages: int
    failure: str


class LogFigures(NamedTuple):
    """``partitions`` are sorted by name. ``damages``: those of all files, also of the journal.

    ``is_compacting``: whether a compaction of this server runs.
    """

    stats: LogStats
    partitions: Sequence[PartitionFigures]
    damages: int
    is_compacting: bool


class LogCopy(NamedTuple):
    """What the node has in memory. ``damages``: by the name of the partition; "" for the journal."""

    stats: LogStats
    damages: Counter[str]
    disk: Disk
    folder: Path
    is_compacting: bool


def copy_log(node: Node) -> LogCopy:
    """Call it on the node's loop."""
    damages = Counter(_partition_of(damage.path) for damage in node.offsets_log.damages())
    is_compacting = node.cleaner is not None and node.cleaner.is_running
    return LogCopy(node.offsets_log.stats(), damages, node.environment.disk, node.services.options.data, is_compacting)


def read_log(copy: LogCopy) -> LogFigures:
    """Reads the names and sizes of all files: call it in a thread."""
    known = {partition.name: partition for partition in copy.stats.partitions}
    folders = {name for name in copy.disk.names(copy.folder) if PARTITION_FOLDER.fullmatch(name)}
    rows = [_figures(copy, name, known.get(name)) for name in sorted(known.keys() | folders, key=_order)]
    return LogFigures(copy.stats, rows, copy.damages.total(), copy.is_compacting)


def _figures(copy: LogCopy, name: str, stats: PartitionStats | None) -> PartitionFigures:
    files = None
    with suppress(OSError, StartError):  # a file was compacted meanwhile, or it is in a store
        files = _read_files(copy.disk, copy.folder / name)
    if stats is None:
        return PartitionFigures(name, None, files, copy.damages[name], "")
    return PartitionFigures(name, stats.end_offset, files, copy.damages[name], stats.failure)


def _read_files(disk: Disk, folder: Path) -> PartitionFiles | None:
    manifest, files = log_files(disk, folder)
    dirty = sum(file_size(disk, file.path) for file in files if not file.is_compacted)
    clean = sum(segment.size for segment in manifest.segments)
    if not files:
        return None
    return PartitionFiles(len(files), clean + dirty, dirty, manifest.created_ms if manifest.generation else None)


def _partition_of(path: Path) -> str:
    return next((part for part in reversed(path.parts) if PARTITION_FOLDER.fullmatch(part)), "")


def _order(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def sync_quantile_s(stats: LogStats, share: float) -> float | None:
    """The upper end of the bucket with this share of the syncs, in seconds. None without syncs, and above the last."""
    seen, wanted = 0, share * sum(stats.sync_counts)
    for bound_s, count in zip(SYNC_BOUNDS_S, stats.sync_counts, strict=False):
        seen += count
        if count and seen >= wanted:
            return bound_s
    return None
