"""Decides when the journal cannot be relied on any more: after an error of a write or sync, or when it was lost."""

from __future__ import annotations

from collections.abc import Callable

from ..common.logs import get_logger
from .due_times import DueTimes
from .folder_watch import FolderWatch
from .journal_sequence import JournalSequence
from .stats import Counters

log = get_logger("callboard.log")


class JournalGuard:
    """``failure``: why all rounds are refused until the next start; empty as long as the journal is reliable."""

    def __init__(
        self,
        journals: JournalSequence,
        watch: FolderWatch,
        due_times: DueTimes,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        """``clock``: monotonic, in seconds."""
        self.failure = ""
        self._journals = journals
        self._watch = watch
        self._due_times = due_times
        self._counters = counters
        self._clock = clock
        self._is_lock_lost = False

    def is_ready(self, size: int) -> bool:
        """Whether a frame of this size can be written in microseconds: it has room, and no other work is due."""
        return not self.failure and self._clock() < self._due_times.next_s and self._journals.current.has_room(size)

    def sync(self) -> None:
        """Sync the current journal file. An error of the disk is a failure."""
        try:
            started_s = self._clock()
            self._journals.current.sync()
            self._counters.count_sync(self._clock() - started_s)
        except OSError as error:
            self.fail(str(error))

    def check_lock(self) -> None:
        """Fail if the lock was lost: another process may own the folder, or it was moved."""
        if not self._is_lock_lost and (reason := self._watch.loss_reason()):
            self._is_lock_lost = True
            self._due_times.watch_s = float("inf")
            self._fail_and_restore(reason)
            self._watch.on_lost()

    def check_journal(self) -> None:
        """Fail if the journal file was removed, moved or truncated: writes succeed, but a start would not find them."""
        self.check_lock()
        if self.failure:
            return
        reason = self._journals.loss()
        if reason:
            self._fail_and_restore(f"{self._journals.current.path}: {reason}")

    def fail(self, reason: str) -> None:
        """Refuse further rounds: the journal's content is unknown. Acknowledged ones are flushed once no job runs."""
        self._due_times.cancel_journal_work()
        if not self.failure:
            self.failure = reason
            self._due_times.flush_s = self._clock()
            log.error(
                "the log has failed",
                reason=reason,
                consequence="every commit from now on is refused",
                advice="remove the cause, then start the server again",
            )

    def _fail_and_restore(self, reason: str) -> None:
        """Fail, with all acknowledged rounds where the next start finds them. ``fail`` also has them flushed."""
        self.fail(reason)
        self.sync()
        journal = self._journals.current
        try:
            if not journal.is_in_place() and self._watch.is_writable():
                self._journals.restore()
        except OSError as error:
            log.error("the journal file cannot be restored", file=str(journal.path), reason=str(error))
