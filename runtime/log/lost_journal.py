"""Detects a data folder that has records but neither a journal nor a clean-stop note: one of them was removed.

A start writes the note before it removes the old journal files, and removes the note once the new journal file is
durable. A stop writes the note before it removes the journal. So one of the two exists at every instant, also after a
crash. A folder with neither has lost either the note alone, or the journal with all rounds since the last checkpoint;
the two cases look the same. Partition folders that are imported from elsewhere get a note first.
"""

from __future__ import annotations

from pathlib import Path

from ..disk.disk import Disk, read_file
from .folder import FORMAT_WITH_NOTE, INFO_NAME, parse_info
from .format.errors import UNKNOWN_OFFSET, Damage
from .journal import FOLDER, journal_names, journal_salt, scan_journal
from .reading.segment import segment_base
from .recovery.clean_stop import NOTE_NAME, has_note
from .recovery.misplaced import list_partition_folders

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
    """The damage that a start and ``log verify`` report for such a folder."""
    reason = f"it has no used file, there is no {NOTE_NAME}, and there are partitions with records"
    return Damage(root / FOLDER, 0, 0, reason, UNKNOWN_OFFSET, None)


def find_lost_journal(disk: Disk, root: Path) -> Damage | None:
    """The damage of a folder, None when there is none. Also usable for a folder of Kafka's, or one never served.

    The note is checked before and after the journal, because a server that starts or stops replaces one by the other.
    Raises OSError and StartError.
    """
    path = root / INFO_NAME
    if disk.kind(path) != "file" or parse_info(path, read_file(disk, path)).format < FORMAT_WITH_NOTE:
        return None
    if has_note(disk, root) or _has_journal(disk, root / FOLDER) or has_note(disk, root):
        return None
    return journal_damage(root) if _has_segments(disk, root) else None


def _has_journal(disk: Disk, folder: Path) -> bool:
    """Whether there is a journal file that has been used."""
    for name in journal_names(disk.names(folder)):
        try:
            if scan_journal(read_file(disk, folder / name), journal_salt(name)).is_used:
                return True
        except FileNotFoundError:  # removed in the meantime by a running server
            return True
    return False


def _has_segments(disk: Disk, root: Path) -> bool:
    folders = (folder for _, _, folder in list_partition_folders(disk, root))
    return any(segment_base(name) is not None for folder in folders for name in disk.names(folder))
