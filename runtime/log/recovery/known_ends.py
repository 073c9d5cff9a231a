"""How far each partition must go, by the note of a clean stop and the journal.

A partition's own files cannot tell that some of them are gone, or the end of the last one: what is left looks whole.
A start asks the note and the journal, see ``recovery``; whoever reads a folder beside it asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk
from ..counts import refuse_other_counts
from ..folder import FolderInfo
from ..format.batch import LOG_OFFSET_MAX, Batch
from ..format.errors import Damage
from ..journal import FOLDER as JOURNAL
from ..journal import journal_names, read_header
from ..manifest import log_files
from ..partition import TRANSACTIONS_TOPIC, folder_name, lost_beginning
from ..reading.damage_scan import scan_past_damage
from .clean_stop import NAME as NOTE
from .clean_stop import read_note


class KnownEnd(NamedTuple):
    """The offset up to which a partition's files hold everything, or more, and the file that says so."""

    end_offset: int
    witness: Path


def known_ends(disk: Disk, root: Path, info: FolderInfo) -> dict[str, KnownEnd]:
    """By the name of the partition's folder; none of which nothing is known. OSError.

    StartError when the note has other numbers of partitions than ``callboard.json``.

    Ask before the partitions are looked at: a server that runs meanwhile only adds to them.
    """
    note = read_note(disk, root)
    if note.counts is not None:
        refuse_other_counts(root, info.counts, root / NOTE, note.counts)
    ends = {name: KnownEnd(end.end_offset, root / NOTE) for name, end in note.ends.items()}
    for number, known in _by_journal(disk, root / JOURNAL).items():
        own = number - info.offsets_partitions
        ends[folder_name(number) if own < 0 else folder_name(own, TRANSACTIONS_TOPIC)] = known
    return {name: known for name, known in ends.items() if 0 < known.end_offset <= LOG_OFFSET_MAX + 1}


def _by_journal(disk: Disk, folder: Path) -> dict[int, KnownEnd]:
    """What was in the partition files, durably, when the oldest journal file was begun; by number."""
    for name in journal_names(disk.names(folder)):
        try:
            header = read_header(disk, folder / name)
        except FileNotFoundError:  # removed since: then what the next one says is in the files, too
            continue
        if header is None:  # damaged; or never used, then a start will find out about the next one
            return {}
        return {number: KnownEnd(end, folder / name) for number, end in header.starts.items()}
    return {}


def missing_ends(disk: Disk, folder: Path, known: KnownEnd) -> Iterator[Damage]:
    """What is gone at the beginning of a partition, and up to where it must go. OSError, ManifestError."""
    manifest, files = log_files(disk, folder)
    removed = lost_beginning(files)
    if removed is not None:
        yield removed
    end = manifest.clean_end
    if files and not files[-1].is_closed:
        last = files[-1]
        end = max(end, last.base)
        for piece in scan_past_damage(disk, last.path, last.base):
            if isinstance(piece, Batch):
                end = max(end, piece.last_offset + 1)
    if end < known.end_offset:
        reason = f"it says that {folder.name} went on to offset {known.end_offset}"
        yield Damage(known.witness, 0, 0, reason, end, known.end_offset)
