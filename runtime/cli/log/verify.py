"""Checks every checksum and record of a log, and that three ways of reading it give the same result.

The three are: record by record from the beginning, as a running group applies them; newest first, as a server loads;
and record by record after compaction. They share only the decoding of records, so a fault in one of them is visible as
a difference. All checks use a snapshot of the partition in a temporary folder (links to the closed files, a copy of the
open one), so servers and compactions may run meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, file_size, read_at
from ...engine.clock import wall_clock_ms
from ...log.compaction.swap import CompactionSettings, compact
from ...log.format.batch import Batch
from ...log.format.errors import Damage, DamagedBatch, UnsupportedCompression
from ...log.manifest import LogFile, log_files, manifest_folder, manifest_name, segments_folder
from ...log.reading.segment import segment_name
from ...log.recovery.misplaced import Misplaced, find_misplaced
from .forward import ForwardReading
from .newest import NewestContent, State, load_newest
from .scan import (
    LogPartition,
    Unreadable,
    find_missing,
    find_missing_ends,
    is_torn_tail,
    scan_batches,
)

CENTURY_MS = 100 * 365 * 24 * 60 * 60 * 1000
"""Added to the clock, so that all tombstones have passed their retention."""

_COPY_BYTES = 1024 * 1024


class PartitionCheck(NamedTuple):
    """The result for one partition. ``differences``: texts that name a group and the two ways of reading that differ.

    ``is_short``: data is missing at its ends. ``misplaced``: a group or id that belongs to another partition.
    """

    partition: LogPartition
    records: int
    size: int
    problems: tuple[Damage | Unreadable | str, ...]
    torn_tail: Damage | None
    keys: int  # groups or transactional ids
    differences: tuple[str, ...]
    is_short: bool = False
    misplaced: Misplaced | None = None

    @property
    def is_valid(self) -> bool:
        return not (self.problems or self.differences or self.misplaced)


def verify(partition: LogPartition, scratch: Path, disk: Disk) -> PartitionCheck:
    """Check the current state of a partition. ``scratch``: an empty folder for the snapshot, which stays there.

    An OSError names the file of a disk failure.
    """
    snapshot = LogPartition(partition.topic, partition.number, scratch / partition.folder.name)
    _make_snapshot(disk, partition.folder, snapshot.folder)
    disk = Disk(follows_links=True)  # the snapshot has links to closed segments
    reading, torn_tail = ForwardReading(snapshot), None
    is_short = any(find_missing_ends(partition, disk))
    problems: list[Damage | Unreadable] = [*find_missing(partition, disk)]
    for file, item in scan_batches(snapshot, disk):
        if isinstance(item, Batch):
            problems += (
                problem._replace(path=_original_path(problem.path, partition, snapshot))
                for problem in reading.add(file, item)
            )
        elif is_torn_tail(item, snapshot, disk):
            torn_tail = item._replace(path=_original_path(item.path, partition, snapshot))
        else:
            problems.append(item._replace(path=_original_path(item.path, partition, snapshot)))
    state = reading.state()
    size = _log_bytes(snapshot, disk)
    differences = () if problems else tuple(_compare(snapshot, disk, state, torn_tail))
    results = tuple(problems), torn_tail, len(state), differences, is_short
    return PartitionCheck(partition, reading.records, size, *results, _misplaced(partition, state))


def verify_quickly(partition: LogPartition, scratch: Path, disk: Disk) -> PartitionCheck:
    """Check the checksums and offsets of a partition, the newest record of each key, and that its groups belong to it.

    The partition is read once, newest first. ``scratch`` and errors as in ``verify``.
    """
    snapshot = LogPartition(partition.topic, partition.number, scratch / partition.folder.name)
    _make_snapshot(disk, partition.folder, snapshot.folder)
    missing, is_short = [*find_missing(partition, disk)], any(find_missing_ends(partition, disk))
    disk = Disk(follows_links=True)
    content = _load_snapshot(snapshot, disk, has_missing_files=bool(missing))
    torn_tail: Damage | None = None
    problems: list[Damage | Unreadable | str] = [*missing]
    for damage in content.damages:
        if is_torn_tail(damage, snapshot, disk):
            torn_tail = damage._replace(path=_original_path(damage.path, partition, snapshot))
        else:
            problems.append(damage._replace(path=_original_path(damage.path, partition, snapshot)))
    problems += (problem.replace(str(snapshot.folder), str(partition.folder)) for problem in content.problems)
    results = tuple(problems), torn_tail, len(content.state), (), is_short
    size = _log_bytes(snapshot, disk)
    return PartitionCheck(partition, content.records, size, *results, _misplaced(partition, content.state))


def _load_snapshot(snapshot: LogPartition, disk: Disk, *, has_missing_files: bool) -> NewestContent:
    try:
        return load_newest(snapshot, disk)
    except UnsupportedCompression as error:
        return NewestContent({}, 0, 0, [], [str(error)])
    except FileNotFoundError:
        if not has_missing_files:
            raise
        return NewestContent({}, 0, 0, [], [])


def _log_bytes(snapshot: LogPartition, disk: Disk) -> int:
    files = (file.path for file in log_files(disk, snapshot.folder).files)
    return sum(file_size(disk, path) for path in files if disk.kind(path) == "file")


def _misplaced(partition: LogPartition, state: State) -> Misplaced | None:
    topic, number, folder, _, partitions = partition
    return find_misplaced(state, folder, topic, number, partitions) if partitions else None


def _original_path(path: Path, partition: LogPartition, snapshot: LogPartition) -> Path:
    """The path in the partition's folder of a path in its snapshot."""
    return partition.folder / path.relative_to(snapshot.folder)


