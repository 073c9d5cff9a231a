"""Special cases of journal files: the first one of a start, one that has no room, one that was removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, replace_file
from ..disk.threads import Then, Threads
from .journal import Journal, SyncPolicy
from .recovery.clean_stop import remove_note

log = get_logger("callboard.log")


class JournalSettings(NamedTuple):
    """When the log syncs and when it makes a checkpoint. Sizes in bytes, intervals in seconds."""

    sync: SyncPolicy
    flush_interval_s: float
    checkpoint_bytes: int
    checkpoint_interval_s: float


class UnavailableJournal:
    """Takes the place of the first journal file when there was no room to create it. Every write fails with NoSpace.

    ``number`` is one less than that of the file that could not be created. The interface is ``journal.Journal``'s.
    """

    position = 0
    has_rounds = False

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number

    def write(self, frame: bytes) -> None:
        raise NoSpace(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def has_room(self, size: int) -> bool:
        return False

    def probe(self) -> None:
        self.write(b"")

    def trim(self) -> None:
        """There is nothing to trim."""

    def sync(self) -> None:
        """There is nothing to sync."""

    def sync_by(self, threads: Threads, then: Then) -> None:
        then(None)

    def is_in_place(self) -> bool:
        return True

    def truncation(self) -> str:
        return ""

    def content(self) -> bytes:
        return b""

    def close(self) -> None:
        """There is nothing to close."""


def first_journal(disk: Disk, folder: Path, create: Callable[[], Journal]) -> Journal:
    """Create the first journal file of a start. Its header has all end offsets, so the clean-stop note is removed."""
    disk.make_folder(folder)
    disk.sync_folder(folder.parent)
    journal = create()
    try:
        remove_note(disk, folder.parent)
    except OSError:
        journal.close()
        disk.remove(journal.path)
        raise
    return journal


def journal_loss(journal: Journal | UnavailableJournal) -> str:
    """Why a start would not find everything that was written to the file; empty if it would."""
    try:
        if not journal.is_in_place():
            return "it was removed or moved while the log was open; a start would not find further commits"
        truncation = journal.truncation()
    except OSError as error:
        return str(error)
    return f"it was truncated while the log was open, {truncation}" if truncation else ""


def restore_journal(disk: Disk, journal: Journal | UnavailableJournal) -> None:
    """Write a removed file again from its open descriptor: it may have batches of a failed partition. OSError."""
    data = journal.content()
    disk.make_folder(journal.path.parent)
    disk.sync_folder(journal.path.parent.parent)
    replace_file(disk, journal.path, data)
    log.warning("removed journal file restored", file=str(journal.path), bytes=len(data))
