"""The journal files of a backup. They stay open, so their content outlives their removal by a checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...disk.disk import Disk, read_at
from ...log.journal import FOLDER, journal_names, journal_number, journal_salt, scan_journal

TORN_READS_MAX = 20
TORN_READ_PAUSE_S = 0.01


class JournalMissed(Exception):
    """Files may have come and gone between two looks, so the copies may lack batches: begin again."""


class HeldJournals:
    """All journal files since the first ``look``. Close it after use."""

    def __init__(self, disk: Disk, data: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        """``sleep`` takes seconds."""
        self._disk = disk
        self._folder = data / FOLDER
        self._sleep = sleep
        self._open: dict[str, int] = {}  # in the order of the files' numbers

    @property
    def is_empty(self) -> bool:
        return not self._open

    def look(self) -> None:
        """Open the files that are new. Raises OSError, and JournalMissed if one may have been missed."""
        while not self._open_new():
            pass

    def _open_new(self) -> bool:
        """Returns False if a file was removed after it was listed."""
        for name in journal_names(self._disk.names(self._folder)):
            if name in self._open:
                continue
            last = next(reversed(self._open), None)
            if last is not None and journal_number(name) != (journal_number(last) or 0) + 1:
                raise JournalMissed(f"{self._folder}: found {name} after {last}")
            try:
                self._open[name] = self._disk.open(self._folder / name, os.O_RDONLY)
            except FileNotFoundError:
                return False
        return True

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """The relative path and the content of each file, oldest first.

        The newest one may be read while a frame is written to it. It is read again until it has no such frame, so only
        damage of the disk remains.
        """
        for name, fd in self._open.items():
            for attempt in range(TORN_READS_MAX):
                if attempt:
                    self._sleep(TORN_READ_PAUSE_S)
                data = read_at(self._disk, fd, self._disk.size(fd), 0)
                scan = scan_journal(data, journal_salt(name))
                if not (scan.damaged or scan.torn_bytes):
                    break
            yield f"{FOLDER}/{name}", data[: scan.valid_bytes + scan.torn_bytes]  # without the zeros ahead

    def close(self) -> None:
        for fd in self._open.values():
            self._disk.close(fd)
        self._open.clear()
