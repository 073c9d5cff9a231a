"""Make a data folder from the folders of a stopped Kafka: the segments are copied byte for byte.

Nothing is converted. Callboard reads Kafka's compressed batches, old versions and transaction markers, and keeps
records that it does not interpret. Only the number of partitions can be wrong, and a group's partition depends on it.
It is taken from Kafka's folders, and each group is checked to be in the right partition.

The folder is built under another name. After it was opened as a server opens it, its files are compared with Kafka's
byte by byte, and Kafka's are read newest first, as a server loads them. The rename is the last step, so a folder under
the final name is complete.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from ....actors.records import TransactionValue, UnknownRecord
from ....actors.text import format_count
from ....actors.transactions.rules import TransactionState
from ...common.errors import StartError
from ...disk.disk import Disk, file_size, read_at, write_all
from ...disk.modes import copy_owner_and_mode
from ...log.compaction.defaults import SEGMENT_BYTES
from ...log.folder import DEFAULT_PARTITIONS, INFO_NAME, create_data_folder, write_empty_topics
from ...log.format.batch import LOG_OFFSET_MAX
from ...log.format.errors import Damage
from ...log.format.records import RECORD_TYPES
from ...log.manifest import log_files
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC
from ...log.partition_counts import PartitionCounts
from ...log.partitions import Partitions
from ...log.reading.key_types import count_key_types
from ...log.reading.search import OpenFile
from ...log.reading.segment import segment_name
from ...log.recovery.clean_stop import write_note
from ...log.recovery.misplaced import MisplacedError, find_misplaced
from ..log.newest import GroupContent, load_newest
from ..log.scan import LoggedRecord, LogPartition, is_torn_tail, scan_partition
from ..new_folder import check_replaceable
from ..tables import format_number
from .kafka_folder import COUNT_SETTINGS, partition_folders, require_stopped_kafka

IMPORTING = ".importing"
OPTIONS = {TOPIC: "--partitions", TRANSACTIONS_TOPIC: "--transaction-partitions"}
NEWER_GROUPS = frozenset((*range(9, 16), *range(17, 24)))
"""Key types of share groups (KIP-932) and streams groups (KIP-1071)."""

_COPY_BYTES = 1024 * 1024
_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

ProblemCallback = Callable[[object], None]
Tracked = Callable[[Sequence[LogPartition]], Iterator[LogPartition]]


class ReadBackDiffers(Exception):
    """The copy and the original differ; the text has the number of differences."""


class KafkaPartitionCounts(NamedTuple):
    """Numbers of partitions of Kafka's topics; None: as many as there are folders."""

    offsets: int | None = None
    transactions: int | None = None


class ImportResult(NamedTuple):
    """Totals of the new folder. ``skipped``: numbers of uninterpreted records, by key type."""

    data: Path
    partitions: int
    transaction_partitions: int
    records: int
    groups: int
    offsets: int
    open_offsets: int
    transactional_ids: int
    open_transactions: int
    skipped: Mapping[int, int]
    torn: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {**self._asdict(), "data": str(self.data), "skipped": dict(self.skipped)}

    def describe(self) -> Iterator[str]:
        """Yield the lines of the command's output."""
        yield f"{self.data}: {format_count(self.records, 'record')}, read back"
        yield f"groups            {format_number(self.groups)} in {format_count(self.partitions, 'partition')}"
        waiting = f", and {format_number(self.open_offsets)} of open transactions" if self.open_offsets else ""
        yield f"offsets           {format_number(self.offsets)}{waiting}"
        open_transactions = (
            f", {format_number(self.open_transactions)} with an open transaction" if self.open_transactions else ""
        )
        location = f"in {format_count(self.transaction_partitions, 'partition')}"
        yield f"transactional ids {format_number(self.transactional_ids)} {location}{open_transactions}"
        for key_type, count in sorted(self.skipped.items()):
            description = "a newer kind of group" if key_type in NEWER_GROUPS else "not known"
            yield f"kept, not read    {format_count(count, 'record')} of type {key_type} ({description})"
        for line in self.torn:
            yield f"torn end          {line}"


def import_log(
    kafka: Path,
    data: Path,
    counts: KafkaPartitionCounts,
    disk: Disk,
    on_problem: ProblemCallback,
    track_progress: Tracked,
) -> ImportResult:
    """Make the data folder. ``on_problem`` is called with each damage and difference. A difference prevents the import.

    Raises StartError when the folders do not fit together or a server runs on them; OSError.
    """
    if disk.names(data):
        raise StartError(f"{data}: found files in it, expected a new folder, or an empty one; choose another")
    if INFO_NAME in disk.names(kafka):
        raise StartError(
            f"{kafka}: found {INFO_NAME}, expected Kafka's folders; this is a data folder of Callboard: use it with"
            " callboard serve --data"
        )
    check_replaceable(data, "--data")
    temporary = data.with_name(data.name + IMPORTING)
    if temporary.exists():
        raise StartError(f"{temporary}: found it, left by an import that was interrupted; remove it, then try again")
    with require_stopped_kafka([kafka], is_written=False):
        partitions, numbers = choose_partitions(kafka, counts, disk)
        try:
            result = _build_folder(partitions, numbers, data, temporary, disk, on_problem, track_progress)
            disk.rename(temporary, data)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    disk.sync_folder(data.absolute().parent)
    return result._replace(data=data)


