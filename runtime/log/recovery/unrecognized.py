"""Reports, once at a start, files that are not Callboard's, quarantined bytes, and a missing journal.

None of these files is ever changed. For the missing journal see ``lost_journal``.
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
from .clean_stop import has_note
from .quarantine import DAMAGED, QUARANTINE_REPORTED_BYTES, TORN

REPORTED_NAMES = 5

# Kafka's other files in a partition's folder, and this log's own
_KNOWN = re.compile(
    r"[0-9]{20}\.(index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata|\.compaction"
    r"|.*\.(deleted|cleaned|swap)"
)

log = get_logger("callboard.log")


def audit_folders(disk: Disk, journal: Path, partitions: Partitions, has_journal: bool) -> None:
    """Log what is unusual. ``journal``: the journal's folder. ``has_journal``: it has a used file. Raises OSError."""
    unrecognized: list[Path] = []
    quarantined: list[Path] = []
    _classify_files(disk, journal, unrecognized, quarantined)
    segments = sum(_classify_files(disk, partition.folder, unrecognized, quarantined) for partition in partitions)
    if segments and not has_journal and not has_note(disk, journal.parent):
        partitions.damage_registry.add(journal_damage(journal.parent), CONSEQUENCE, ADVICE)
    _report_unrecognized(unrecognized)
    _report_quarantined(disk, quarantined)


def _classify_files(disk: Disk, folder: Path, unrecognized: list[Path], quarantined: list[Path]) -> int:
    """The number of segments or journal files in a folder; adds its other files to the two lists."""
    own = 0
    for name in disk.names(folder):
        if segment_base(name) is not None or journal_number(name) is not None:
            own += 1
        elif TORN in name or DAMAGED in name:
            quarantined.append(folder / name)
        elif not _KNOWN.fullmatch(name):
            unrecognized.append(folder / name)
    return own


def _report_unrecognized(unrecognized: list[Path]) -> None:
    if unrecognized:
        names = [str(path) for path in unrecognized[:REPORTED_NAMES]]
        log.warning("unrecognized files in the log's folders", files=len(unrecognized), first=names)


def _report_quarantined(disk: Disk, quarantined: list[Path]) -> None:
    size = sum(file_size(disk, path) for path in quarantined)
    if size >= QUARANTINE_REPORTED_BYTES:
        log.warning(
            "quarantined bytes take much room",
            files=len(quarantined),
            bytes=size,
            first=[str(path) for path in quarantined[:REPORTED_NAMES]],
            advice="remove these files if they are not needed",
        )
