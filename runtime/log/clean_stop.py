"""``.clean_shutdown``: what a clean stop leaves, so that the next start need not read the ends of all partitions.

After a clean stop all partition files are synced and there is no journal. The note says where each partition ended. The
start removes it, durably, when its new journal says the same and before anything is appended: so it is there only while
what it says is true, and a start that fails, on a full disk say, leaves it to the next. Of a partition whose last file
is not as the note has it, somebody has changed the files meanwhile, and the end is checked as after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..logs import get_logger
from .disk import Disk, read_file, replace_file

NAME = ".clean_shutdown"
VERSION = 1

log = get_logger("callboard.log")


class CleanEnd(NamedTuple):
    """A partition's last segment, its size in bytes, and the offset that the next record will get."""

    base: int
    size: int
    end_offset: int


def leave_note(disk: Disk, root: Path, ends: Mapping[str, CleanEnd]) -> None:
    """Say that all is durable; ``ends`` by the name of the partition's folder. Without a note a start takes longer."""
    try:
        content = {"version": VERSION, "partitions": {name: list(end) for name, end in ends.items()}}
        replace_file(disk, root / NAME, json.dumps(content).encode() + b"\n")
    except OSError as error:
        log.warning("the note of a clean stop could not be written", reason=str(error), folder=str(root))


def read_note(disk: Disk, root: Path) -> dict[str, CleanEnd]:
    """What the note says; nothing when there is none, or not one that can be read. OSError."""
    if NAME not in disk.names(root):
        return {}
    data = read_file(disk, root / NAME)
    try:
        content: Any = json.loads(data)
        known = content["version"] == VERSION
        return {name: CleanEnd(*map(int, end)) for name, end in content["partitions"].items()} if known else {}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("the note of a clean stop cannot be read", reason=repr(error), file=str(root / NAME))
        return {}


def remove_note(disk: Disk, root: Path) -> None:
    """Before anything is appended that the note does not know of; durable. OSError."""
    if NAME in disk.names(root):
        disk.remove(root / NAME)
        disk.sync_folder(root)