def choose_partitions(
    kafka: Path, counts: KafkaPartitionCounts, disk: Disk
) -> tuple[list[LogPartition], tuple[int, int]]:
    """The partitions in Kafka's folders, and each topic's number of them. StartError when that number is unknown."""
    folders = partition_folders(name for name in disk.names(kafka) if (kafka / name).is_dir())
    if not folders[TOPIC]:
        raise StartError(f"{kafka}: found no folder {TOPIC}-N, expected Kafka's; give the folder that holds them")
    numbers = tuple(
        _partition_count(kafka, topic, folders[topic], given_count)
        for topic, given_count in zip(folders, counts, strict=True)
    )
    partitions = [
        LogPartition(topic, number, kafka / name)
        for topic, names in folders.items()
        for number, name in sorted(names.items())
    ]
    for partition in partitions:
        _refuse_unfinished(partition, disk)
        _refuse_large_name(partition, disk)
    return partitions, (numbers[0], numbers[1])


def _partition_count(kafka: Path, topic: str, folders: Mapping[int, str], given_count: int | None) -> int:
    if not folders:
        return given_count or DEFAULT_PARTITIONS
    highest = max(folders)
    if given_count is not None:
        if given_count <= highest:
            raise StartError(f"{kafka}: found {topic}-{highest}, expected less than {OPTIONS[topic]} {given_count}")
        return given_count
    missing = [number for number in range(highest) if number not in folders]
    if missing:
        raise StartError(
            f"{kafka}: found {topic}-{highest} and no {topic}-{missing[0]}, expected all of them in one folder; copy"
            f" those of the other brokers to it, or, to go on without, give Kafka's {COUNT_SETTINGS[topic]} with"
            f" {OPTIONS[topic]} N"
        )
    return highest + 1


def _refuse_unfinished(partition: LogPartition, disk: Disk) -> None:
    names = [name for name in disk.names(partition.folder) if name.endswith(".swap")]
    if names:
        raise StartError(
            f"{partition.folder / names[0]}: Kafka was stopped while it cleaned this; start it and stop it once, then"
            " copy its folders again"
        )


def _refuse_large_name(partition: LogPartition, disk: Disk) -> None:
    for name in disk.names(partition.folder):
        base = name.removesuffix(".log")
        if base != name and base.isascii() and base.isdecimal() and int(base) > LOG_OFFSET_MAX:
            raise _too_large(partition.folder / name, f"base offset {int(base)}")


def _refuse_large_offsets(damages: Iterable[object], disk: Disk) -> None:
    """Kafka cannot append after such a batch. A copy would have the same fault."""
    for damage in damages:
        if isinstance(damage, Damage) and damage.size:
            fd = disk.open(damage.path, os.O_RDONLY)
            try:
                head = OpenFile(disk, fd, damage.path, disk.size(fd)).head(damage.position)
            finally:
                disk.close(fd)
            if head is not None and head.last_offset > LOG_OFFSET_MAX:
                offsets = f"offsets {head.base_offset} to {head.last_offset} at byte {damage.position}"
                raise _too_large(damage.path, offsets)


def _too_large(path: Path, result: str) -> StartError:
    return StartError(
        f"{path}: found {result}, expected at most {LOG_OFFSET_MAX}; the file is damaged: replace it with a copy from"
        " another replica, then import again"
    )


# Making it -----------------------------------------------------------------------------------------------------------


class _ImportCounters:
    """Totals of what is read back."""

    def __init__(self) -> None:
        self.skipped: Counter[int] = Counter()
        self.torn: list[str] = []
        self.records = self.groups = self.offsets = self.open_offsets = 0
        self.transactional_ids = self.open_transactions = 0

    def take(self, state: Mapping[str, object]) -> None:
        for value in state.values():
            if isinstance(value, TransactionValue):
                self.transactional_ids += 1
                self.open_transactions += value.state in _OPEN
            elif isinstance(value, GroupContent):
                self.groups += 1
                self.offsets += len(value.offsets)
                self.open_offsets += sum(len(producers) for producers in value.pending.values())


def _build_folder(
    partitions: Sequence[LogPartition],
    numbers: tuple[int, int],
    data: Path,
    temporary: Path,
    disk: Disk,
    on_problem: ProblemCallback,
    track_progress: Tracked,
) -> ImportResult:
    disk.make_folder(temporary)
    if data.exists():
        copy_owner_and_mode(data, temporary)  # replaced by the rename at the end
    create_data_folder(temporary, PartitionCounts(*numbers), disk)
    for partition in track_progress(partitions):
        _copy(partition, temporary, disk)
    _open_once(temporary, numbers, disk)
    counters, difference_count = _ImportCounters(), 0
    for partition in track_progress(partitions):
        number = numbers[0] if partition.topic == TOPIC else numbers[1]
        for difference in _read_back(partition, number, temporary, disk, on_problem, counters):
            on_problem(difference)
            difference_count += 1
    if difference_count:
        raise ReadBackDiffers(
            f"{format_count(difference_count, 'difference')} between Kafka's folders and their copy: none was made"
        )
    counts = counters.records, counters.groups, counters.offsets, counters.open_offsets
    transactions = counters.transactional_ids, counters.open_transactions
    return ImportResult(temporary, *numbers, *counts, *transactions, dict(counters.skipped), tuple(counters.torn))


