"""All records of a data folder, ours or Kafka's, in the order of the log, and what is damaged between them.

Nothing is locked or written. While a server runs its partition files may be a quarter of a second behind what it has
acknowledged (the journal holds that), and the last file of a partition may end in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ....actors.records import Record
from ...common.errors import StartError
from ...disk.disk import Disk, read_file
from ...log.counts import repair_command
from ...log.folder import INFO_NAME, FolderInfo, parse_info
from ...log.format.batch import Batch
from ...log.format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ...log.format.transaction_records import decode_record, decode_transaction
from ...log.journal import FOLDER as JOURNAL
from ...log.manifest import LogFile, log_files
from ...log.partition import PARTITION_FOLDER, TOPIC, TRANSACTIONS_TOPIC
from ...log.reading.damage_scan import scan_past_damage
from ...log.recovery.known_ends import KnownEnd, known_ends, missing_ends
from ...log.recovery.misplaced import inferred_counts
from ...log.recovery.missing import missing_files

TOPICS = {"offsets": TOPIC, "transactions": TRANSACTIONS_TOPIC}
"""What people call the two logs, and what their folders are called."""

Decode = Callable[[Batch, bytes | None, bytes | None], Record | None]


class LogPartition(NamedTuple):
    """A partition's folder, which may be gone; ``known_end``: how far it must go, None for one of a Kafka's.

    ``topic_partitions``: how many its topic has; 0 if that is not known.
    """

    topic: str
    number: int
    folder: Path
    known_end: KnownEnd | None = None
    topic_partitions: int = 0


class Found(NamedTuple):
    """A record where it lies. ``record`` is None for what a control batch says besides the ends of transactions."""

    partition: LogPartition
    offset: int
    timestamp_ms: int
    record: Record | None


class Unreadable(NamedTuple):
    """A record, or all of a batch, whose checksum is right and whose content makes no sense."""

    partition: LogPartition
    path: Path
    position: int  # of the batch, in bytes
    offset: int  # of the record, or the first of the batch
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset} in the batch at byte {self.position} cannot be read: {self.reason}"


def find_partitions(
    data: Path, topic: str | None = None, numbers: Sequence[int] = (), disk: Disk | None = None
) -> list[LogPartition]:
    """The partitions in a data folder, those of offsets first; only the ones asked for.

    StartError when that is no data folder, one that a server would refuse by its ``callboard.json``, or a partition is
    asked for that is not there.
    """
    if not data.is_dir():
        what = "a file" if data.exists() else "no folder"
        raise StartError(f"{data}: found {what}, expected the data folder of a server; check the path")
    disk = disk or Disk()
    info = _info(data, disk)
    known = {} if info is None else known_ends(disk, data, info)
    unknown = None if info is None else KnownEnd(0, data / INFO_NAME)
    counts = {} if info is None else {TOPIC: info.offsets_partitions, TRANSACTIONS_TOPIC: info.transactions_partitions}
    names = disk.names(data)
    matches = [match for name in {*names, *known} if (match := PARTITION_FOLDER.fullmatch(name))]
    if not matches and INFO_NAME not in names:
        raise StartError(
            f"{data}: found neither {INFO_NAME} nor a folder {TOPIC}-N, expected the data folder of a server;"
            " give the folder that holds those of the partitions"
        )
    found = [
        LogPartition(match[1], int(match[2]), data / match[0], known.get(match[0], unknown), counts.get(match[1], 0))
        for match in matches
    ]
    wanted = [one for one in found if topic in (None, one.topic) and (not numbers or one.number in numbers)]
    missing = set(numbers) - {one.number for one in wanted}
    if missing:
        raise StartError(f"{data}: found no partition {min(missing)} with records; leave it out")
    return sorted(wanted, key=lambda one: one[:2])


def _info(data: Path, disk: Disk) -> FolderInfo | None:
    """What ``callboard.json`` says; None for Kafka's folders, or a copy of some of ours. StartError."""
    names, path = disk.names(data), data / INFO_NAME
    if INFO_NAME in names:
        return parse_info(path, read_file(disk, path))
    if JOURNAL in names:
        raise StartError(
            f"{data}: found a journal and no {INFO_NAME}, expected it there; put it back, or write a new one with"
            f" {repair_command(data, *inferred_counts(disk, data))}"
        )
    return None


def walk(partition: LogPartition, disk: Disk) -> Iterator[Found | Damage | Unreadable]:
    """Everything in a partition, oldest first, and then what is gone. OSError names the file where the disk fails."""
    yield from walk_files(partition, disk)
    yield from gone(partition, disk)


def walk_files(partition: LogPartition, disk: Disk) -> Iterator[Found | Damage | Unreadable]:
    """Everything in the files that are there. OSError."""
    decode = decoder(partition)
    for file, piece in batches(partition, disk):
        if isinstance(piece, Damage):
            yield piece
        else:
            yield from _records(partition, file, piece, decode)


def gone(partition: LogPartition, disk: Disk) -> Iterator[Damage]:
    """What is gone of a partition by its manifest, and at its ends, or all of it."""
    yield from missing_files(disk, partition.folder)[1]
    yield from lost_ends(partition, disk)


def lost_ends(partition: LogPartition, disk: Disk) -> Iterator[Damage]:
    """What is gone at the ends of a partition, or all of it."""
    if partition.known_end is not None:
        yield from missing_ends(disk, partition.folder, partition.known_end)


def decoder(partition: LogPartition) -> Decode:
    """What makes records of the keys and values of a partition; it may raise DamagedRecord."""
    return _decode_transaction if partition.topic == TRANSACTIONS_TOPIC else decode_record


def batches(partition: LogPartition, disk: Disk) -> Iterator[tuple[LogFile, Batch | Damage]]:
    """The good batches of all files, and the damage between them, each with its file. Files that are gone: ``gone``."""
    (manifest, files), missing = missing_files(disk, partition.folder)
    next_bases = [*(file.base for file in files[1:]), None]
    skipped = {damage.path for damage in missing if disk.kind(damage.path) != "file"}
    for file, next_base in zip(files, next_bases, strict=False):  # there may be no file yet
        end = next_base
        if file.is_clean:
            end = manifest.clean_end if next_base is None else min(next_base, manifest.clean_end)
        for piece in scan_past_damage(disk, file.path, file.base, end) if file.path not in skipped else ():
            yield file, piece


def is_torn_tail(damage: Damage, partition: LogPartition, disk: Disk) -> bool:
    """Whether it is the end of the newest file: a batch that is being written, or that a crash has cut off."""
    if damage.offset_after is not None or not damage.is_certain:
        return False
    last = log_files(disk, partition.folder).files[-1]
    return damage.path == last.path and not last.is_closed


def _records(partition: LogPartition, file: LogFile, batch: Batch, decode: Decode) -> Iterator[Found | Unreadable]:
    offset = batch.base_offset
    try:
        for offset, timestamp_ms, key, value in batch.records():
            try:
                yield Found(partition, offset, timestamp_ms, decode(batch, key, value))
            except DamagedRecord as damage:
                yield Unreadable(partition, file.path, batch.position, offset, str(damage))
    except (DamagedBatch, UnsupportedCompression) as error:
        yield Unreadable(partition, file.path, batch.position, batch.base_offset, str(error))


def _decode_transaction(_batch: Batch, key: bytes | None, value: bytes | None) -> Record:
    return decode_transaction(key, value)
