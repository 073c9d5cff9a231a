"""Every checksum and record of a log, and three ways of reading it that must come to the same.

The three are: record by record from the beginning, as a group is built while it runs; newest first, as a server loads;
and record by record again after compaction. They share no more than the decoding of records, so a fault in one of them
shows. All of it works on a picture of the partition in a scratch folder (links to the files that do not change any
more, a copy of the one that does), so a server may go on writing and a compactor compacting.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....actors.group.offsets import GroupData
from ....actors.records import GroupRecord, MarkerRecord, OffsetRecord, PendingOffsetRecord, Record, TransactionRecord
from ...disk.disk import Disk, file_size, read_at
from ...engine.clock import wall_clock_ms
from ...log.compaction.swap import CompactionSettings, compact
from ...log.format.batch import Batch
from ...log.format.errors import Damage, DamagedBatch, UnsupportedCompression
from ...log.manifest import LogFile, log_files, manifest_folder, manifest_name, segments_folder
from ...log.partition import TOPIC
from ...log.reading.newest import load_partition
from ...log.reading.segment import segment_name
from ...log.recovery.misplaced import Misplaced, find_misplaced
from .walk import Found, LogPartition, Unreadable, batches, gone, is_torn_tail, lost_ends, walk, walk_files

CENTURY_MS = 100 * 365 * 24 * 60 * 60 * 1000
"""So far ahead all tombstones have had their time."""

_COPY_BYTES = 1024 * 1024

State = Mapping[str, object]
"""What a partition holds, by group or transactional id: values that can be compared."""


class Checked(NamedTuple):
    """What was found. ``differences``: sentences that name a group and two ways of reading that disagree about it.

    ``is_short``: something at its ends is gone. ``misplaced``: what lies here and belongs to another partition.
    """

    partition: LogPartition
    records: int
    size: int
    troubles: tuple[Damage | Unreadable, ...]
    torn: Damage | None
    keys: int  # groups or transactional ids
    differences: tuple[str, ...]
    is_short: bool = False
    misplaced: Misplaced | None = None

    @property
    def is_well(self) -> bool:
        return not (self.troubles or self.differences or self.misplaced)


class Replay:
    """Records in the order of the log become groups and transactional ids."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupData] = {}
        self._transactions: dict[str, object] = {}
        self._open: dict[int, set[str]] = {}  # for each producer the groups in which its transaction is open

    def take(self, record: Record | None) -> None:
        if isinstance(record, MarkerRecord):
            for group_id in self._open.pop(record.producer_id, ()):
                self._groups[group_id].replay(record)
        elif isinstance(record, TransactionRecord):
            self._transactions[record.transactional_id] = record.value
        elif isinstance(record, OffsetRecord | PendingOffsetRecord | GroupRecord):
            self._groups.setdefault(record.group_id, GroupData()).replay(record)
            if isinstance(record, PendingOffsetRecord):
                self._open.setdefault(record.producer_id, set()).add(record.group_id)

    def state(self) -> dict[str, object]:
        groups = {group_id: state_of(data) for group_id, data in self._groups.items() if not data.is_gone()}
        return groups | {name: value for name, value in self._transactions.items() if value is not None}


def state_of(data: GroupData) -> object:
    """A group's value, offsets and pending offsets, in an order of their own."""
    offsets = {(topic, partition): value for topic, partition, value in data.offsets}
    pending = {place: dict(producers) for place, producers in data.pending.places.items()}
    return data.value, offsets, pending


def verify(partition: LogPartition, scratch: Path, disk: Disk) -> Checked:
    """Check a partition as it is at this moment. ``scratch``: an empty folder, filled and left.

    OSError that names the file where the disk fails.
    """
    picture = LogPartition(partition.topic, partition.number, scratch / partition.folder.name)
    _take_picture(disk, partition.folder, picture.folder)
    disk = Disk(follows_links=True)  # the picture has links to closed segments
    replay, torn, records = Replay(), None, 0
    is_short = any(lost_ends(partition, disk))
    troubles: list[Damage | Unreadable] = [*gone(partition, disk)]
    for piece in walk_files(picture, disk):
        if isinstance(piece, Found):
            replay.take(piece.record)
            records += 1
        elif isinstance(piece, Damage) and is_torn_tail(piece, picture, disk):
            torn = piece
        else:
            troubles.append(_as_it_lies(piece, partition, picture))
    state = replay.state()
    files = (file.path for file in log_files(disk, picture.folder).files)
    size = sum(file_size(disk, path) for path in files if disk.kind(path) == "file")
    differences = () if troubles else tuple(_compare(picture, disk, state, torn))
    found = tuple(troubles), torn, len(state), differences, is_short
    return Checked(partition, records, size, *found, _misplaced(partition, state))


