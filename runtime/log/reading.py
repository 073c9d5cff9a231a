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

from ...actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
)
from .batch import Batch, find_batch
from .disk import Disk, read_at
from .errors import DamagedBatch, DamagedRecord
from .folder import INFO_NAME
from .partition import TOPIC
from .segment import scan, segment_base
from .transaction_records import decode_record

Key = TypeVar("Key")
Value = TypeVar("Value")

OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""

_FOLDER_NAME = re.compile(rf"{TOPIC}-([0-9]+)")


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
    the reading stops: it is being written, or a crash left it. Offsets in a transaction come as a
    ``PendingOffsetRecord``, and count when a ``MarkerRecord`` of their producer says so.

    DamagedBatch, which names the file and the byte, for damage anywhere else; UnsupportedCompression for a batch of
    Kafka's that is compressed; FileNotFoundError when there is no such folder.
    """
    for batch in _batches(disk or Disk(), folder):
        yield from _records(batch)


def live_offsets(folder: Path) -> dict[OffsetKey, tuple[int, OffsetValue]]:
    """What is committed in one partition's folder: for group, topic and partition the newest value and its log offset.

    A tombstone removes its key, an open transaction has committed nothing yet. Errors as in ``read_partition``.
    """
    live = _LiveOffsets()
    for log_offset, _, record in read_partition(folder):
        live.replay(log_offset, record)
    return live.found


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


class _LiveOffsets:
    """What is committed, and what transactions are about to commit."""

    def __init__(self) -> None:
        self.found: dict[OffsetKey, tuple[int, OffsetValue]] = {}
        self._pending: dict[int, dict[OffsetKey, tuple[int, OffsetValue]]] = {}

    def replay(self, log_offset: int, record: Record) -> None:
        if isinstance(record, MarkerRecord):
            self._end(record)
        elif isinstance(record, OffsetRecord | PendingOffsetRecord):
            self._offset(log_offset, record)

    def _offset(self, log_offset: int, record: OffsetRecord | PendingOffsetRecord) -> None:
        key = record.group_id, record.topic, record.partition
        if record.value is not None and isinstance(record, PendingOffsetRecord):
            self._pending.setdefault(record.producer_id, {})[key] = log_offset, record.value
            return
        _put(self.found, key, log_offset, record.value)
        if record.value is None:
            for pending in self._pending.values():
                pending.pop(key, None)

    def _end(self, marker: MarkerRecord) -> None:
        """What lies later in the log counts, whenever the marker comes."""
        for key, (log_offset, value) in self._pending.pop(marker.producer_id, {}).items():
            if marker.committed and (key not in self.found or self.found[key][0] < log_offset):
                self.found[key] = log_offset, value


def _records(batch: Batch) -> Iterator[tuple[int, int, Record]]:
    for offset, timestamp_ms, key, value in batch.records():
        try:
            record = decode_record(batch, key, value)
        except DamagedRecord as damage:
            raise DamagedBatch(batch.position, f"record at offset {offset}: {damage}", batch.source) from damage
        if record is not None:
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
