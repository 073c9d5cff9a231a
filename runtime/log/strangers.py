"""What else lies in a data folder, said once at a start: files that nobody here wrote, and bytes that were put aside.

None of it is ever touched. And what does not lie there and should: a journal folder that was removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..logs import get_logger
from .disk import Disk, file_size
from .journal import journal_number
from .partition import Partition
from .quarantine import DAMAGED, KEPT_BYTES_TOLD, TORN
from .segment import segment_base

NAMES_TOLD = 5

# Kafka's other files in a partition's folder, and this log's own
_KNOWN = re.compile(
    r"\d{20}\.(index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata|\.compaction"
    r"|.*\.(deleted|cleaned|swap)"
)

log = get_logger("callboard.log")


def look_round(disk: Disk, journal: Path, partitions: Iterable[Partition], has_journal: bool) -> None:
    """Tell of what is strange. ``journal`` is the folder of the journal, which has a used file or not. OSError."""
    strange: list[Path] = []
    kept: list[Path] = []
    _sort(disk, journal, strange, kept)
    is_missed = False
    for partition in partitions:
        segments = _sort(disk, partition.folder, strange, kept)
        is_missed = is_missed or (segments > 0 and partition.clean_end is None)
    if is_missed and not has_journal:
        _tell_no_journal(journal.parent)
    _tell_strangers(strange)
    _tell_kept(disk, kept)


def _sort(disk: Disk, folder: Path, strange: list[Path], kept: list[Path]) -> int:
    """How many segments or journal files lie in a folder; the other files by whether they are ours."""
    own = 0
    for name in disk.names(folder):
        if segment_base(name) is not None or journal_number(name) is not None:
            own += 1
        elif TORN in name or DAMAGED in name:
            kept.append(folder / name)
        elif not _KNOWN.fullmatch(name):
            strange.append(folder / name)
    return own


def _tell_strangers(strange: list[Path]) -> None:
    if strange:
        names = [str(path) for path in strange[:NAMES_TOLD]]
        log.warning("files in the log's folders that are not the log's are left alone", files=len(strange), first=names)


def _tell_kept(disk: Disk, kept: list[Path]) -> None:
    size = sum(file_size(disk, path) for path in kept)
    if size >= KEPT_BYTES_TOLD:
        log.warning(
            "bytes that recovery has put aside take room",
            files=len(kept),
            bytes=size,
            first=[str(path) for path in kept[:NAMES_TOLD]],
            advice="remove them when nobody needs them",
        )


def _tell_no_journal(root: Path) -> None:
    """A stop that was not clean leaves a journal file. A crash may leave none only in two instants: while a start or a
    stop removes it, when all of it is in the partitions."""
    log.warning(
        "there is no journal and no note of a clean stop beside partitions that hold data",
        folder=str(root),
        consequence="nothing is missing if these are copies of Kafka's folders or of an older version's; if somebody"
        " removed the journal, what was answered last may be",
        advice="if somebody removed it, stop, and put it back",
    )
