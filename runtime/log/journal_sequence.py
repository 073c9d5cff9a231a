"""The journal files of an open log: the current one, and the completed ones that still have batches to flush."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ..disk.disk import Disk, is_full
from .checkpoint import OldJournal
from .journal import FOLDER, FileHeader, Journal, SyncPolicy
from .journal_files import UnavailableJournal, first_journal, journal_loss, restore_journal
from .partition_counts import PartitionCounts


class JournalSequence:
    """``current``: the file that gets rounds. ``completed``: older files that a job could not remove yet.

    ``ends`` in its methods: the end offset of each partition, for the header of a new file.
    """

    def __init__(
        self, disk: Disk, root: Path, sync: SyncPolicy, counts: PartitionCounts, new_salt: Callable[[], bytes]
    ) -> None:
        """``new_salt`` returns 8 random bytes per call."""
        self.completed: tuple[OldJournal, ...] = ()
        self._disk = disk
        self._folder = root / FOLDER
        self._sync: SyncPolicy = sync
        self._counts = counts
        self._new_salt = new_salt
        self.current: Journal | UnavailableJournal = UnavailableJournal(self._folder, 0)

    def create_first(self, number: int, ends: Mapping[int, int]) -> None:
        """Create the first file of a start. Raises OSError; then ``current`` accepts no round."""
        self.current = UnavailableJournal(self._folder, number - 1)
        self._create_missing(ends)

    def probe(self, ends: Mapping[int, int]) -> None:
        """Check whether there is room for rounds again. Creates the first file if it is missing. Raises OSError."""
        self._create_missing(ends)
        self.current.probe()

    def create_next(self, ends: Mapping[int, int], *, may_trim: bool) -> Journal | UnavailableJournal:
        """Create the next file for further rounds. Returns the one before, still open. Raises OSError.

        ``may_trim``: without room, free the allocated bytes of the current file, which accepts no round.
        """
        before = self.current
        try:
            self.current = self._create(before.number + 1, ends)
        except OSError as error:
            if not is_full(error) or not may_trim:
                raise
            before.trim()
            self.current = self._create(before.number + 1, ends)
        return before

    def loss(self) -> str:
        """Why a start would not find everything that was written to the current file; empty if it would."""
        return journal_loss(self.current)

    def restore(self) -> None:
        """Write the removed current file again from its open descriptor. Raises OSError."""
        restore_journal(self._disk, self.current)

    @property
    def file_count(self) -> int:
        return len(self.completed) + 1

    @property
    def size_bytes(self) -> int:
        return self.current.position + sum(old.size for old in self.completed)

    def _create_missing(self, ends: Mapping[int, int]) -> None:
        if isinstance(self.current, UnavailableJournal):
            create = partial(self._create, self.current.number + 1, ends)
            self.current = first_journal(self._disk, self._folder, create)

    def _create(self, number: int, ends: Mapping[int, int]) -> Journal:
        header = FileHeader(ends, self._sync, self._counts)
        return Journal(self._disk, self._folder, number, header, self._new_salt())
