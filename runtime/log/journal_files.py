"""Journal files at the edges: the first of a start, one for which there is no room, one that somebody has removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, replace_file
from .journal import Journal, SyncPolicy
from .recovery.clean_stop import remove_note

log = get_logger("callboard.log")


class Settings(NamedTuple):
    """When the log syncs and when it makes a checkpoint."""

    sync: SyncPolicy
    flush_interval_s: float
    checkpoint_bytes: int
    checkpoint_interval_s: float


class NoJournal:
    """Stands for a journal file for which a start has found no room: nothing can be written to it.

    ``number`` is that of the file before the one that could not be made. See ``journal.Journal`` for the rest.
    """

    position = 0
    has_rounds = False

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number

    def write(self, frame: bytes) -> None:
        raise NoSpace(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def probe(self) -> None:
        self.write(b"")

    def give_back(self) -> None:
        """It has nothing."""

    def sync(self) -> None:
        """There is nothing to sync."""

    def is_in_place(self) -> bool:
        return True

    def cut(self) -> str:
        return ""

    def content(self) -> bytes:
        return b""

    def close(self) -> None:
        """There is nothing to close."""


def first_journal(disk: Disk, folder: Path, make: Callable[[], Journal]) -> Journal:
    """The first journal file of a start. It says where all partitions end, so the note of a clean stop goes."""
    disk.make_folder(folder)
    disk.sync_folder(folder.parent)
    journal = make()
    try:
        remove_note(disk, folder.parent)
    except OSError:
        journal.close()
        disk.remove(journal.path)
        raise
    return journal


def journal_loss(journal: Journal | NoJournal) -> str:
    """Why a start would not find all that was written to the file; empty if it would."""
    try:
        if not journal.is_in_place():
            return "it was removed or moved while the log was open; a start would not find what is written now"
        cut = journal.cut()
    except OSError as error:
        return str(error)
    return f"it was cut while the log was open, {cut}" if cut else ""


def restore_journal(disk: Disk, journal: Journal | NoJournal) -> None:
    """Write a removed file again, from its open descriptor: it has what a failed partition has not. OSError."""
    data = journal.content()
    disk.make_folder(journal.path.parent)
    disk.sync_folder(journal.path.parent.parent)
    replace_file(disk, journal.path, data)
    log.warning("a journal file that was removed was written again", file=str(journal.path), bytes=len(data))
