"""The least end offset of each partition, by the clean-stop note and the journal.

A partition's files alone do not show that some of them, or the end of the last one, are missing: the rest looks
complete. A start checks the note and the journal in ``recovery``; other readers of a folder use this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk
from ..folder import FolderInfo
from ..format.batch import LOG_OFFSET_MAX, Batch
from ..format.errors import Damage
from ..journal import FOLDER as JOURNAL
from ..journal import journal_names, read_header
from ..manifest import log_files
from ..partition import TRANSACTIONS_TOPIC, folder_name, lost_beginning
from ..partition_counts import refuse_different_counts
from ..reading.damage_scan import scan_past_damage
from .clean_stop import NOTE_NAME, read_note


class ExpectedEnd(NamedTuple):
    """The end offset that a partition must have at least, and the file that states it."""

    end_offset: int
    source: Path


def expected_ends(disk: Disk, root: Path, info: FolderInfo) -> dict[str, ExpectedEnd]:
    """The expected ends, by the name of the partition's folder, for partitions where one is known. Raises OSError.

    Raises StartError when the note has other numbers of partitions than ``callboard.json``.

    Must be called before the partitions are read: a running server only adds to them.
    """
    note = read_note(disk, root)
    if note.counts is not None:
        refuse_different_counts(root, info.counts, root / NOTE_NAME, note.counts)
    ends = {name: ExpectedEnd(end.end_offset, root / NOTE_NAME) for name, end in note.ends.items()}
    for number, expected in _by_journal(disk, root / JOURNAL).items():
        own = number - info.offsets_partitions
        ends[folder_name(number) if own < 0 else folder_name(own, TRANSACTIONS_TOPIC)] = expected
    return {name: expected for name, expected in ends.items() if 0 < expected.end_offset <= LOG_OFFSET_MAX + 1}


def _by_journal(disk: Disk, folder: Path) -> dict[int, ExpectedEnd]:
    """The end offsets that were durable when the oldest journal file was created; by number."""
    for name in journal_names(disk.names(folder)):
        try:
            header = read_header(disk, folder / name)
        except FileNotFoundError:  # removed meanwhile; the partition files also reach the next one's offsets
            continue
        if header is None:  # damaged, or never used; a start examines the next one
            return {}
        return {number: ExpectedEnd(end, folder / name) for number, end in header.start_offsets.items()}
    return {}


def missing_end_damages(disk: Disk, folder: Path, expected: ExpectedEnd) -> Iterator[Damage]:
    """Losses at a partition's beginning, and before its expected end. Raises OSError, ManifestError."""
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
    if end < expected.end_offset:
        reason = f"it states that {folder.name} went on to offset {expected.end_offset}"
        yield Damage(expected.source, 0, 0, reason, end, expected.end_offset)
