"""Checks, while a log is open, that its data folder still exists and is still locked by this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..disk.disk import Disk
from .folder import FolderLock

LOCK_CHECK_INTERVAL_S = 1.0  # between two checks of the lock


class FolderWatch:
    """Checks the data folder of a log. ``on_lost`` is called in the log's thread when the lock was lost.

    Without a lock (the caller guarantees that there is only one log) it only checks that the folder exists.
    """

    def __init__(
        self, disk: Disk, root: Path, lock: FolderLock | None = None, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self.root = root
        self.on_lost = on_lost
        self._disk = disk
        self._lock = lock
        self._fd = -1

    def open(self) -> None:
        """Open the folder if there is no lock that has it open. Raises OSError."""
        if self._lock is None:
            self._fd = self._disk.open_folder(self.root)

    @property
    def interval_s(self) -> float | None:
        """How often to check ``loss_reason``; None without a lock."""
        return None if self._lock is None else LOCK_CHECK_INTERVAL_S

    def loss_reason(self) -> str:
        """Why another process may own the folder now; empty while this process owns it."""
        return "" if self._lock is None else self._lock.loss_reason()

    def is_writable(self) -> bool:
        """Whether the folder is still at its path, and no other process can be writing its partitions."""
        lock = self._lock
        try:
            if not self._disk.is_named(self._fd if lock is None else lock.folder_fd, self.root):
                return False
        except OSError:
            return False
        return lock is None or lock.is_folder_locked or not lock.loss_reason()

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
