"""A data folder out of the folders of a stopped Kafka: its segments byte for byte, whatever they hold.

Nothing is converted. Callboard reads Kafka's compressed batches, old versions and the ends of transactions as they
are, and what it does not interpret stays in the log. So there is nothing to get wrong but the number of partitions: a
group's partition depends on it. It is that of Kafka's folders, and each group is checked to be where it belongs.

The folder is made beside, read back record by record, compared with what Kafka's folders say when read the other way
(newest first), and renamed last: a folder that is there is whole.
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

from ....actors.group.offsets import GroupData
from ....actors.records import TransactionValue, UnknownRecord
from ....actors.transactions.rules import TransactionState
from ...common.errors import StartError
from ...disk.disk import Disk, read_at, write_all
from ...disk.modes import copy_owner_and_mode
from ...log.compaction.swap import SEGMENT_BYTES
from ...log.folder import DEFAULT_PARTITIONS, INFO_NAME, DataFolder, leave_no_topics
from ...log.format.batch import LOG_OFFSET_MAX
from ...log.format.errors import Damage
from ...log.manifest import log_files
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC
from ...log.partitions import Partitions
from ...log.reading.newest import load_partition
from ...log.reading.newest_transactions import load_transactions_partition
from ...log.reading.search import OpenFile
from ...log.reading.segment import segment_name
from ...log.recovery.clean_stop import leave_note
from ...log.recovery.misplaced import MisplacedError, find_misplaced
from ..groups.show import counted, grouped
from ..log.verify import Replay, differences, state_of
from ..log.walk import Found, LogPartition, is_torn_tail, walk
from .kafka_folder import COUNT_SETTINGS, partition_folders, stopped

IMPORTING = ".importing"
OPTIONS = {TOPIC: "--partitions", TRANSACTIONS_TOPIC: "--transaction-partitions"}
NEWER_GROUPS = range(3, 16)
"""Key types of Kafka's newer kinds of groups (KIP-848, share groups, Streams)."""

_COPY_BYTES = 1024 * 1024
_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

Complain = Callable[[object], None]
Tracked = Callable[[Sequence[LogPartition]], Iterator[LogPartition]]


class ReadBackDiffers(Exception):
    """The copy does not say what the original says; the text says how often."""


class Counts(NamedTuple):
    """How many partitions Kafka's topics have; None: as many as there are folders."""

    offsets: int | None = None
    transactions: int | None = None


class Imported(NamedTuple):
    """What was found when the new folder was read back. ``skipped``: records by a key type that is not interpreted."""

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

    def in_words(self) -> Iterator[str]:
        """Lines for a person."""
        yield f"{self.data}: {counted(self.records, 'record')}, read back"
        yield f"groups            {grouped(self.groups)} in {counted(self.partitions, 'partition')}"
        waiting = f", and {grouped(self.open_offsets)} of open transactions" if self.open_offsets else ""
        yield f"offsets           {grouped(self.offsets)}{waiting}"
        open_ones = f", {grouped(self.open_transactions)} with an open transaction" if self.open_transactions else ""
        of = f"in {counted(self.transaction_partitions, 'partition')}"
        yield f"transactional ids {grouped(self.transactional_ids)} {of}{open_ones}"
        for key_type, count in sorted(self.skipped.items()):
            what = "a newer kind of group" if key_type in NEWER_GROUPS else "not known"
            yield f"kept, not read    {counted(count, 'record')} of type {key_type} ({what})"
        for line in self.torn:
            yield f"torn end          {line}"


def import_log(kafka: Path, data: Path, counts: Counts, disk: Disk, complain: Complain, tracked: Tracked) -> Imported:
    """Make the data folder. ``complain`` is told of damage, and of what reads back otherwise: then it is not made.

    StartError when the folders do not fit together or somebody runs on them; OSError.
    """
    if disk.names(data):
        raise StartError(f"{data}: found files in it, expected a new folder, or an empty one; choose another")
    if INFO_NAME in disk.names(kafka):
        raise StartError(
            f"{kafka}: found {INFO_NAME}, expected Kafka's folders; this one is ours: callboard serve --data"
        )
    side = data.with_name(data.name + IMPORTING)
    if side.exists():
        raise StartError(f"{side}: found it, left by an import that was interrupted; remove it, then try again")
    with stopped([kafka], is_written=False):
        partitions, numbers = choose(kafka, counts, disk)
        try:
            found = _make(partitions, numbers, data, side, disk, complain, tracked)
        except BaseException:
            shutil.rmtree(side, ignore_errors=True)
            raise
    disk.make_folder(data.absolute().parent)
    disk.rename(side, data)
    disk.sync_folder(data.absolute().parent)
    return found._replace(data=data)


def choose(kafka: Path, counts: Counts, disk: Disk) -> tuple[list[LogPartition], tuple[int, int]]:
    """The partitions in Kafka's folders, and how many each topic has. StartError when that cannot be said."""
    folders = partition_folders(name for name in disk.names(kafka) if (kafka / name).is_dir())
    if not folders[TOPIC]:
        raise StartError(f"{kafka}: found no folder {TOPIC}-N, expected Kafka's; give the folder that holds them")
    numbers = tuple(_count(kafka, topic, folders[topic], given) for topic, given in zip(folders, counts, strict=True))
    partitions = [
        LogPartition(topic, number, kafka / name)
        for topic, names in folders.items()
        for number, name in sorted(names.items())
    ]
    for partition in partitions:
        _refuse_unfinished(partition, disk)
        _refuse_large_name(partition, disk)
    return partitions, (numbers[0], numbers[1])


