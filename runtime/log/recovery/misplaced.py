"""Checks that each group and transactional id is in the partition that its name hashes to.

With a wrong number of partitions a server would look for groups in the wrong partitions, and write their commits there.
A wrong number misplaces nearly every group, so a few groups are enough to detect it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ....actors.javahash import offsets_partition
from ....actors.records import Record, TransactionRecord, group_id_of
from ...common.errors import StartError
from ...disk.disk import Disk, read_file
from ..format.batch import read_batches
from ..format.errors import DamagedBatch, DamagedRecord, UnsupportedCompression
from ..format.transaction_records import decode_record, decode_transaction
from ..journal import FOLDER as JOURNAL
from ..journal import journal_names, journal_salt, read_header, read_rounds, scan_journal
from ..partition import PARTITION_FOLDER, TOPIC, TRANSACTIONS_TOPIC
from ..partition_counts import PartitionCounts, refuse_different_counts, repair_command
from ..reading.columns import has_numpy
from .clean_stop import NOTE_NAME, read_note

INFERRED_MAX = 10_000
"""The largest number of partitions that is tried to find out how many a folder has."""

HASHES = 2**31
"""With this number of partitions, ``offsets_partition`` returns a name's full hash."""


class MisplacedError(StartError):
    """A group or transactional id is in another partition than its name hashes to."""


class Misplaced(NamedTuple):
    """``name``: a group or transactional id. ``number``: the partition that has it, in ``path``. ``expected``: its own.

    ``partitions``: the number of partitions of the topic.
    """

    path: Path
    topic: str
    name: str
    number: int
    expected: int
    partitions: int

    def __str__(self) -> str:
        kind = "group" if self.topic == TOPIC else "transactional id"
        return (
            f"{self.path}: found {kind} {self.name!r} in {self.topic}-{self.number}, expected it in"
            f" {self.topic}-{self.expected} of {self.partitions}"
        )


def find_misplaced(
    names: Collection[str], path: Path, topic: str, number: int, partitions: int, *, fast: bool = False
) -> Misplaced | None:
    """The first name in partition ``number`` that belongs to another one. ``fast``: numpy may be imported."""
    if fast and has_numpy() and _all_belong_to(names, number, partitions):
        return None
    for name in names:
        expected = offsets_partition(name, partitions)
        if expected != number:
            return Misplaced(path, topic, name, number, expected, partitions)
    return None


def _all_belong_to(names: Collection[str], number: int, partitions: int) -> bool:
    from .name_hashes import all_belong_to  # imports numpy

    return all_belong_to(names, number, partitions)


def name_of(record: Record | None) -> str | None:
    """The group or transactional id that determines a record's partition; None if it has none."""
    return record.transactional_id if isinstance(record, TransactionRecord) else group_id_of(record)


# Checks before a folder is opened ------------------------------------------------------------------------------------


def check_counts(disk: Disk, root: Path, counts: PartitionCounts) -> None:
    """Refuse wrong numbers of partitions, before anything is written.

    Another file with the same numbers is enough; without one every partition and the journal are read. Raises
    StartError, OSError.
    """
    is_confirmed = False
    for path, stored in stored_counts(disk, root):
        refuse_different_counts(root, counts, path, stored)
        is_confirmed = True
    if not is_confirmed:
        for misplaced in all_misplaced(disk, root, counts):
            raise MisplacedError(f"{misplaced}; {advice(root, counts, *inferred_counts(disk, root))}")


def stored_counts(disk: Disk, root: Path) -> Iterator[tuple[Path, PartitionCounts]]:
    """The files besides ``callboard.json`` that have the numbers of partitions, and these numbers. Raises OSError."""
    counts = read_note(disk, root, is_quiet=True).counts
    if counts is not None:
        yield root / NOTE_NAME, counts
    for name in journal_names(disk.names(root / JOURNAL)):
        path = root / JOURNAL / name
        header = read_header(disk, path)
        if header is not None and header.counts is not None:
            yield path, header.counts


def all_misplaced(disk: Disk, root: Path, counts: PartitionCounts) -> Iterator[Misplaced]:
    """At most one misplaced name per partition and journal file. Raises OSError, StartError for unreadable files."""
    count_of = {TOPIC: counts.offsets, TRANSACTIONS_TOPIC: counts.transactions}
    for topic, number, folder in list_partition_folders(disk, root):
        try:
            names = read_names(disk, folder, topic)
            misplaced = find_misplaced(names, folder, topic, number, count_of[topic], fast=True)
        except UnsupportedCompression as error:
            raise StartError(f"{error}; the partitions of its groups must be checked before they are served") from None
        if misplaced is not None:
            yield misplaced
    yield from _misplaced_in_journal(disk, root / JOURNAL, counts)


