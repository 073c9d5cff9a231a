"""A data folder that holds records, and neither a journal nor a note of a clean stop: somebody has removed one of them.

A start leaves the note before it removes the old journal files, and removes the note when the new journal file is
durable. A stop leaves the note before it removes the journal. So at every instant there is one of the two, whatever
crashes, and a folder with neither has lost the journal, with the rounds of the time since the last checkpoint, or the
note alone. Which one cannot be told. Partition folders that are taken over from elsewhere get a note first.
"""

from __future__ import annotations

from pathlib import Path

from ..disk.disk import Disk, read_file
from .folder import INFO_NAME, NOTED_FORMAT, parse_info
from .format.errors import UNKNOWN_OFFSET, Damage
from .journal import FOLDER, journal_names, journal_salt, measure
from .reading.segment import segment_base
from .recovery.clean_stop import NAME as NOTE
from .recovery.clean_stop import is_noted
from .recovery.misplaced import partition_folders

CONSEQUENCE = (
    "if the server was killed and its journal is gone, commits that were acknowledged since the last checkpoint (a"
    " minute or 64 MiB) may be missing, and older ones are served; if only the note of a clean stop is gone, nothing is"
    " missing"
)
ADVICE = (
    "stop the server and put back the journal folder, or the whole data folder, from a copy; without a copy compare the"
    " offsets of the groups with what their members have done"
)


def journal_damage(root: Path) -> Damage:
    """What a start and ``log verify`` say of such a folder."""
    reason = f"it has no used file, there is no {NOTE}, and there are partitions with records"
    return Damage(root / FOLDER, 0, 0, reason, UNKNOWN_OFFSET, None)


def find_lost_journal(disk: Disk, root: Path) -> Damage | None:
    """The same for a folder in which no server may have begun yet. None for a folder of Kafka's. OSError, StartError.

    The note is looked for before and after the journal, because a server that starts or stops swaps one for the other.
    """
    path = root / INFO_NAME
    if disk.kind(path) != "file" or parse_info(path, read_file(disk, path)).format < NOTED_FORMAT:
        return None
    if is_noted(disk, root) or _has_journal(disk, root / FOLDER) or is_noted(disk, root):
        return None
    return journal_damage(root) if _has_segments(disk, root) else None


def _has_journal(disk: Disk, folder: Path) -> bool:
    """Whether there is a journal file that was ever used."""
    for name in journal_names(disk.names(folder)):
        try:
            if measure(read_file(disk, folder / name), journal_salt(name)).is_used:
                return True
        except FileNotFoundError:  # removed since, by a server that runs
            return True
    return False


def _has_segments(disk: Disk, root: Path) -> bool:
    folders = (folder for _, _, folder in partition_folders(disk, root))
    return any(segment_base(name) is not None for folder in folders for name in disk.names(folder))