def _count(kafka: Path, topic: str, folders: Mapping[int, str], given: int | None) -> int:
    if not folders:
        return given or DEFAULT_PARTITIONS
    highest = max(folders)
    if given is not None:
        if given <= highest:
            raise StartError(f"{kafka}: found {topic}-{highest}, expected less than {OPTIONS[topic]} {given}")
        return given
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
        if base != name and base.isdecimal() and int(base) > LOG_OFFSET_MAX:
            raise _too_large(partition.folder / name, f"base offset {int(base)}")


def _refuse_large_offsets(damages: Iterable[object], disk: Disk) -> None:
    """Kafka itself cannot append behind such a batch, and whoever copies it moves the fault to another server."""
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


def _too_large(path: Path, found: str) -> StartError:
    return StartError(
        f"{path}: found {found}, expected at most {LOG_OFFSET_MAX}; the file is damaged: put back a copy of it from"
        " another replica, then import again"
    )


# Making it -----------------------------------------------------------------------------------------------------------


class _Tally:
    """Counts what is read back."""

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
            else:
                assert isinstance(value, tuple)
                _, offsets, pending = value
                self.groups += 1
                self.offsets += len(offsets)
                self.open_offsets += sum(len(producers) for producers in pending.values())


def _make(
    partitions: Sequence[LogPartition],
    numbers: tuple[int, int],
    data: Path,
    side: Path,
    disk: Disk,
    complain: Complain,
    tracked: Tracked,
) -> Imported:
    disk.make_folder(side)
    if data.exists():
        copy_owner_and_mode(data, side)  # which takes its place
    DataFolder(side, *numbers, disk=disk).close()
    for partition in partitions:
        _copy(partition, side, disk)
    _open_once(side, numbers, disk)
    tally, different = _Tally(), 0
    for partition in tracked(partitions):
        number = numbers[0] if partition.topic == TOPIC else numbers[1]
        for difference in _read_back(partition, number, side, disk, complain, tally):
            complain(difference)
            different += 1
    if different:
        raise ReadBackDiffers(
            f"{counted(different, 'difference')} between Kafka's folders and their copy: none was made"
        )
    counts = tally.records, tally.groups, tally.offsets, tally.open_offsets
    transactions = tally.transactional_ids, tally.open_transactions
    return Imported(side, *numbers, *counts, *transactions, dict(tally.skipped), tuple(tally.torn))


def _copy(partition: LogPartition, side: Path, disk: Disk) -> None:
    """The files of a partition's log, byte for byte, durable."""
    folder = side / partition.folder.name
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


def _open_once(side: Path, numbers: tuple[int, int], disk: Disk) -> None:
    """As a start does it: torn ends are cut, and kept beside; then the note of a clean stop. OSError, StartError."""
    partitions = Partitions(disk, side, numbers[0], SEGMENT_BYTES, numbers[1])
    try:
        with redirect_stdout(sys.stderr):  # of what it finds it writes a line for people
            partitions.open({})
        leave_note(disk, side, partitions.clean_ends())
        leave_no_topics(disk, side)
    finally:
        partitions.close()


def _read_back(
    partition: LogPartition, number: int, side: Path, disk: Disk, complain: Complain, tally: _Tally
) -> list[str]:
    """Count what the copy of a partition holds; what of it is not as in Kafka's, in words."""
    expected, problems = _newest_first(partition, disk)
    _refuse_large_offsets(problems, disk)
    for trouble in problems:
        if isinstance(trouble, Damage) and is_torn_tail(trouble, partition, disk):
            tally.torn.append(f"{trouble.path}: {counted(trouble.size, 'byte')} from byte {trouble.position} on")
        else:
            complain(trouble)
    _refuse_misplaced(partition, number, expected)
    replay, is_whole = Replay(), True
    for piece in walk(partition._replace(folder=side / partition.folder.name), disk):
        if not isinstance(piece, Found):
            is_whole = False
            continue
        tally.records += 1
        replay.take(piece.record)
        if isinstance(piece.record, UnknownRecord):
            tally.skipped[piece.record.key_type] += 1
    state = replay.state()
    tally.take(state)
    return list(differences(expected, "in Kafka's folder", state, "in the copy")) if is_whole else []


def _newest_first(partition: LogPartition, disk: Disk) -> tuple[dict[str, object], list[object]]:
    """The groups or transactional ids of one of Kafka's partitions, and what of it cannot be read."""
    if partition.topic == TRANSACTIONS_TOPIC:
        transactions = load_transactions_partition(partition.folder, disk)
        return dict(transactions.values), [*transactions.damages, *transactions.problems]
    loaded = load_partition(partition.folder, disk)
    packed_groups = {group_id: state_of(GroupData.unpack(packed)) for group_id, packed in loaded.packed_groups.items()}
    unpacked_groups = {
        group_id: state_of(data) for group_id, data in loaded.unpacked_groups.items() if not data.is_gone()
    }
    quarantined = [f"group '{group_id}' cannot be read: {why}" for group_id, why in loaded.quarantined.items()]
    return packed_groups | unpacked_groups, [*loaded.damages, *loaded.problems, *quarantined]


def _refuse_misplaced(partition: LogPartition, number: int, state: Mapping[str, object]) -> None:
    misplaced = find_misplaced(state, partition.folder, partition.topic, partition.number, number)
    if misplaced is not None:
        raise MisplacedError(
            f"{misplaced}; give Kafka's {COUNT_SETTINGS[partition.topic]} with {OPTIONS[partition.topic]} N"
        )
