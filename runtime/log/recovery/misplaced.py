"""Whether each group and transactional id lies in the partition that its name belongs to.

With a wrong number of partitions a server would look for groups where they are not, and write their commits to other
partitions. A wrong number shows in nearly every group, so the check finds it wherever there are a few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ....actors.javahash import offsets_partition
from ....actors.records import GroupRecord, OffsetRecord, PendingOffsetRecord, Record, TransactionRecord
from ...common.errors import StartError
from ...disk.disk import Disk, read_file
from ..counts import Counts, refuse_other_counts, repair_command
from ..format.batch import read_batches
from ..format.errors import DamagedBatch, DamagedRecord, UnsupportedCompression
from ..format.transaction_records import decode_record, decode_transaction
from ..journal import FOLDER as JOURNAL
from ..journal import journal_names, journal_salt, measure, read_header, read_rounds
from ..partition import PARTITION_FOLDER, TOPIC, TRANSACTIONS_TOPIC
from ..reading.columns import has_numpy
from .clean_stop import NAME as NOTE
from .clean_stop import read_note

INFERRED_MAX = 10_000
"""Numbers of partitions up to this are tried to find the one that wrote a folder."""

HASHES = 2**31
"""Modulo this number a name's hash is what it is divided by for every smaller number of partitions."""


class MisplacedError(StartError):
    """A group or transactional id lies in another partition than its name belongs to."""


class Misplaced(NamedTuple):
    """``name``: a group or transactional id. ``number``: the partition it lies in, in ``path``; ``right``: its own.

    ``partitions``: how many the topic has.
    """

    path: Path
    topic: str
    name: str
    number: int
    right: int
    partitions: int

    def __str__(self) -> str:
        what = "group" if self.topic == TOPIC else "transactional id"
        return (
            f"{self.path}: found {what} {self.name!r} in {self.topic}-{self.number}, expected it in"
            f" {self.topic}-{self.right} of {self.partitions}"
        )


def find_misplaced(
    names: Collection[str], path: Path, topic: str, number: int, partitions: int, *, fast: bool = False
) -> Misplaced | None:
    """The first of some names in partition ``number`` that belongs to another one. ``fast``: numpy may be imported."""
    if fast and has_numpy() and _all_belong_to(names, number, partitions):
        return None
    for name in names:
        right = offsets_partition(name, partitions)
        if right != number:
            return Misplaced(path, topic, name, number, right, partitions)
    return None


def _all_belong_to(names: Collection[str], number: int, partitions: int) -> bool:
    from .name_hashes import all_belong_to  # which needs numpy

    return all_belong_to(names, number, partitions)


def name_of(record: Record | None) -> str | None:
    """The group or transactional id that decides about a record's partition; None if it has none."""
    if isinstance(record, OffsetRecord | PendingOffsetRecord | GroupRecord):
        return record.group_id
    return record.transactional_id if isinstance(record, TransactionRecord) else None


# A folder before it is opened ----------------------------------------------------------------------------------------


def check_counts(disk: Disk, root: Path, counts: Counts) -> None:
    """Refuse numbers of partitions that cannot be right, before anything is written.

    A witness that agrees is enough; without one every partition and the journal is read. StartError, OSError.
    """
    is_witnessed = False
    for path, found in witnesses(disk, root):
        refuse_other_counts(root, counts, path, found)
        is_witnessed = True
    if not is_witnessed:
        for misplaced in all_misplaced(disk, root, counts):
            raise MisplacedError(f"{misplaced}; {advice(root, counts, *inferred_counts(disk, root))}")


def witnesses(disk: Disk, root: Path) -> Iterator[tuple[Path, Counts]]:
    """The files besides ``callboard.json`` that hold the numbers of partitions, and what they hold. OSError."""
    counts = read_note(disk, root, is_quiet=True).counts
    if counts is not None:
        yield root / NOTE, counts
    for name in journal_names(disk.names(root / JOURNAL)):
        path = root / JOURNAL / name
        header = read_header(disk, path)
        if header is not None and header.counts is not None:
            yield path, header.counts


