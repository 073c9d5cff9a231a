"""Whether the data folder is still there, and still this process's, while its log is open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..disk.disk import Disk
from .folder import FolderLock

INTERVAL_S = 1.0  # between two looks at the lock


class FolderWatch:
    """Looks at the data folder of a log. ``on_lost`` is called when its lock was lost, in the log's thread.

    Without a lock (somebody else sees to it that there is one log only) it sees only whether the folder is there.
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
        """OSError."""
        if self._lock is None:
            self._fd = self._disk.open_folder(self.root)

    @property
    def interval_s(self) -> float | None:
        """How often to ask for ``loss``; None when there is no lock to lose."""
        return None if self._lock is None else INTERVAL_S

    def loss(self) -> str:
        """Why the folder may not be this process's any more; empty while it is."""
        return "" if self._lock is None else self._lock.loss()

    def is_writable(self) -> bool:
        """Whether the folder is where it was, and nobody else can be writing its partitions."""
        lock = self._lock
        try:
            if not self._disk.is_named(self._fd if lock is None else lock.folder_fd, self.root):
                return False
        except OSError:
            return False
        return lock is None or lock.is_folder_locked or not lock.loss()

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
