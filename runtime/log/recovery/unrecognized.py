"""What else lies in a data folder, said once at a start: files that nobody here wrote, and bytes that were put aside.

None of it is ever touched. And what does not lie there and should: the journal, see ``lost_journal``.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...common.logs import get_logger
from ...disk.disk import Disk, file_size
from ..journal import journal_number
from ..lost_journal import ADVICE, CONSEQUENCE, journal_damage
from ..partitions import Partitions
from ..reading.segment import segment_base
from .clean_stop import is_noted
from .quarantine import DAMAGED, KEPT_BYTES_TOLD, TORN

NAMES_TOLD = 5

# Kafka's other files in a partition's folder, and this log's own
_KNOWN = re.compile(
    r"\d{20}\.(index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata|\.compaction"
    r"|.*\.(deleted|cleaned|swap)"
)

log = get_logger("callboard.log")


def look_round(disk: Disk, journal: Path, partitions: Partitions, has_journal: bool) -> None:
    """Tell of what is strange. ``journal`` is the folder of the journal, which has a used file or not. OSError."""
    strange: list[Path] = []
    kept: list[Path] = []
    _sort(disk, journal, strange, kept)
    segments = sum(_sort(disk, partition.folder, strange, kept) for partition in partitions)
    if segments and not has_journal and not is_noted(disk, journal.parent):
        partitions.quarantine.add(journal_damage(journal.parent), CONSEQUENCE, ADVICE)
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
