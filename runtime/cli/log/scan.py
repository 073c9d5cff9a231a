"""Scans all records of a data folder, Callboard's or Kafka's, in log order, and the damage between them.

Nothing is locked or written. While a server runs, its partition files may lack the commits acknowledged in the last
quarter of a second (they are in the journal), and the last file of a partition may end in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ....actors.records import Record
from ...common.errors import StartError
from ...disk.disk import Disk, read_file
from ...log.folder import INFO_NAME, FolderInfo, parse_info
from ...log.format.batch import Batch
from ...log.format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ...log.format.transaction_records import decode_record, decode_transaction
from ...log.journal import FOLDER as JOURNAL
from ...log.manifest import LogFile, log_files
from ...log.partition import PARTITION_FOLDER, TOPIC, TRANSACTIONS_TOPIC
from ...log.partition_counts import repair_command
from ...log.reading.damage_scan import scan_past_damage
from ...log.recovery.expected_ends import ExpectedEnd, expected_ends, missing_end_damages
from ...log.recovery.misplaced import inferred_counts
from ...log.recovery.missing import missing_files

TOPICS = {"offsets": TOPIC, "transactions": TRANSACTIONS_TOPIC}
"""The names of the two logs on the command line, and their topics."""

Decode = Callable[[Batch, bytes | None, bytes | None], Record | None]


class LogPartition(NamedTuple):
    """A partition and its folder, which may be missing. ``known_end``: the end that it must have; None for Kafka's.

    ``topic_partitions``: the number of partitions of its topic; 0 if unknown.
    """

    topic: str
    number: int
    folder: Path
    known_end: ExpectedEnd | None = None
    topic_partitions: int = 0


class LoggedRecord(NamedTuple):
    """A record and its location. ``record`` is None for control records other than transaction markers."""

    partition: LogPartition
    offset: int
    timestamp_ms: int
    record: Record | None


class Unreadable(NamedTuple):
    """A record, or a whole batch, with a valid checksum and invalid content."""

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
    """The partitions in a data folder, those of offsets first; only the requested ones.

    Raises StartError when it is not a data folder, when a server would refuse its ``callboard.json``, or when a
    requested partition does not exist.
    """
    if not data.is_dir():
        kind = "a file" if data.exists() else "no folder"
        raise StartError(f"{data}: found {kind}, expected the data folder of a server; check the path")
    disk = disk or Disk()
    info = _info(data, disk)
    expected_ends_by_folder = {} if info is None else expected_ends(disk, data, info)
    default_end = None if info is None else ExpectedEnd(0, data / INFO_NAME)
    counts = {} if info is None else {TOPIC: info.offsets_partitions, TRANSACTIONS_TOPIC: info.transactions_partitions}
    names = disk.names(data)
    matches = [match for name in {*names, *expected_ends_by_folder} if (match := PARTITION_FOLDER.fullmatch(name))]
    if not matches and INFO_NAME not in names:
        raise StartError(
            f"{data}: found neither {INFO_NAME} nor a folder {TOPIC}-N, expected the data folder of a server;"
            " give the folder that holds those of the partitions"
        )
    partitions = [
        LogPartition(
            match[1],
            int(match[2]),
            data / match[0],
            expected_ends_by_folder.get(match[0], default_end),
            counts.get(match[1], 0),
        )
        for match in matches
    ]
    selected = [
        partition
        for partition in partitions
        if topic in (None, partition.topic) and (not numbers or partition.number in numbers)
    ]
    missing = set(numbers) - {partition.number for partition in selected}
    if missing:
        raise StartError(f"{data}: found no partition {min(missing)} with records; leave it out")
    return sorted(selected, key=lambda partition: partition[:2])


def _info(data: Path, disk: Disk) -> FolderInfo | None:
    """The content of ``callboard.json``; None for Kafka's folders, or a copy of some partitions. StartError."""
    names, path = disk.names(data), data / INFO_NAME
    if INFO_NAME in names:
        return parse_info(path, read_file(disk, path))
    if JOURNAL in names:
        raise StartError(
            f"{data}: found a journal and no {INFO_NAME}, expected it there; restore it, or write a new one with"
            f" {repair_command(data, *inferred_counts(disk, data))}"
        )
    return None


def scan_partition(partition: LogPartition, disk: Disk) -> Iterator[LoggedRecord | Damage | Unreadable]:
    """All records of a partition, oldest first, then its missing data. An OSError names the file of a disk failure."""
    yield from scan_files(partition, disk)
    yield from find_missing(partition, disk)


def scan_files(partition: LogPartition, disk: Disk) -> Iterator[LoggedRecord | Damage | Unreadable]:
    """All records in the existing files. OSError."""
    decode = record_decoder(partition)
    for file, item in scan_batches(partition, disk):
        if isinstance(item, Damage):
            yield item
        else:
            yield from read_records(partition, file, item, decode)


def find_missing(partition: LogPartition, disk: Disk) -> Iterator[Damage]:
    """Missing data of a partition: files named in its manifest, and its ends, or all of it."""
    yield from missing_files(disk, partition.folder)[1]
    yield from find_missing_ends(partition, disk)


def find_missing_ends(partition: LogPartition, disk: Disk) -> Iterator[Damage]:
    """Missing data at the ends of a partition, or all of it."""
    if partition.known_end is not None:
        yield from missing_end_damages(disk, partition.folder, partition.known_end)


def record_decoder(partition: LogPartition) -> Decode:
    """The function that decodes the keys and values of a partition. It may raise DamagedRecord."""
    return _decode_transaction if partition.topic == TRANSACTIONS_TOPIC else decode_record


def scan_batches(partition: LogPartition, disk: Disk) -> Iterator[tuple[LogFile, Batch | Damage]]:
    """The valid batches of all existing files, and the damage between them, each with its file."""
    (manifest, files), missing = missing_files(disk, partition.folder)
    next_bases = [*(file.base for file in files[1:]), None]
    skipped = {damage.path for damage in missing if disk.kind(damage.path) != "file"}
    for file, next_base in zip(files, next_bases, strict=False):  # there may be no file yet
        end = next_base
        if file.is_compacted:
            end = manifest.clean_end if next_base is None else min(next_base, manifest.clean_end)
        for item in scan_past_damage(disk, file.path, file.base, end) if file.path not in skipped else ():
            yield file, item


def is_torn_tail(damage: Damage, partition: LogPartition, disk: Disk) -> bool:
    """Whether it is at the end of the newest file: a batch that is being written, or was cut off by a crash."""
    if damage.offset_after is not None or not damage.is_certain:
        return False
    last = log_files(disk, partition.folder).files[-1]
    return damage.path == last.path and not last.is_closed


def read_records(
    partition: LogPartition,
    file: LogFile,
    batch: Batch,
    decode: Decode,
    is_read: Callable[[int, int], bool] | None = None,
) -> Iterator[LoggedRecord | Unreadable]:
    """The records of a batch. ``is_read`` as in ``Batch.records``."""
    offset = batch.base_offset
    try:
        for offset, timestamp_ms, key, value in batch.records(is_read):
            try:
                yield LoggedRecord(partition, offset, timestamp_ms, decode(batch, key, value))
            except DamagedRecord as damage:
                yield Unreadable(partition, file.path, batch.position, offset, str(damage))
    except (DamagedBatch, UnsupportedCompression) as error:
        yield Unreadable(partition, file.path, batch.position, batch.base_offset, str(error))


def _decode_transaction(_batch: Batch, key: bytes | None, value: bytes | None) -> Record:
    return decode_transaction(key, value)
