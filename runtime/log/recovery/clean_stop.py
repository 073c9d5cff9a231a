"""``.clean_shutdown``, the clean-stop note: with it, the next start need not read the ends of all partitions.

After a clean stop all partition files are synced and there is no journal. The note has the end of each partition. It is
written after the sync and before the journal is removed, by a stop and by a start that has replayed the journal. A
start removes it, durably, when its new journal has the same ends and before anything is appended. So the note exists
only while it is correct, either the note or a journal always exists, and a start that fails, for example on a full
disk, leaves it in place. If the last file of a partition differs from the note, the file was changed after the stop,
and its end is checked as after a crash.

The note also has the numbers of partitions. They must be those of ``callboard.json``, see ``partition_counts``.
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
from ..partition_counts import COUNT_FIELDS, PartitionCounts, parse_counts

NOTE_NAME = ".clean_shutdown"
VERSION = 2
"""1: the ends of the partitions. 2: also the numbers of partitions, and a checksum."""

log = get_logger("callboard.log")


class CleanEnd(NamedTuple):
    """A partition's last segment, its size in bytes, and the offset that the next record will get."""

    base: int
    size: int
    end_offset: int


class CleanStopNote(NamedTuple):
    """The note's content: ``ends`` by the name of the partition's folder; ``counts`` is None in version 1."""

    ends: Mapping[str, CleanEnd]
    counts: PartitionCounts | None


EMPTY_NOTE = CleanStopNote({}, None)


def write_note(disk: Disk, root: Path, note: CleanStopNote) -> bool:
    """Write the note once everything is durable. Returns False when that failed; then the journal must stay."""
    try:
        counts = {} if note.counts is None else note.counts.as_fields()
        ends = {name: list(end) for name, end in note.ends.items()}
        content = with_checksum({"version": VERSION, **counts, "partitions": ends})
        replace_file(disk, root / NOTE_NAME, json.dumps(content).encode() + b"\n")
    except OSError as error:
        log.warning("clean-stop note cannot be written", reason=str(error), folder=str(root))
        return False
    return True


def has_note(disk: Disk, root: Path) -> bool:
    """Whether the note exists, damaged or not."""
    return NOTE_NAME in disk.names(root)


def read_note(disk: Disk, root: Path, *, is_quiet: bool = False) -> CleanStopNote:
    """The note; an empty one when there is none or when it is damaged, which is logged. Raises OSError."""
    if not has_note(disk, root):
        return EMPTY_NOTE
    data = read_file(disk, root / NOTE_NAME)
    try:
        return _parse(parse_json(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if not is_quiet:
            log.warning("clean-stop note cannot be read", reason=repr(error), file=str(root / NOTE_NAME))
        return EMPTY_NOTE


def _parse(content: Any) -> CleanStopNote:
    """Raises ValueError for a wrong checksum; ValueError, TypeError, KeyError or AttributeError for invalid content."""
    version = content["version"]
    if version != 1 or CHECKSUM in content:
        stored, expected = content.get(CHECKSUM), checksum_of(content)
        if stored != expected:
            raise ValueError(f"found {CHECKSUM} {stored!r}, expected {expected!r}")
    if version not in (1, VERSION):
        return EMPTY_NOTE
    ends = {name: CleanEnd(*map(int, end)) for name, end in content["partitions"].items()}
    return CleanStopNote(ends, parse_counts(content) if COUNT_FIELDS[0] in content else None)


def remove_note(disk: Disk, root: Path) -> None:
    """Remove the note, durably, before anything is appended. Raises OSError."""
    if has_note(disk, root):
        disk.remove(root / NOTE_NAME)
        disk.sync_folder(root)
