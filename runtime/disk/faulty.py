"""A disk in memory with simulated power losses, full disks and I/O errors, drawn from a seed. For tests.

It guarantees what POSIX promises and no more: a file's content is durable after ``sync``, a name (created, renamed,
linked, removed) after ``sync_folder``. Changes that are not durable may be lost in ``crash``, as the seed decides:

* Each sector of a file's content is kept or lost separately, in any order, so a write may be torn anywhere.
* A file's size is any that it had since the last sync. A file that grew without its data holds zeros.
* Any change of a name is kept or lost. A change that depends on another one is kept only with it, and a rename is
  atomic.

Nothing happens that ext4, xfs and similar file systems exclude: synced content stays, a sector holds one of the
contents that it had since the last sync, and truncated content does not reappear when the file grows again.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import random
import threading
from collections.abc import Callable, Collection
from math import inf
from pathlib import Path
from typing import NamedTuple

from ..engine.clock import wall_clock_ms
from .disk import Disk, Kind
from .page_cache import CachedFile, CachedFolder, CachedNames, CachedNode, parts_of, system_error

SECTOR_BYTES = 512
"""The unit that a disk writes atomically. Smaller sectors find more errors in tests with small files."""

FIRST_FD = 1_000_000  # higher than any real descriptor, so that a simulated one never refers to a real file
SURVIVAL_CHANCES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Probabilities that an unsynced change survives a power loss. Few, half and most find different errors."""


class PowerLoss(BaseException):
    """The process ends in the middle of an operation. Not an ``Exception``, so that no code handles it."""


class Fault(NamedTuple):
    """An injected error.

    ``operation``: the name of a method of ``Disk``, or ``*``. ``error``: an errno, or 0 for a short read or write.
    ``path``: a pattern of ``fnmatch`` for the whole path. The first ``skip`` operations that match succeed, then
    ``times`` of them fail, each with probability ``chance``. A failed sync loses the data that it should have written,
    as on Linux: the pages count as clean, and a later successful sync does not write them.
    """

    operation: str
    error: int
    path: str = "*"
    skip: int = 0
    times: float = 1
    chance: float = 1.0


