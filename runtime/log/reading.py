"""Reading an offsets partition from outside: nothing is locked, mended or written, and a server may write meanwhile.

For programs that look at a data folder which is not theirs, Spark jobs above all. They see the partition files alone.
While a server runs these may be a quarter of a second behind what was acknowledged, which the journal holds; after a
crash they stay behind until the next start lays the journal in; after a clean stop they are exact. Kafka's own
partition folders read alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import structlog

from ...actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue, Record
from .batch import Batch, find_batch
from .disk import Disk, read_at
from .errors import DamagedBatch, DamagedRecord
from .folder import INFO_NAME
from .partition import TOPIC
from .records import decode
from .segment import scan, segment_base

Key = TypeVar("Key")
Value = TypeVar("Value")

_FOLDER_NAME = re.compile(rf"{TOPIC}-([0-9]+)")

log = structlog.get_logger()


def partition_folders(data: Path, disk: Disk | None = None) -> dict[int, Path]:
    """The folders of a data folder's partitions by their numbers, in order; none as long as nothing was written.

    FileNotFoundError when there is no such folder, or when it is nobody's data folder.
    """
    names = _names(disk or Disk(), data)
    found = {int(match[1]): data / match[0] for name in names if (match := _FOLDER_NAME.fullmatch(name))}
    if not found and INFO_NAME not in names:
        raise FileNotFoundError(
            f"{data}: found neither {INFO_NAME} nor a folder {TOPIC}-N, expected the data folder of a server;"
            " give the folder that holds those of the partitions"
        )
    return dict(sorted(found.items()))


def read_partition(folder: Path, disk: Disk | None = None) -> Iterator[tuple[int, int, Record]]:
    """Offset, timestamp in ms and record of all that is in one partition's folder, oldest first.

    What was written when the reading of the last segment began is what is read. A batch torn off at its end is where
    the reading stops: it is being written, or a crash left it. Transactional and control batches are passed over and
    counted in a warning, as the server does it.

    DamagedBatch, which names the file and the byte, for damage anywhere else; UnsupportedCompression for a batch of
    Kafka's that is compressed; FileNotFoundError when there is no such folder.
    """
    passed_over = 0
    for batch in _batches(disk or Disk(), folder):
        if batch.is_plain:
            yield from _records(batch)
        else:
            passed_over += 1
    if passed_over:
        log.warning("transactional batches passed over", folder=str(folder), batches=passed_over)


def live_offsets(folder: Path) -> dict[tuple[str, str, int], tuple[int, OffsetValue]]:
    """What is committed in one partition's folder: for group, topic and partition the newest value and its log offset.

    A tombstone removes its key. Errors as in ``read_partition``.
    """
    live: dict[tuple[str, str, int], tuple[int, OffsetValue]] = {}
    for log_offset, _, record in read_partition(folder):
        if isinstance(record, OffsetRecord):
            _put(live, (record.group_id, record.topic, record.partition), log_offset, record.value)
    return live


def live_groups(folder: Path) -> dict[str, tuple[int, GroupValue]]:
    """As ``live_offsets``, for the groups themselves: by name."""
    live: dict[str, tuple[int, GroupValue]] = {}
    for log_offset, _, record in read_partition(folder):
        if isinstance(record, GroupRecord):
            _put(live, record.group_id, log_offset, record.value)
    return live


def _put(live: dict[Key, tuple[int, Value]], key: Key, log_offset: int, value: Value | None) -> None:
    if value is None:
        live.pop(key, None)
    else:
        live[key] = log_offset, value


def _records(batch: Batch) -> Iterator[tuple[int, int, Record]]:
    for offset, timestamp_ms, key, value in batch.records():
        try:
            record = decode(key, value)
        except DamagedRecord as damage:
            raise DamagedBatch(batch.position, f"record at offset {offset}: {damage}", batch.source) from damage
        yield offset, timestamp_ms, record


def _batches(disk: Disk, folder: Path) -> Iterator[Batch]:
    """The batches of all segments. One whose offsets go back is never torn, so it is damage wherever it lies."""
    next_offset = 0
    for batch in _segments(disk, folder):
        if batch.base_offset < next_offset:
            reason = f"offset {batch.base_offset}, expected {next_offset} or more; put back a copy of this file"
            raise DamagedBatch(batch.position, reason, batch.source)
        next_offset = batch.last_offset + 1
        yield batch


def _segments(disk: Disk, folder: Path) -> Iterator[Batch]:
    names = [name for name in _names(disk, folder) if segment_base(name) is not None]
    for name in names[:-1]:
        yield from _closed_segment(disk, folder / name)
    if names:
        yield from _last_segment(disk, folder / names[-1])


def _closed_segment(disk: Disk, path: Path) -> Iterator[Batch]:
    """A segment that another one follows was synced before that one came: all of it must be good."""
    try:
        yield from scan(disk, path)
    except DamagedBatch as damage:
        reason = f"{damage.reason}, and only the last segment may be torn; put back a copy of this file"
        raise DamagedBatch(damage.position, reason, str(path)) from damage


def _last_segment(disk: Disk, path: Path) -> Iterator[Batch]:
    size = _size(disk, path)
    good_bytes = next_offset = 0
    try:
        for batch in scan(disk, path, size):
            good_bytes, next_offset = batch.position + batch.size, batch.last_offset + 1
            yield batch
    except DamagedBatch as damage:
        follows = find_batch(_rest(disk, path, good_bytes, size), 0, next_offset)
        if follows:  # at 0 it is the same batch, whose writing has ended meanwhile
            reason = (
                f"{damage.reason}, and a good batch behind it at byte {good_bytes + follows}, expected good ones up to"
                " a torn end; start the server on its folder, which mends what its journal holds, or put back a copy"
            )
            raise DamagedBatch(damage.position, reason, str(path)) from damage


def _names(disk: Disk, folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: found no folder, expected one to read; check the path")
    return disk.names(folder)


def _size(disk: Disk, path: Path) -> int:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return disk.size(fd)
    finally:
        disk.close(fd)


def _rest(disk: Disk, path: Path, start: int, end: int) -> bytes:
    """A file's bytes from ``start`` to ``end``; what a server has appended since lies behind and is not looked at."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        return read_at(disk, fd, end - start, start)
    finally:
        disk.close(fd)
