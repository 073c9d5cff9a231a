"""A data folder without ``callboard.json``: a new one, a copy of Kafka's partitions, or one that has lost the file.

How many partitions there are cannot be chosen where some lie already: what lies in which depends on it. Of Kafka's
folders it is the number of those, if none is missing, and the first records in each must be where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ...common.errors import StartError
from ...disk.disk import Disk
from ..counts import Counts, repair_command
from ..format.batch import Batch
from ..format.errors import DamagedBatch, DamagedRecord, UnsupportedCompression
from ..format.records import decode
from ..format.transaction_records import decode_transaction
from ..manifest import log_files
from ..reading.segment import scan
from .misplaced import MisplacedError, find_misplaced, inferred_counts, name_of

KAFKAS_FILE = "meta.properties"
"""In each of Kafka's own log folders, not in those of its partitions."""

LOOKED_AT = 20
"""So many records of a partition are looked at, tombstones too; ``check_counts`` then checks every live name."""

_TOPICS = ("__consumer_offsets", "__transaction_state")
_FOLDER = re.compile(r"(.+)-([0-9]{1,9})")
_OURS = frozenset({"journal", "topics.json", "settings.json", ".compaction"})
_HARMLESS = re.compile(r"\..*|.*\.(?:tmp|new)|topics\.ends(?:\.damaged|\.salvaged)?|lost\+found|.*[-.]checkpoint")
"""What may lie in a folder that is to become ours: what a file system makes, and Kafka beside its partitions."""


def refuse_kafkas(disk: Disk, path: Path) -> None:
    """StartError for a log folder of Kafka's own, or a copy of all of it, before anything in it is touched.

    A Kafka may run on it, or start on it again, and neither would know of the other.
    """
    if KAFKAS_FILE in disk.names(path):
        raise StartError(
            f"{path}: found {KAFKAS_FILE}, which makes it a log folder of Kafka's; make a data folder of it with"
            f" callboard import --from-kafka-logs {path} --data DIR"
        )


def refuse_strangers(disk: Disk, path: Path) -> None:
    """StartError for a folder with other people's files: it was hardly meant, and our files would lie among them."""
    others = [
        name
        for name in sorted(disk.names(path))
        if name not in _OURS and not _FOLDER.fullmatch(name) and not _HARMLESS.fullmatch(name)
    ]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise StartError(
            f"{path}: found {others[0]}{more}, expected an empty folder or one that callboard has made; choose another"
            " data folder"
        )


def counts_of(disk: Disk, path: Path, asked: Counts) -> tuple[int, ...]:
    """The partitions of both topics: as many as lie there, or as many as ``asked`` where none do. StartError."""
    names = disk.names(path)
    ours = sorted(_OURS & set(names))
    if ours:
        raise StartError(
            f"{path}: found {', '.join(ours)} and no callboard.json, expected it there: what lies in which partition"
            f" depends on it; put it back, or write a new one with {repair_command(path, *inferred_counts(disk, path))}"
        )
    folders = [match for name in names if (match := _FOLDER.fullmatch(name)) and disk.kind(path / name) == "folder"]
    return tuple(
        _count(disk, path, topic, sorted(int(match[2]) for match in folders if match[1] == topic), number)
        for topic, number in zip(_TOPICS, asked, strict=True)
    )


def _count(disk: Disk, path: Path, topic: str, found: list[int], asked: int) -> int:
    if not found:
        return asked
    missing = set(range(found[-1])) - set(found)
    if missing:
        raise StartError(
            f"{path}: found {topic}-{found[-1]} and no {topic}-{min(missing)}, expected all of them; copy what is"
            f" missing, or make a data folder of what is there, saying how many Kafka has, with"
            f" callboard import --from-kafka-logs {path} --partitions N --data DIR"
        )
    count = len(found)
    for number in found:
        names = list(islice(_names(disk, path / f"{topic}-{number}", topic), LOOKED_AT))
        misplaced = find_misplaced(names, path / f"{topic}-{number}", topic, number, count)
        if misplaced is not None:
            raise MisplacedError(f"{misplaced}; there were other numbers of partitions: copy all folders of one Kafka")
    return count


def _names(disk: Disk, folder: Path, topic: str) -> Iterator[str]:
    """The groups or transactional ids of the first records in a partition, as far as they can be read."""
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
