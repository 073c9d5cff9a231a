"""When the log's thread has work to do without a call. Times are monotonic, in seconds; ``inf`` means never."""

from __future__ import annotations

from collections.abc import Set
from math import inf

from .journal_files import JournalSettings
from .room import Store

FLUSH_BYTES = 1024 * 1024  # batches in memory that start a job
FLUSH_INTERVAL_S = 0.25  # a few writes per second and partition instead of thousands


class DueTimes:
    """When each kind of work is due: plain attributes, since each round reads and writes them."""

    __slots__ = ("_settings", "checkpoint_s", "flush_s", "next_s", "probe_s", "sync_s", "watch_s")

    def __init__(self, settings: JournalSettings) -> None:
        self.flush_s = self.sync_s = self.checkpoint_s = self.probe_s = self.watch_s = self.next_s = inf
        self._settings = settings

    def plan_after_round(self, now_s: float, waiting_bytes: int, journal_bytes: int, full: Set[Store]) -> None:
        """A round was written: set when the flush, the sync and the checkpoint that follow from it are due."""
        settings = self._settings
        if waiting_bytes >= FLUSH_BYTES and "partition files" not in full:
            self.flush_s = now_s
        elif self.flush_s == inf:
            self.flush_s = now_s + FLUSH_INTERVAL_S
        if settings.sync == "interval" and self.sync_s == inf:
            self.sync_s = now_s + settings.flush_interval_s
        if journal_bytes >= settings.checkpoint_bytes and "next journal" not in full:
            self.checkpoint_s = now_s
        elif self.checkpoint_s == inf:
            self.checkpoint_s = now_s + settings.checkpoint_interval_s

    def cancel_journal_work(self) -> None:
        """The journal is not written any more."""
        self.sync_s = self.probe_s = self.checkpoint_s = inf

    def update_next(self, *, is_job_running: bool) -> None:
        """Set when the next work is due. Work on the partition files waits while a job runs."""
        next_s = min(self.sync_s, self.probe_s, self.watch_s)
        self.next_s = next_s if is_job_running else min(next_s, self.flush_s, self.checkpoint_s)
