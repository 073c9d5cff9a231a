"""Checks a data folder without ``callboard.json``: a new one, a copy of Kafka's partitions, or one that lost the file.

The numbers of partitions cannot be chosen for existing partitions, because groups are assigned by them. For Kafka's
folders they are the numbers of folders: none may be missing, and the first records in each must belong there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ...common.errors import StartError
from ...disk.disk import Disk
from ..format.batch import Batch
from ..format.errors import DamagedBatch, DamagedRecord, UnsupportedCompression
from ..format.records import decode
from ..format.transaction_records import decode_transaction
from ..manifest import log_files
from ..partition_counts import PartitionCounts, repair_command
from ..reading.segment import scan
from .misplaced import MisplacedError, find_misplaced, inferred_counts, name_of

KAFKA_MARKER_FILE = "meta.properties"
"""A file in each log folder of Kafka, but not in its partition folders."""

SAMPLED_RECORDS = 20
"""Records per partition, with tombstones, that are checked here; ``check_counts`` then checks every live name."""

_TOPICS = ("__consumer_offsets", "__transaction_state")
_FOLDER = re.compile(r"(.+)-([0-9]{1,9})")
_OWN_FILES = frozenset({"journal", "topics.json", "settings.json", ".compaction"})
_HARMLESS = re.compile(
    r"\..*|security\.json|.*\.(?:tmp|new)|topics\.ends(?:\.damaged|\.salvaged)?|lost\+found|.*[-.]checkpoint"
)
"""Files that a new data folder may have: those of file systems, Kafka's beside its partitions, and the first user."""


def refuse_kafka_folder(disk: Disk, path: Path) -> None:
    """Raise StartError for a log folder of Kafka, or a full copy of one, before anything in it is changed.

    A Kafka may be running on it or start on it later, and would not detect Callboard's writes.
    """
    if KAFKA_MARKER_FILE in disk.names(path):
        raise StartError(
            f"{path}: found {KAFKA_MARKER_FILE}, so it is a log folder of Kafka; make a data folder of it with"
            f" callboard import --kafka-dir {path} --data DIR"
        )


def refuse_unrecognized_files(disk: Disk, path: Path) -> None:
    """Raise StartError for a folder with unrelated files, which was probably not meant.

    Not for one that was served: it has other files of Callboard, too, and ``initial_counts`` says what is missing.
    """
    names = disk.names(path)
    if not _OWN_FILES.isdisjoint(names):
        return
    others = [
        name
        for name in sorted(names)
        if name not in _OWN_FILES and not _FOLDER.fullmatch(name) and not _HARMLESS.fullmatch(name)
    ]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise StartError(
            f"{path}: found {others[0]}{more}, expected an empty folder or a data folder of callboard; choose another"
            " data folder"
        )


def initial_counts(disk: Disk, path: Path, requested: PartitionCounts) -> tuple[int, ...]:
    """The numbers of partitions of both topics: those of existing folders, else ``requested``. Raises StartError."""
    names = disk.names(path)
    own_files = sorted(_OWN_FILES & set(names))
    if own_files:
        raise StartError(
            f"{path}: found {', '.join(own_files)} but no callboard.json, which has the numbers of"
            f" partitions; put it back, or write a new one with {repair_command(path, *inferred_counts(disk, path))}"
        )
    folders = [match for name in names if (match := _FOLDER.fullmatch(name)) and disk.kind(path / name) == "folder"]
    return tuple(
        _count(disk, path, topic, sorted(int(match[2]) for match in folders if match[1] == topic), number)
        for topic, number in zip(_TOPICS, requested, strict=True)
    )


def _count(disk: Disk, path: Path, topic: str, numbers: list[int], requested: int) -> int:
    if not numbers:
        return requested
    missing = set(range(numbers[-1])) - set(numbers)
    if missing:
        raise StartError(
            f"{path}: found {topic}-{numbers[-1]} and no {topic}-{min(missing)}, expected all of them; copy the"
            f" missing ones, or make a data folder of those that exist, with Kafka's number of partitions, by"
            f" callboard import --kafka-dir {path} --partitions N --data DIR"
        )
    count = len(numbers)
    for number in numbers:
        names = list(islice(_names(disk, path / f"{topic}-{number}", topic), SAMPLED_RECORDS))
        misplaced = find_misplaced(names, path / f"{topic}-{number}", topic, number, count)
        if misplaced is not None:
            raise MisplacedError(f"{misplaced}; the number of partitions was different: copy all folders of one Kafka")
    return count


def _names(disk: Disk, folder: Path, topic: str) -> Iterator[str]:
    """The groups or transactional ids in a partition's records, up to the first that cannot be read."""
    try:
        for file in log_files(disk, folder).files:
            for batch in scan(disk, file.path):
                yield from _names_in(batch, topic)
    except (DamagedBatch, DamagedRecord, UnsupportedCompression):
        return


def _names_in(batch: Batch, topic: str) -> Iterator[str]:
    if batch.is_control:
        return
    for _, _, key, _ in batch.records():
        name = name_of(decode(key, None) if topic == _TOPICS[0] else decode_transaction(key, None))
        if name is not None:
            yield name