def _compare(snapshot: LogPartition, disk: Disk, state: State, torn_tail: Damage | None) -> Iterator[str]:
    yield from describe_differences(state, "record by record", load_newest(snapshot, disk).state, "newest first")
    _close_last_segment(disk, snapshot, torn_tail)
    for round, now_ms in enumerate((wall_clock_ms(), wall_clock_ms() + CENTURY_MS), 1):
        try:
            compact(
                disk,
                snapshot.folder,
                CompactionSettings(now_ms, "callboard log verify", min_ratio=-1, delete_retention_ms=0),
            )
        except (DamagedBatch, UnsupportedCompression) as error:
            yield f"loading can read this log, compaction cannot: {error}"
            return
        yield from describe_differences(
            state, "record by record", _replayed(snapshot, disk), f"after compaction {round}"
        )


def describe_differences(state: State, description: str, other_state: State, other_description: str) -> Iterator[str]:
    """One text for each key that differs between two ways of reading."""
    for key in sorted(state.keys() | other_state.keys()):
        if state.get(key) != other_state.get(key):
            yield f"{key!r} is {state.get(key)!r} {description}, and {other_state.get(key)!r} {other_description}"


def _replayed(snapshot: LogPartition, disk: Disk) -> dict[str, object]:
    reading = ForwardReading(snapshot)
    for file, item in scan_batches(snapshot, disk):
        if isinstance(item, Batch):
            list(reading.add(file, item))
    return reading.state()


# Snapshot ------------------------------------------------------------------------------------------------------------


def _make_snapshot(disk: Disk, folder: Path, snapshot: Path) -> None:
    manifest, files = log_files(disk, folder)
    for path in (snapshot, segments_folder(snapshot), manifest_folder(snapshot)):
        path.mkdir(parents=True, exist_ok=True)
    if manifest.generation:
        name = manifest_name(manifest.generation)
        shutil.copyfile(manifest_folder(folder) / name, manifest_folder(snapshot) / name)
    for file in files:
        target = snapshot / file.path.relative_to(folder)
        if file.is_closed:
            _check_file(disk, file.path)
            target.symlink_to(file.path.absolute())
        else:
            _copy(disk, file, target)


def _check_file(disk: Disk, path: Path) -> None:
    """Raise OSError, which names the path and not a link to it, for what is no file. A missing one is damage."""
    with suppress(FileNotFoundError):
        disk.close(disk.open(path, os.O_RDONLY))


def _copy(disk: Disk, file: LogFile, target: Path) -> None:
    """Copy the file up to its current size."""
    fd = disk.open(file.path, os.O_RDONLY)
    try:
        size = disk.size(fd)
        with target.open("wb") as copy:
            for at in range(0, size, _COPY_BYTES):
                copy.write(read_at(disk, fd, min(_COPY_BYTES, size - at), at))
    finally:
        disk.close(fd)


def _close_last_segment(disk: Disk, snapshot: LogPartition, torn_tail: Damage | None) -> None:
    """Create a segment after the last one, so that compaction includes that one. Both are the snapshot's own files."""
    files = log_files(disk, snapshot.folder).files
    if files and not files[-1].is_closed:
        path = files[-1].path
        if torn_tail is not None:
            os.truncate(path, torn_tail.position)
        ends = (item.last_offset + 1 for _, item in scan_batches(snapshot, disk) if isinstance(item, Batch))
        (snapshot.folder / segment_name(max((files[-1].base + 1, *ends)))).touch()