def _copy(partition: LogPartition, temporary: Path, disk: Disk) -> None:
    """The files of a partition's log, byte for byte, durable."""
    folder = temporary / partition.folder.name
    disk.make_folder(folder)
    for file in log_files(disk, partition.folder).files:
        source = disk.open(file.path, os.O_RDONLY)
        target = disk.open(folder / segment_name(file.base), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for at in range(0, disk.size(source), _COPY_BYTES):
                write_all(disk, target, read_at(disk, source, _COPY_BYTES, at), at)
            disk.sync(target)
        finally:
            disk.close(source)
            disk.close(target)
    disk.sync_folder(folder)


def _open_once(temporary: Path, numbers: tuple[int, int], disk: Disk) -> None:
    """Open the log, which cuts and keeps torn tails, and write the note of a clean stop. OSError, StartError."""
    partitions = Partitions(disk, temporary, numbers[0], SEGMENT_BYTES, numbers[1])
    try:
        with redirect_stdout(sys.stderr):  # the recovery prints what it finds
            partitions.open({})
        write_note(disk, temporary, partitions.clean_stop_note())
        write_empty_topics(disk, temporary)
    finally:
        partitions.close()


def _read_back(
    partition: LogPartition,
    number: int,
    temporary: Path,
    disk: Disk,
    on_problem: ProblemCallback,
    counters: _ImportCounters,
) -> list[str]:
    """Count the content of Kafka's partition. Returns a text for each file of which the copy has other bytes."""
    content = load_newest(partition, disk)
    _refuse_large_offsets(content.damages, disk)
    for problem in (*content.damages, *content.problems):
        if isinstance(problem, Damage) and is_torn_tail(problem, partition, disk):
            counters.torn.append(
                f"{problem.path}: {format_count(problem.size, 'byte')} from byte {problem.position} on"
            )
        else:
            on_problem(problem)
    _refuse_misplaced(partition, number, content.state)
    counters.records += content.records
    counters.take(content.state)
    if content.unknown_keys:
        counters.skipped.update(_unknown_key_types(partition, disk))
    return list(_different_files(partition, temporary / partition.folder.name, content.damages, disk))


def _unknown_key_types(partition: LogPartition, disk: Disk) -> Mapping[int, int]:
    """Numbers of records that are not interpreted, by key type."""
    if partition.topic == TRANSACTIONS_TOPIC:  # here it may depend on the value
        records = (item.record for item in scan_partition(partition, disk) if isinstance(item, LoggedRecord))
        return Counter(record.key_type for record in records if isinstance(record, UnknownRecord))
    counts = count_key_types(partition.folder, disk)
    return {key_type: count for key_type, count in counts.items() if key_type not in RECORD_TYPES}


def _different_files(partition: LogPartition, copy: Path, damages: Sequence[Damage], disk: Disk) -> Iterator[str]:
    """A copied file must have the bytes of its original. It may end earlier only where the original is damaged."""
    for file in log_files(disk, partition.folder).files:
        copied = copy / segment_name(file.base)
        earliest_end = min((damage.position for damage in damages if damage.path == file.path), default=None)
        at = _first_difference(disk, file.path, copied)
        if at is not None and not (at == file_size(disk, copied) and earliest_end is not None and at >= earliest_end):
            yield f"{copied}: byte {at} is not that of {file.path}"


def _first_difference(disk: Disk, original: Path, copy: Path) -> int | None:
    """The position of the first byte that differs, or the end of the shorter file; None if the files are equal."""
    fds = disk.open(original, os.O_RDONLY), disk.open(copy, os.O_RDONLY)
    try:
        for at in range(0, max(map(disk.size, fds)), _COPY_BYTES):
            blocks = [read_at(disk, fd, _COPY_BYTES, at) for fd in fds]
            if blocks[0] != blocks[1]:
                pairs = enumerate(zip(*blocks, strict=False))
                return at + next((index for index, (a, b) in pairs if a != b), min(map(len, blocks)))
    finally:
        for fd in fds:
            disk.close(fd)
    return None


def _refuse_misplaced(partition: LogPartition, number: int, state: Mapping[str, object]) -> None:
    misplaced = find_misplaced(state, partition.folder, partition.topic, partition.number, number)
    if misplaced is not None:
        raise MisplacedError(
            f"{misplaced}; give Kafka's {COUNT_SETTINGS[partition.topic]} with {OPTIONS[partition.topic]} N"
        )
