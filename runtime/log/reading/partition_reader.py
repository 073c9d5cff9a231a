"""Reading an offsets partition from outside: nothing is locked, mended or written, and a server may write meanwhile.

For programs that look at a data folder which is not theirs, Spark jobs above all. They see the partition files alone.
While a server runs these may be a quarter of a second behind what was acknowledged, which the journal holds; after a
crash they stay behind until the next start lays the journal in; after a clean stop they are exact. Kafka's own
partition folders read alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from ....actors.javahash import offsets_partition
from ....actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
    UnknownRecord,
)
from ...disk.disk import Disk
from ..folder import INFO_NAME
from ..format.batch import Batch
from ..format.errors import Damage, DamagedBatch, DamagedRecord
from ..format.transaction_records import decode_record
from ..manifest import log_files, refuse_replaced
from ..partition import TOPIC
from ..recovery.missing import missing_files
from ..recovery.quarantine import Quarantine
from .backwards import OnDamage
from .damage_scan import scan_past_damage

# With the records themselves, for those who import nothing but the log.
__all__ = [
    "GroupRecord",
    "GroupValue",
    "MarkerRecord",
    "MemberValue",
    "OffsetKey",
    "OffsetRecord",
    "OffsetValue",
    "PendingOffsetRecord",
    "Record",
    "UnknownRecord",
    "is_unfinished_tail",
    "live_groups",
    "live_offsets",
    "partition_folders",
    "partition_of",
    "read_partition",
]

Key = TypeVar("Key")
Value = TypeVar("Value")
Found = TypeVar("Found")

TRIES = 3

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


def partition_of(group_id: str, partitions: int) -> int:
    """The partition that all records of a group lie in, of so many."""
    return offsets_partition(group_id, partitions)


def read_partition(
    folder: Path, disk: Disk | None = None, on_damage: OnDamage | None = None
) -> Iterator[tuple[int, int, Record]]:
    """Offset, timestamp in ms and record of all that is in one partition's folder, oldest first.

    What was written when the reading of the last segment began is what is read. A batch torn off at its end is where
    the reading stops: it is being written, or a crash left it. Offsets in a transaction come as a
    ``PendingOffsetRecord``, and count when a ``MarkerRecord`` of their producer says so.

    Damage anywhere else is passed over: it costs the records that lie in it, as it costs a server that loads them.
    ``on_damage`` hears of it, else a line of the log names the file and the byte.

    UnsupportedCompression for a batch of Kafka's in a codec that is not installed; FileNotFoundError when there is no
    such folder, and when compaction has removed a file meanwhile, which it does when the reading takes longer than its
    time of grace: then begin again. OSError names the file and the byte that the disk does not give.
    """
    told = on_damage or Quarantine().add
    for path, piece in _pieces(disk or Disk(), folder):
        if isinstance(piece, Damage):
            told(piece)
        else:
            yield from _records(piece, path, told)


def live_offsets(folder: Path, on_damage: OnDamage | None = None) -> dict[OffsetKey, tuple[int, OffsetValue]]:
    """What is committed in one partition's folder: for group, topic and partition the newest value and its log offset.

    A tombstone removes its key, an open transaction has committed nothing yet. Damage and errors as in
    ``read_partition``; when it has to begin again, the same may be told twice.
    """
    return _again(lambda: _live_offsets(folder, on_damage), folder)


def live_groups(folder: Path, on_damage: OnDamage | None = None) -> dict[str, tuple[int, GroupValue]]:
    """As ``live_offsets``, for the groups themselves: by name."""
    return _again(lambda: _live_groups(folder, on_damage), folder)


def _again(read: Callable[[], Found], folder: Path) -> Found:
    """Begin again when a file has gone that compaction has replaced."""
    for _ in range(TRIES):
        try:
            return read()
        except FileNotFoundError:
            if not folder.is_dir():
                raise
    return read()


def _live_offsets(folder: Path, on_damage: OnDamage | None) -> dict[OffsetKey, tuple[int, OffsetValue]]:
    live = _LiveOffsets()
    for log_offset, _, record in read_partition(folder, on_damage=on_damage):
        live.replay(log_offset, record)
    return live.found


def _live_groups(folder: Path, on_damage: OnDamage | None) -> dict[str, tuple[int, GroupValue]]:
    live: dict[str, tuple[int, GroupValue]] = {}
    for log_offset, _, record in read_partition(folder, on_damage=on_damage):
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


def _records(batch: Batch, path: Path, on_damage: OnDamage) -> Iterator[tuple[int, int, Record]]:
    """What cannot be read though the checksum is right is told, too; a compressed batch may be right."""
    next_offset = batch.base_offset
    try:
        for offset, timestamp_ms, key, value in batch.records():
            next_offset = offset + 1
            try:
                record = decode_record(batch, key, value)
            except DamagedRecord as error:
                reason = f"record at offset {offset}: {error}"
                on_damage(Damage(path, batch.position, batch.size, reason, offset, offset + 1))
                continue
            if record is not None:
                yield offset, timestamp_ms, record
    except DamagedBatch as error:
        on_damage(Damage(path, batch.position, batch.size, error.reason, next_offset, batch.last_offset + 1))


def _pieces(disk: Disk, folder: Path) -> Iterator[tuple[Path, Batch | Damage]]:
    """The good batches of all files, and the damage between them, each with its file."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: found no folder, expected one to read; check the path")
    for damage in missing_files(disk, folder)[1]:
        yield damage.path, damage
    manifest, files = log_files(disk, folder)
    for file, next_file in zip_longest(files, files[1:]):
        next_base = None if file.is_clean or next_file is None else next_file.base
        for piece in scan_past_damage(disk, file.path, file.base, next_base):
            if not file.is_closed and isinstance(piece, Damage) and is_unfinished_tail(disk, piece):
                return
            if isinstance(piece, Damage):
                refuse_replaced(disk, folder, manifest)
            yield file.path, piece


def is_unfinished_tail(disk: Disk, damage: Damage) -> bool:
    """Whether damage in the newest file is where writing goes on, or went on when a crash ended it.

    Nothing good lies behind it; or what does was written while we looked, and then it is good itself by now.
    """
    if damage.offset_after is None and damage.is_certain:
        return True
    path, position, size, _, offset, *_ = damage
    again = next(scan_past_damage(disk, path, offset, position=position, size=position + size), None)
    return isinstance(again, Batch) and again.base_offset == offset


def _names(disk: Disk, folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: found no folder, expected one to read; check the path")
    return disk.names(folder)
