"""Runs ordinary code as another process that shares a simulated disk, one disk operation at a time.

The code, mainly compaction, runs unchanged on a separate thread. That thread and the loop's thread never run at the
same time: the thread waits before each disk operation until ``step`` is called, and ``step`` waits until the thread
reaches the next operation. The order therefore depends on the seed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ...disk.disk import Disk, Kind
from ..disk.faulty import FaultyDisk


class Killed(BaseException):
    """The process was killed. A BaseException, so that its ``except Exception`` does not run."""


class SteppedProcess:
    """A stepped process. ``work`` is called with its disk."""

    def __init__(self, disk: FaultyDisk, work: Callable[[Disk], object]) -> None:
        self.disk = SteppedDisk(disk, self._wait)
        self.has_ended = False
        self._work = work
        self._error: BaseException | None = None
        self._is_killed = False
        self._may_continue = threading.Semaphore(0)
        self._has_arrived = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="callboard-beside", daemon=True)

    def step(self) -> bool:
        """Run the next operation, up to the one after it. False after the last. Raises the error of the work."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._may_continue.release()
        self._has_arrived.acquire()
        if self.has_ended:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return not self.has_ended

    def kill(self) -> None:
        """Stop the process and close its files."""
        self._is_killed = True
        self.disk.close_all()
        if self._thread.ident is not None and not self.has_ended:
            self._may_continue.release()
            self._thread.join()
        self.has_ended = True

    def _wait(self) -> None:
        """Wait in the thread before an operation."""
        if not self._is_killed:
            self._has_arrived.release()
            self._may_continue.acquire()
        if self._is_killed:
            raise Killed

    def _run(self) -> None:
        try:
            self._work(self.disk)
        except Killed:
            pass
        except BaseException as error:
            self._error = error
        self.has_ended = True
        self._has_arrived.release()


class SteppedDisk(Disk):
    """The disk of a stepped process: operations that change or list files wait for ``step``.

    ``inner`` is replaced when the coordinator's process was killed and this one was not.
    """

    is_real = False
    ahead_bytes = FaultyDisk.ahead_bytes

    def __init__(self, inner: FaultyDisk, wait: Callable[[], None]) -> None:
        self.inner = inner
        self.fds: set[int] = set()
        self._wait = wait

    def close_all(self) -> None:
        """Close all files, as an operating system does when a process ends."""
        for fd in self.fds:
            self.inner.close(fd)
        self.fds.clear()

    def open(self, path: Path, flags: int) -> int:
        self._wait()
        fd = self.inner.open(path, flags)
        self.fds.add(fd)
        return fd

    def open_folder(self, path: Path) -> int:
        fd = self.inner.open_folder(path)
        self.fds.add(fd)
        return fd

    def set_mode(self, fd: int, mode: int | None = None) -> None:
        self.inner.set_mode(fd, mode)

    def duplicate(self, fd: int) -> int:
        copy = self.inner.duplicate(fd)
        self.fds.add(copy)
        return copy

    def close(self, fd: int) -> None:
        if fd in self.fds:  # otherwise the process was killed
            self.fds.remove(fd)
            self.inner.close(fd)

    def size(self, fd: int) -> int:
        return self.inner.size(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        return self.inner.read(fd, size, position)

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self._wait()
        return self.inner.write(fd, data, position)

    def truncate(self, fd: int, size: int) -> None:
        self._wait()
        self.inner.truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._wait()
        self.inner.sync(fd)

    def sync_folder(self, path: Path) -> None:
        self._wait()
        self.inner.sync_folder(path)

    def make_folder(self, path: Path) -> None:
        self._wait()
        self.inner.make_folder(path)

    def names(self, path: Path) -> list[str]:
        self._wait()
        return self.inner.names(path)

    def kind(self, path: Path) -> Kind:
        return self.inner.kind(path)

    def lock(self, fd: int, *, hold: bool = True) -> None:
        self._wait()
        self.inner.lock(fd, hold=hold)

    def rename(self, source: Path, target: Path) -> None:
        self._wait()
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._wait()
        self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        self._wait()
        self.inner.remove(path)

    def is_named(self, fd: int, path: Path) -> bool:
        return self.inner.is_named(fd, path)

    def drop_cached(self, fd: int) -> None:
        self.inner.drop_cached(fd)
