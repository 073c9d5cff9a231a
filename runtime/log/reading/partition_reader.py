"""Reads an offsets partition from outside the server: nothing is locked, repaired or written. A server may be running.

For programs that read the data folder of a server, mainly Spark jobs. They see only the partition files. While a server
runs, these may be a quarter of a second behind the acknowledged records, which are in the journal. After a crash they
stay behind until the next start replays the journal; after a clean stop they are complete. The partition folders of a
Kafka broker can be read in the same way.
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
    group_id_of,
)
from ...disk.disk import Disk
from ..folder import INFO_NAME
from ..format.batch import Batch
from ..format.errors import Damage, DamagedBatch, DamagedRecord
from ..format.transaction_records import decode_record
from ..manifest import log_files, refuse_replaced
from ..partition import TOPIC
from ..recovery.missing import missing_files
from ..recovery.quarantine import DamageRegistry
from .backwards import OnDamage
from .damage_scan import scan_past_damage

# Includes the record types, for users that import nothing else of the log.
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
    "group_id_of",
    "is_unfinished_tail",
    "live_groups",
    "live_offsets",
    "partition_folders",
    "partition_of",
    "read_partition",
]

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")

TRIES = 3

OffsetKey = tuple[str, str, int]
"""Group id, topic and partition."""

_FOLDER_NAME = re.compile(rf"{TOPIC}-([0-9]+)")


def partition_folders(data: Path, disk: Disk | None = None) -> dict[int, Path]:
    """The partition folders of a data folder, by partition number, in order; empty before the first write.

    Raises FileNotFoundError if the folder does not exist or is not a data folder.
    """
    names = _names(disk or Disk(), data)
    folders = {int(match[1]): data / match[0] for name in names if (match := _FOLDER_NAME.fullmatch(name))}
    if not folders and INFO_NAME not in names:
        raise FileNotFoundError(
            f"{data}: found neither {INFO_NAME} nor a folder {TOPIC}-N, expected the data folder of a server;"
            " give the folder that contains the partition folders"
        )
    return dict(sorted(folders.items()))


def partition_of(group_id: str, partitions: int) -> int:
    """The number of the partition that has all records of a group; ``partitions``: how many there are."""
    return offsets_partition(group_id, partitions)


def read_partition(
    folder: Path, disk: Disk | None = None, on_damage: OnDamage | None = None
) -> Iterator[tuple[int, int, Record]]:
    """Offset, timestamp in ms and record of everything in a partition's folder, oldest first.

    Reads up to the end of the last segment at the time it is opened, or up to an incomplete batch there, which is being
    written or was left by a crash. Offsets in a transaction are yielded as ``PendingOffsetRecord``; they count once a
    ``MarkerRecord`` of their producer commits them.

    Damage elsewhere is skipped: its records are lost, as they are for a server that loads the partition. ``on_damage``
    is called with it; by default it is logged with the file and the position.

    Raises UnsupportedCompression for a batch in a codec that is not installed, FileNotFoundError if there is no such
    folder or if compaction removed a file (when reading takes longer than its grace period; then read again), and
    OSError with the file and the position that cannot be read.
    """
    report_damage = on_damage or DamageRegistry().add
    for path, piece in _pieces(disk or Disk(), folder):
        if isinstance(piece, Damage):
            report_damage(piece)
        else:
            yield from _records(piece, path, report_damage)


def live_offsets(folder: Path, on_damage: OnDamage | None = None) -> dict[OffsetKey, tuple[int, OffsetValue]]:
    """The committed offsets in a partition's folder, by group, topic and partition: log offset and value.

    Offsets deleted by a tombstone, and those of open transactions, are left out. Damage and errors as in
    ``read_partition``; a retry may report the same damage again.
    """
    return _retry(lambda: _live_offsets(folder, on_damage), folder)


def live_groups(folder: Path, on_damage: OnDamage | None = None) -> dict[str, tuple[int, GroupValue]]:
    """As ``live_offsets``, for the groups themselves, by group id."""
    return _retry(lambda: _live_groups(folder, on_damage), folder)


def _retry(read: Callable[[], Result], folder: Path) -> Result:
    """Call ``read``; if compaction removed a file, call it again."""
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
    return live.committed


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
    """The committed offsets, and the pending offsets of open transactions."""

    def __init__(self) -> None:
        self.committed: dict[OffsetKey, tuple[int, OffsetValue]] = {}
        self._pending: dict[int, dict[OffsetKey, tuple[int, OffsetValue]]] = {}

    def replay(self, log_offset: int, record: Record) -> None:
        if isinstance(record, MarkerRecord):
            self._end_transaction(record)
        elif isinstance(record, OffsetRecord | PendingOffsetRecord):
            self._offset(log_offset, record)

    def _offset(self, log_offset: int, record: OffsetRecord | PendingOffsetRecord) -> None:
        key = record.group_id, record.topic, record.partition
        if record.value is not None and isinstance(record, PendingOffsetRecord):
            self._pending.setdefault(record.producer_id, {})[key] = log_offset, record.value
            return
        _put(self.committed, key, log_offset, record.value)
        if record.value is None:
            for pending in self._pending.values():
                pending.pop(key, None)

    def _end_transaction(self, marker: MarkerRecord) -> None:
        """A committed offset does not replace one that is later in the log."""
        for key, (log_offset, value) in self._pending.pop(marker.producer_id, {}).items():
            if marker.committed and (key not in self.committed or self.committed[key][0] < log_offset):
                self.committed[key] = log_offset, value


def _records(batch: Batch, path: Path, on_damage: OnDamage) -> Iterator[tuple[int, int, Record]]:
    """The records of a batch. Unreadable records of a valid batch are reported as damage."""
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
    """The valid batches of all files and the damage between them, each with its file."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: found no folder, expected one to read; check the path")
    for damage in missing_files(disk, folder)[1]:
        yield damage.path, damage
    manifest, files = log_files(disk, folder)
    for file, next_file in zip_longest(files, files[1:]):
        next_base = None if file.is_compacted or next_file is None else next_file.base
        for piece in scan_past_damage(disk, file.path, file.base, next_base):
            if not file.is_closed and isinstance(piece, Damage) and is_unfinished_tail(disk, piece):
                return
            if isinstance(piece, Damage):
                refuse_replaced(disk, folder, manifest)
            yield file.path, piece


def is_unfinished_tail(disk: Disk, damage: Damage) -> bool:
    """Whether damage in the newest file is only its unfinished end: being written, or left by a crash.

    No valid batch follows it; or one does that was written during the scan, and then the range is valid by now.
    """
    if damage.offset_after is None and damage.is_certain:
        return True
    path, position, size, _, offset, *_ = damage
    retried = next(scan_past_damage(disk, path, offset, position=position, size=position + size), None)
    return isinstance(retried, Batch) and retried.base_offset == offset


def _names(disk: Disk, folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: found no folder, expected one to read; check the path")
    return disk.names(folder)
