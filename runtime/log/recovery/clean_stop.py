"""``.clean_shutdown``: what a clean stop leaves, so that the next start need not read the ends of all partitions.

After a clean stop all partition files are synced and there is no journal. The note says where each partition ended. It
is left when all is synced and before the journal is removed, by a stop and by a start that has replayed the journal. A
start removes it, durably, when its new journal says the same and before anything is appended. So it is there only while
what it says is true, there is always the note or a journal, and a start that fails, on a full disk say, leaves it. Of a
partition whose last file is not as the note has it, somebody has changed the files meanwhile, and the end is checked as
after a crash.

The note also holds the numbers of partitions. They must be those of ``callboard.json``, see ``counts``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...common.json_files import parse_json
from ...common.logs import get_logger
from ...disk.checksum import FIELD as CHECKSUM
from ...disk.checksum import checksum_of, with_checksum
from ...disk.disk import Disk, read_file, replace_file
from ..counts import COUNTS, Counts, counts_in

NAME = ".clean_shutdown"
VERSION = 2
"""1: the ends of the partitions. 2: also the numbers of partitions, and a checksum."""

log = get_logger("callboard.log")


class CleanEnd(NamedTuple):
    """A partition's last segment, its size in bytes, and the offset that the next record will get."""

    base: int
    size: int
    end_offset: int


class Note(NamedTuple):
    """What the note says: ``ends`` by the name of the partition's folder; no ``counts`` in one of version 1."""

    ends: Mapping[str, CleanEnd]
    counts: Counts | None


NO_NOTE = Note({}, None)


def leave_note(disk: Disk, root: Path, note: Note) -> bool:
    """Say that all is durable; False when the note could not be written. Then the journal should stay."""
    try:
        counts = {} if note.counts is None else note.counts.as_fields()
        ends = {name: list(end) for name, end in note.ends.items()}
        content = with_checksum({"version": VERSION, **counts, "partitions": ends})
        replace_file(disk, root / NAME, json.dumps(content).encode() + b"\n")
    except OSError as error:
        log.warning("the note of a clean stop could not be written", reason=str(error), folder=str(root))
        return False
    return True


def is_noted(disk: Disk, root: Path) -> bool:
    """Whether there is a note, damaged or not."""
    return NAME in disk.names(root)


def read_note(disk: Disk, root: Path, *, is_quiet: bool = False) -> Note:
    """What the note says; an empty one when there is none, or none that can be read, which is logged. OSError."""
    if not is_noted(disk, root):
        return NO_NOTE
    data = read_file(disk, root / NAME)
    try:
        return _parse(parse_json(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if not is_quiet:
            log.warning("the note of a clean stop cannot be read", reason=repr(error), file=str(root / NAME))
        return NO_NOTE


def _parse(content: Any) -> Note:
    """ValueError for a wrong checksum; ValueError, TypeError, KeyError or AttributeError for what is no note."""
    version = content["version"]
    if version != 1 or CHECKSUM in content:
        found, expected = content.get(CHECKSUM), checksum_of(content)
        if found != expected:
            raise ValueError(f"found {CHECKSUM} {found!r}, expected {expected!r}")
    if version not in (1, VERSION):
        return NO_NOTE
    ends = {name: CleanEnd(*map(int, end)) for name, end in content["partitions"].items()}
    return Note(ends, counts_in(content) if COUNTS[0] in content else None)


def remove_note(disk: Disk, root: Path) -> None:
    """Before anything is appended that the note does not know of; durable. OSError."""
    if is_noted(disk, root):
        disk.remove(root / NAME)
        disk.sync_folder(root)