class _PlannedFault:
    """A fault, and how many matching operations it skips and fails from now on."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._skip = fault.skip
        self._times = fault.times

    def applies_to(self, operation: str, path: str, chance: random.Random) -> bool:
        fault = self.fault
        if self._times <= 0 or fault.operation not in ("*", operation) or not fnmatch.fnmatchcase(path, fault.path):
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if fault.chance < 1 and chance.random() >= fault.chance:
            return False
        self._times -= 1
        return True


class _OpenFile:
    """An open file, shared by duplicates of its descriptor."""

    __slots__ = ("flags", "node", "path")

    def __init__(self, node: CachedNode, path: str, flags: int) -> None:
        self.node = node
        self.path = path
        self.flags = flags

    @property
    def file(self) -> CachedFile:
        if isinstance(self.node, CachedFolder):
            raise system_error(errno.EISDIR, self.path)
        return self.node


class FaultyDisk(Disk):
    """See the module. ``capacity_bytes``: the maximum size of all files together (ENOSPC); it may change at any time.

    ``wall_ms``: the clock for modification times, in ms since 1970.

    ``on_change`` is called after each change with the name of the method and the path, ``on_fault`` for each operation
    that a fault affects. Thread-safe, but reproducible from the seed only if the order of operations is fixed.
    """

    is_real = False
    ahead_bytes = 4096  # more gains nothing in memory

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: float = inf,
        sector_bytes: int = SECTOR_BYTES,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.changes = 0
        self.on_change: Callable[[str, str], None] = lambda operation, path: None
        self.on_fault: Callable[[str, str], None] = lambda operation, path: None
        self._sector_bytes = sector_bytes
        self._wall_ms = wall_ms
        self._random = random.Random(seed)
        self._names = CachedNames()
        self._open: dict[int, _OpenFile] = {}
        self._locks: dict[CachedNode, _OpenFile] = {}
        self._next_fd = FIRST_FD
        self._faults: list[_PlannedFault] = []
        self._power_loss_at: float = inf  # the number of the change in which it happens
        self._is_off = False
        self._guard = threading.RLock()

    # Controls for tests ----------------------------------------------------------------------------------------------

    def fail(self, fault: Fault) -> None:
        """Inject a fault from now on. If several faults match an operation, the first one applies."""
        self._faults.append(_PlannedFault(fault))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def crash_at(self, change: int) -> None:
        """Lose power in the middle of a change (1 is the next change): it raises ``PowerLoss``.

        Every later operation raises it too. ``crash`` or ``kill`` returns the disk for the next process.
        """
        self._power_loss_at = self.changes + change

    def crash(self) -> FaultyDisk:
        """A disk with the content that may be left after a power loss. Each call draws another one.

        The files of this disk do not change, but all later operations on it raise ``PowerLoss``.
        """
        with self._guard:
            successor = self._successor()
            chance = self._random.choice(SURVIVAL_CHANCES)
            successor._names = self._names.after_power_loss(self._random, chance, self._file_after_power_loss)
            return successor

    def kill(self, others: Collection[int] = ()) -> FaultyDisk:
        """The disk for the next process when only this process was killed: nothing is lost, nothing becomes durable.

        ``others``: descriptors of other processes that go on. They stay valid on the returned disk.
        """
        with self._guard:
            successor = self._successor()
            successor._names = self._names
            successor._next_fd = self._next_fd
            for fd in others:
                opened = successor._open[fd] = self._opened(fd)
                if self._locks.get(opened.node) is opened:
                    successor._locks[opened.node] = opened
            return successor

    @property
    def is_off(self) -> bool:
        """Whether there was a power loss, or the process was killed."""
        return self._is_off

    def path_of(self, fd: int) -> str:
        """The path under which a file was opened."""
        return self._opened(fd).path

    def used_bytes(self) -> int:
        """The size of all files together, including open files that were removed."""
        with self._guard:
            nodes = {id(node): node for node in (*self._names.files(), *(file.node for file in self._open.values()))}
            return sum(len(node.visible) for node in nodes.values() if isinstance(node, CachedFile))

    # The interface of Disk -------------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        with self._guard:
            folder, name = self._names.locate(path)
            node = folder.visible.get(name)
            changes = bool(flags & (os.O_CREAT if node is None else os.O_TRUNC))
            self._begin("open", path, counts=changes)
            if node is not None and flags & os.O_CREAT and flags & os.O_EXCL:
                raise system_error(errno.EEXIST, path)
            if isinstance(node, CachedFolder):
                raise system_error(errno.EISDIR, path)
            if node is None:
                node = self._create(folder, name, path, flags)
            elif flags & os.O_TRUNC:
                node.truncate(0)
            if changes:
                self.on_change("open", str(path))
            return self._new_fd(_OpenFile(node, str(path), flags))

    def open_folder(self, path: Path) -> int:
        with self._guard:
            self._begin("open_folder", path, counts=False)
            return self._new_fd(_OpenFile(self._names.folder(path), str(path), os.O_RDONLY))

    def set_mode(self, fd: int) -> None:
        """Files in memory have no permissions."""
        self._opened(fd)

    def duplicate(self, fd: int) -> int:
        with self._guard:
            self._begin("duplicate", self._opened(fd).path, counts=False)
            return self._new_fd(self._opened(fd))

    def close(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            del self._open[fd]
            if self._locks.get(opened.node) is opened and opened not in self._open.values():
                del self._locks[opened.node]

    def size(self, fd: int) -> int:
        with self._guard:
            self._begin("size", self._opened(fd).path, counts=False)
            return len(self._opened(fd).file.visible)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._guard:
            opened = self._opened(fd)
            if self._begin("read", opened.path, counts=False) and size > 1:
                size = self._random.randrange(1, size)
            return bytes(memoryview(opened.file.visible)[position : position + size])

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._guard:
            opened = self._opened(fd)
            if opened.flags & os.O_ACCMODE == os.O_RDONLY:
                raise system_error(errno.EBADF, opened.path)
            size = len(data)
            try:
                is_short = self._begin("write", opened.path)
            except PowerLoss:
                self._tear_write(opened, data, position)
                raise
            if is_short and size > 1:
                size = self._random.randrange(1, size)
            size = self._room_for(opened, position, size)
            opened.file.write(position, bytes(data[:size]))
            opened.file.modified_ms = self._wall_ms()
            self.on_change("write", opened.path)
            return size

    def truncate(self, fd: int, size: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            self._begin("truncate", opened.path)
            opened.file.truncate(size)
            opened.file.modified_ms = self._wall_ms()
            self.on_change("truncate", opened.path)

    def sync(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            try:
                self._begin("sync", opened.path)
            except OSError:
                opened.file.fail_sync(self._random, self._random.choice(SURVIVAL_CHANCES), self._sector_bytes)
                raise
            opened.file.sync()
            self.on_change("sync", opened.path)

    def sync_folder(self, path: Path) -> None:
        with self._guard:
            self._begin("sync_folder", path)
            self._names.sync(self._names.folder(path))
            self.on_change("sync_folder", str(path))

    def make_folder(self, path: Path) -> None:
        with self._guard:
            folder = self._names.root
            for name in parts_of(path):
                node = folder.visible.get(name)
                if node is None:
                    self._begin("make_folder", path)
                    node = CachedFolder()
                    self._names.change((folder, name, node))
                    self.on_change("make_folder", str(path))
                if not isinstance(node, CachedFolder):
                    raise system_error(errno.EEXIST if name == path.name else errno.ENOTDIR, path)
                folder = node

    def names(self, path: Path) -> list[str]:
        with self._guard:
            self._begin("names", path, counts=False)
            try:
                return sorted(self._names.folder(path).visible)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def kind(self, path: Path) -> Kind:
        with self._guard:
            self._begin("kind", path, counts=False)
            try:
                is_root = not parts_of(path)
                return "folder" if is_root or isinstance(self._names.node(path), CachedFolder) else "file"
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"

    def lock(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            self._begin("lock", opened.path, counts=False)
            if self._locks.setdefault(opened.node, opened) is not opened:
                raise system_error(errno.EAGAIN, opened.path)

    def rename(self, source: Path, target: Path) -> None:
        with self._guard:
            self._begin("rename", source)
            (old_folder, old_name), (folder, name) = self._names.locate(source), self._names.locate(target)
            node = self._names.node(source)
            _refuse_to_replace(folder.visible.get(name), node, target)
            if folder.visible.get(name) is not node:  # POSIX: renaming a file to another name of itself does nothing
                self._names.change((old_folder, old_name, None), (folder, name, node))
            self.on_change("rename", f"{source} {target}")

    def link(self, source: Path, target: Path) -> None:
        with self._guard:
            self._begin("link", target)
            node = self._names.node(source)
            folder, name = self._names.locate(target)
            if name in folder.visible:
                raise system_error(errno.EEXIST, target)
            if isinstance(node, CachedFolder):
                raise system_error(errno.EPERM, source)
            self._names.change((folder, name, node))
            self.on_change("link", f"{source} {target}")

    def is_named(self, fd: int, path: Path) -> bool:
        with self._guard:
            opened = self._opened(fd)
            self._begin("is_named", opened.path, counts=False)
            try:
                return self._names.node(path) is opened.node
            except (FileNotFoundError, NotADirectoryError):
                return False

    def drop_cached(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            self._begin("forget", opened.path, counts=False)
            opened.file.drop_cached()

    def remove(self, path: Path) -> None:
        with self._guard:
            self._begin("remove", path)
            folder, name = self._names.locate(path)
            if isinstance(self._names.node(path), CachedFolder):
                raise system_error(errno.EISDIR, path)
            self._names.change((folder, name, None))
            self.on_change("remove", str(path))

    def modified_ms(self, path: Path) -> int:
        with self._guard:
            self._begin("modified_ms", path, counts=False)
            node = self._names.node(path)
            if isinstance(node, CachedFolder):
                raise system_error(errno.EISDIR, path)
            return node.modified_ms

    # Implementation --------------------------------------------------------------------------------------------------

    def _begin(self, operation: str, path: Path | str, counts: bool = True) -> bool:
        """Raise PowerLoss or the error of a fault, if one is due. True if the read or write must be short."""
        if self._is_off:
            raise PowerLoss
        if counts:
            self.changes += 1
            if self.changes >= self._power_loss_at:
                self._is_off = True
                raise PowerLoss
        for planned in self._faults:
            if planned.applies_to(operation, str(path), self._random):
                self.on_fault(operation, str(path))
                if planned.fault.error:
                    raise system_error(planned.fault.error, path)
                return True
        return False

    def _tear_write(self, opened: _OpenFile, data: bytes | memoryview, position: int) -> None:
        """Put a part of the write in which power was lost into the page cache. No effect on later writes."""
        if self.changes >= self._power_loss_at:
            self._power_loss_at = inf
            opened.file.write(position, bytes(data[: self._random.randint(0, len(data))]))

    def _room_for(self, opened: _OpenFile, position: int, size: int) -> int:
        """How many of the bytes fit on the disk. ENOSPC if not a single one does."""
        if self.capacity_bytes == inf or position + size <= len(opened.file.visible):
            return size
        end = len(opened.file.visible) + int(self.capacity_bytes) - self.used_bytes()
        if size and end <= position:
            raise system_error(errno.ENOSPC, opened.path)
        return min(size, end - position)

    def _create(self, folder: CachedFolder, name: str, path: Path, flags: int) -> CachedFile:
        if not flags & os.O_CREAT:
            raise system_error(errno.ENOENT, path)
        file = CachedFile(modified_ms=self._wall_ms())
        self._names.change((folder, name, file))
        return file

    def _new_fd(self, opened: _OpenFile) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = opened
        return fd

    def _opened(self, fd: int) -> _OpenFile:
        if fd not in self._open:
            raise OSError(errno.EBADF, f"file descriptor {fd} is not open on this disk")
        return self._open[fd]

    def _file_after_power_loss(self, file: CachedFile) -> CachedFile:
        return file.after_power_loss(self._random, self._random.choice(SURVIVAL_CHANCES), self._sector_bytes)

    def _successor(self) -> FaultyDisk:
        self._is_off = True
        successor = FaultyDisk(
            self._random.getrandbits(64),
            capacity_bytes=self.capacity_bytes,
            sector_bytes=self._sector_bytes,
            wall_ms=self._wall_ms,
        )
        successor.on_change = self.on_change
        return successor


def _refuse_to_replace(old: CachedNode | None, new: CachedNode, path: Path) -> None:
    """A rename may put a file over a file, and a folder over an empty one."""
    if isinstance(old, CachedFolder) and old is not new:
        if not isinstance(new, CachedFolder):
            raise system_error(errno.EISDIR, path)
        if old.visible:
            raise system_error(errno.ENOTEMPTY, path)
    elif isinstance(old, CachedFile) and isinstance(new, CachedFolder):
        raise system_error(errno.ENOTDIR, path)