def _misplaced(partition: LogPartition, state: State) -> Misplaced | None:
    topic, number, folder, _, partitions = partition
    return find_misplaced(state, folder, topic, number, partitions) if partitions else None


def _as_it_lies(trouble: Damage | Unreadable, partition: LogPartition, picture: LogPartition) -> Damage | Unreadable:
    """With the file's real path instead of that in the picture."""
    return trouble._replace(path=partition.folder / trouble.path.relative_to(picture.folder))


def _compare(picture: LogPartition, disk: Disk, state: State, torn: Damage | None) -> Iterator[str]:
    if picture.topic == TOPIC:
        yield from differences(state, "record by record", _newest_first(picture, disk), "newest first")
    _close_last(disk, picture, torn)
    for round, now_ms in enumerate((wall_clock_ms(), wall_clock_ms() + CENTURY_MS), 1):
        try:
            compact(
                disk,
                picture.folder,
                CompactionSettings(now_ms, "callboard log verify", min_ratio=-1, delete_retention_ms=0),
            )
        except (DamagedBatch, UnsupportedCompression) as error:
            yield f"compaction cannot read what loading can: {error}"
            return
        yield from differences(state, "record by record", _replayed(picture, disk), f"after compaction {round}")


def differences(one: State, one_way: str, other: State, other_way: str) -> Iterator[str]:
    """A sentence for each key that two ways of reading do not agree about."""
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            yield f"{key!r} is {one.get(key)!r} {one_way}, and {other.get(key)!r} {other_way}"


def _newest_first(picture: LogPartition, disk: Disk) -> dict[str, object]:
    loaded = load_partition(picture.folder, disk)
    packed_groups = {group_id: state_of(GroupData.unpack(packed)) for group_id, packed in loaded.packed_groups.items()}
    unpacked_groups = {
        group_id: state_of(data) for group_id, data in loaded.unpacked_groups.items() if not data.is_gone()
    }
    return packed_groups | unpacked_groups


def _replayed(picture: LogPartition, disk: Disk) -> dict[str, object]:
    replay = Replay()
    for piece in walk(picture, disk):
        if isinstance(piece, Found):
            replay.take(piece.record)
    return replay.state()


# The picture ---------------------------------------------------------------------------------------------------------


def _take_picture(disk: Disk, folder: Path, picture: Path) -> None:
    manifest, files = log_files(disk, folder)
    for path in (picture, segments_folder(picture), manifest_folder(picture)):
        path.mkdir(parents=True, exist_ok=True)
    if manifest.generation:
        name = manifest_name(manifest.generation)
        shutil.copyfile(manifest_folder(folder) / name, manifest_folder(picture) / name)
    for file in files:
        target = picture / file.path.relative_to(folder)
        if file.is_closed:
            target.symlink_to(file.path.absolute())
        else:
            _copy(disk, file, target)


def _copy(disk: Disk, file: LogFile, target: Path) -> None:
    """As much as the file has now."""
    fd = disk.open(file.path, os.O_RDONLY)
    try:
        size = disk.size(fd)
        with target.open("wb") as copy:
            for at in range(0, size, _COPY_BYTES):
                copy.write(read_at(disk, fd, min(_COPY_BYTES, size - at), at))
    finally:
        disk.close(fd)


def _close_last(disk: Disk, picture: LogPartition, torn: Damage | None) -> None:
    """Begin a segment behind the last one, so that compaction takes that too. Both are the picture's own."""
    files = log_files(disk, picture.folder).files
    if files and not files[-1].is_closed:
        path = files[-1].path
        if torn is not None:
            os.truncate(path, torn.position)
        ends = (piece.last_offset + 1 for _, piece in batches(picture, disk) if isinstance(piece, Batch))
        (picture.folder / segment_name(max((files[-1].base + 1, *ends)))).touch()