def list_partition_folders(disk: Disk, root: Path) -> list[tuple[str, int, Path]]:
    """Topic, number and path of each partition's folder, sorted. Raises OSError."""
    matches = (PARTITION_FOLDER.fullmatch(name) for name in disk.names(root))
    partitions = ((match[1], int(match[2]), root / match[0]) for match in matches if match)
    return sorted(partition for partition in partitions if disk.kind(partition[2]) == "folder")


def read_names(disk: Disk, folder: Path, topic: str) -> list[str]:
    """The groups or transactional ids in a partition. Records that cannot be decoded are left out.

    Raises OSError, ManifestError or UnsupportedCompression when the partition cannot be read.
    """
    if topic == TRANSACTIONS_TOPIC:
        from ..reading.newest_transactions import load_transactions_partition

        return list(load_transactions_partition(folder, disk).values)
    from ..reading.newest import load_partition  # not needed by a start with another file that has the numbers

    loaded = load_partition(folder, disk)
    return [*loaded.packed_groups, *loaded.unpacked_groups, *loaded.quarantined]


def _misplaced_in_journal(disk: Disk, folder: Path, counts: PartitionCounts) -> Iterator[Misplaced]:
    names = journal_names(disk.names(folder))
    for name in names:
        path = folder / name
        data = read_file(disk, path)
        scan = scan_journal(data, journal_salt(name), name == names[-1])
        for batches in read_rounds(data, scan):
            in_round = (_misplaced_in_batch(path, number, batch, counts) for number, batch in batches)
            misplaced = next(filter(None, in_round), None)
            if misplaced is not None:
                yield misplaced
                break


def _misplaced_in_batch(path: Path, number: int, data: memoryview, counts: PartitionCounts) -> Misplaced | None:
    is_offsets = number < counts.offsets
    topic, count = (TOPIC, counts.offsets) if is_offsets else (TRANSACTIONS_TOPIC, counts.transactions)
    own = number if is_offsets else number - counts.offsets
    return find_misplaced(list(_names_in_batch(bytes(data), is_offsets)), path, topic, own, count)


def _names_in_batch(data: bytes, is_offsets: bool) -> Iterator[str]:
    try:
        for batch in read_batches(data):
            for _, _, key, _ in batch.records():
                name = name_of(decode_record(batch, key, None) if is_offsets else decode_transaction(key, None))
                if name is not None:
                    yield name
    except (DamagedBatch, DamagedRecord):  # recovery and loading report it
        return


# Advice --------------------------------------------------------------------------------------------------------------


def advice(root: Path, counts: PartitionCounts, offsets: int | None = None, transactions: int | None = None) -> str:
    """The advice for misplaced names. ``offsets`` and ``transactions``: the numbers that fit, if known."""
    fitting = [f"{topic} {count}" for topic, count in ((TOPIC, offsets), (TRANSACTIONS_TOPIC, transactions)) if count]
    fits = f"; the names in the folder fit {' and '.join(fitting)}" if fitting else ""
    command = repair_command(root, offsets, transactions or (counts.transactions if offsets else None))
    return (
        f"callboard.json says {counts}{fits}: put back the callboard.json that belongs to this folder, or write a new"
        f" one with {command}; if the folder of a partition was moved or came from elsewhere, put back the right one"
    )


def inferred_counts(disk: Disk, root: Path) -> tuple[int | None, int | None]:
    """The numbers of partitions by another file, else those that fit every name in the folder; None if not unique."""
    for _, counts in stored_counts(disk, root):
        return counts
    placed: dict[str, list[tuple[str, int]]] = {TOPIC: [], TRANSACTIONS_TOPIC: []}
    for topic, number, folder in list_partition_folders(disk, root):
        try:
            placed[topic] += [(name, number) for name in read_names(disk, folder, topic)]
        except (UnsupportedCompression, StartError, OSError):  # the other partitions may be enough
            continue
    return fitting_count(placed[TOPIC]), fitting_count(placed[TRANSACTIONS_TOPIC])


def fitting_count(placed: list[tuple[str, int]]) -> int | None:
    """The only number of partitions for which each name is in its partition; None if there are several, or none.

    >>> names = [f"group-{number}" for number in range(100)]
    >>> fitting_count([(name, offsets_partition(name, 50)) for name in names])
    50
    """
    lowest = max((number for _, number in placed), default=0) + 1
    hashes = [(offsets_partition(name, HASHES), number) for name, number in placed]
    fitting = [
        count for count in range(lowest, INFERRED_MAX + 1) if all(hash % count == number for hash, number in hashes)
    ]
    return fitting[0] if len(fitting) == 1 else None