def all_misplaced(disk: Disk, root: Path, counts: Counts) -> Iterator[Misplaced]:
    """At most one for each partition and each journal file. OSError, StartError when something cannot be read."""
    count_of = {TOPIC: counts.offsets, TRANSACTIONS_TOPIC: counts.transactions}
    for topic, number, folder in partition_folders(disk, root):
        try:
            names = names_in(disk, folder, topic)
            misplaced = find_misplaced(names, folder, topic, number, count_of[topic], fast=True)
        except UnsupportedCompression as error:
            raise StartError(f"{error}; the partitions of its groups must be checked before they are served") from None
        if misplaced is not None:
            yield misplaced
    yield from _misplaced_in_journal(disk, root / JOURNAL, counts)


def partition_folders(disk: Disk, root: Path) -> list[tuple[str, int, Path]]:
    """Topic, number and path of the folders of partitions, in order. OSError."""
    matches = (PARTITION_FOLDER.fullmatch(name) for name in disk.names(root))
    found = ((match[1], int(match[2]), root / match[0]) for match in matches if match)
    return sorted(one for one in found if disk.kind(one[2]) == "folder")


def names_in(disk: Disk, folder: Path, topic: str) -> list[str]:
    """The groups or transactional ids that a partition holds. What cannot be decoded is left out.

    OSError, ManifestError or UnsupportedCompression when the partition cannot be read.
    """
    if topic == TRANSACTIONS_TOPIC:
        from ..reading.newest_transactions import load_transactions_partition

        return list(load_transactions_partition(folder, disk).values)
    from ..reading.newest import load_partition  # not needed by a start that has a witness

    loaded = load_partition(folder, disk)
    return [*loaded.packed_groups, *loaded.unpacked_groups, *loaded.quarantined]


def _misplaced_in_journal(disk: Disk, folder: Path, counts: Counts) -> Iterator[Misplaced]:
    names = journal_names(disk.names(folder))
    for name in names:
        path = folder / name
        data = read_file(disk, path)
        extent = measure(data, journal_salt(name), name == names[-1])
        for batches in read_rounds(data, extent):
            found = [one for number, batch in batches if (one := _misplaced_batch(path, number, batch, counts))]
            if found:
                yield found[0]
                break


def _misplaced_batch(path: Path, number: int, data: memoryview, counts: Counts) -> Misplaced | None:
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
    except (DamagedBatch, DamagedRecord):  # for recovery and loading to report
        return


# What to do about it -------------------------------------------------------------------------------------------------


def advice(root: Path, counts: Counts, offsets: int | None = None, transactions: int | None = None) -> str:
    """What to do about misplaced names. ``offsets`` and ``transactions``: the numbers that fit, if known."""
    fitting = [f"{topic} {count}" for topic, count in ((TOPIC, offsets), (TRANSACTIONS_TOPIC, transactions)) if count]
    fits = f"; by the names in the folder it is {' and '.join(fitting)}" if fitting else ""
    command = repair_command(root, offsets, transactions or (counts.transactions if offsets else None))
    return (
        f"callboard.json says {counts}{fits}: put back the callboard.json that belongs to this folder, or write a new"
        f" one with {command}; if the folder of a partition was moved or came from elsewhere, put back the right one"
    )


def inferred_counts(disk: Disk, root: Path) -> tuple[int | None, int | None]:
    """The numbers of partitions by a witness, or else those that fit every name in the folder; None if that is open."""
    for _, counts in witnesses(disk, root):
        return counts
    placed: dict[str, list[tuple[str, int]]] = {TOPIC: [], TRANSACTIONS_TOPIC: []}
    for topic, number, folder in partition_folders(disk, root):
        try:
            placed[topic] += [(name, number) for name in names_in(disk, folder, topic)]
        except (UnsupportedCompression, StartError, OSError):  # then the others must do
            continue
    return fitting_count(placed[TOPIC]), fitting_count(placed[TRANSACTIONS_TOPIC])


def fitting_count(placed: list[tuple[str, int]]) -> int | None:
    """The one number of partitions with which each name lies in its partition; None if there are several, or none.

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
