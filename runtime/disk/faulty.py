"""A disk in memory that loses its power, fills up or fails, as a seed says: for tests of what must survive that.

It keeps what POSIX promises, and nothing more: a file's content is durable after ``sync``, a name (made, moved, linked,
removed) after ``sync_folder``. Before that, ``crash`` decides by the seed what of it arrived:

* of a file's content each sector for itself, in any order, so a write may be torn anywhere;
* of a file's size any that it had since, so it may have grown without its data, and then holds zeros;
* of the names any, but those that build upon one another only in their order, and a rename whole or not at all.

Nothing is invented that ext4, xfs and their like do not do: what was synced stays, a sector holds one of the contents
that it had since the last sync, and what a truncation cut off does not come back under a size from after it.
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
from .page_cache import CachedFile, CachedFolder, CachedNames, Node, parts_of, system_error

SECTOR_BYTES = 512
"""What a disk writes whole or not at all. Smaller ones find more in tests with small files."""

FIRST_FD = 1_000_000  # no number that the system gives, so that a descriptor of ours never reaches a real file
ARRIVAL_CHANCES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How much of what was not synced arrives: mostly all, mostly nothing and half of it are different dangers."""


class PowerLoss(BaseException):
    """The process is gone in the middle of an operation. No ``Exception``, because nobody is left to handle it."""


class Fault(NamedTuple):
    """What goes wrong with some operations.

    ``operation``: the name of a method of ``Disk``, or ``*``. ``error``: an errno, or 0 for a read or a write that is
    short. ``path``: a pattern as for ``fnmatch``, for the whole path. The first ``skip`` operations that match succeed,
    then ``times`` of them fail, each with probability ``chance``. A sync that fails has lost what it should have
    written, as on Linux: the pages count as clean, and a later sync that succeeds does not write them.
    """

    operation: str
    error: int
    path: str = "*"
    skip: int = 0
    times: float = 1
    chance: float = 1.0


class _Planned:
    """A fault, and how often it is still to come."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._skip = fault.skip
        self._times = fault.times

    def strikes(self, operation: str, path: str, chance: random.Random) -> bool:
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


class _Open:
    """An open file; a duplicate of its descriptor shares it."""

    __slots__ = ("flags", "node", "path")

    def __init__(self, node: Node, path: str, flags: int) -> None:
        self.node = node
        self.path = path
        self.flags = flags

    @property
    def file(self) -> CachedFile:
        if isinstance(self.node, CachedFolder):
            raise system_error(errno.EISDIR, self.path)
        return self.node


class FaultyDisk(Disk):
    """See the module. ``capacity_bytes``: what all files together may hold (ENOSPC); it may be changed at any time.

    ``wall_ms`` gives the time of a change, in ms since 1970.

    ``watch`` is called with each change that was made: the method's name and the path; ``struck`` the same with each
    operation that a fault has met. Safe in several threads, but
    what happens is a function of the seed only when the operations come in a fixed order.
    """

    is_real = False
    ahead_bytes = 4096  # in memory there is nothing to gain

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
        self.watch: Callable[[str, str], None] = lambda operation, path: None
        self.struck: Callable[[str, str], None] = lambda operation, path: None
        self._sector_bytes = sector_bytes
        self._wall_ms = wall_ms
        self._random = random.Random(seed)
        self._names = CachedNames()
        self._open: dict[int, _Open] = {}
        self._locks: dict[Node, _Open] = {}
        self._next_fd = FIRST_FD
        self._faults: list[_Planned] = []
        self._power_goes_at: float = inf
        self._is_off = False
        self._guard = threading.RLock()

    # What a test does with it ----------------------------------------------------------------------------------------

    def fail(self, fault: Fault) -> None:
        """Let operations fail from now on; several faults may be planned, the first that matches strikes."""
        self._faults.append(_Planned(fault))

    def mend(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def crash_at(self, change: int) -> None:
        """Let the power go in the middle of the change of that number (1 is the next): it raises ``PowerLoss``.

        So does every operation after it, until ``crash`` or ``kill`` gives the disk that the next process finds.
        """
        self._power_goes_at = self.changes + change

    def crash(self) -> FaultyDisk:
        """The disk as it may be found after a loss of power. Each call is another throw of the dice.

        This disk stays as it is, but for those who still write to it the power is gone.
        """
        with self._guard:
            found = self._successor()
            chance = self._random.choice(ARRIVAL_CHANCES)
            found._names = self._names.after_power_loss(self._random, chance, self._file_that_arrived)
            return found

    def kill(self, others: Collection[int] = ()) -> FaultyDisk:
        """The disk as the next process finds it when only this one died: all is there, and no more is durable.

        ``others``: descriptors of processes that live on; they are good on the disk that is found.
        """
        with self._guard:
            found = self._successor()
            found._names = self._names
            found._next_fd = self._next_fd
            for fd in others:
                opened = found._open[fd] = self._opened(fd)
                if self._locks.get(opened.node) is opened:
                    found._locks[opened.node] = opened
            return found

    @property
    def is_off(self) -> bool:
        """Whether the power has gone, or the process has been killed."""
        return self._is_off

    def path_of(self, fd: int) -> str:
        """Under which path a file was opened."""
        return self._opened(fd).path

    def used_bytes(self) -> int:
        """What all files together hold, also those that have no name any more but are open."""
        with self._guard:
            nodes = {id(node): node for node in (*self._names.files(), *(each.node for each in self._open.values()))}
            return sum(len(node.seen) for node in nodes.values() if isinstance(node, CachedFile))

    # The interface of Disk -------------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        with self._guard:
            folder, name = self._names.place(path)
            node = folder.seen.get(name)
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
                self.watch("open", str(path))
            return self._new_fd(_Open(node, str(path), flags))

    def open_folder(self, path: Path) -> int:
        with self._guard:
            self._begin("open_folder", path, counts=False)
            return self._new_fd(_Open(self._names.folder(path), str(path), os.O_RDONLY))

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
            return len(self._opened(fd).file.seen)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._guard:
            opened = self._opened(fd)
            if self._begin("read", opened.path, counts=False) and size > 1:
                size = self._random.randrange(1, size)
            return bytes(memoryview(opened.file.seen)[position : position + size])

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._guard:
            opened = self._opened(fd)
            if opened.flags & os.O_ACCMODE == os.O_RDONLY:
                raise system_error(errno.EBADF, opened.path)
            size = len(data)
            try:
                is_short = self._begin("write", opened.path)
            except PowerLoss:
                self._last_write(opened, data, position)
                raise
            if is_short and size > 1:
                size = self._random.randrange(1, size)
            size = self._room_for(opened, position, size)
            opened.file.write(position, bytes(data[:size]))
            opened.file.modified_ms = self._wall_ms()
            self.watch("write", opened.path)
            return size

    def truncate(self, fd: int, size: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            self._begin("truncate", opened.path)
            opened.file.truncate(size)
            opened.file.modified_ms = self._wall_ms()
            self.watch("truncate", opened.path)

    def sync(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            try:
                self._begin("sync", opened.path)
            except OSError:
                opened.file.lose(self._random, self._random.choice(ARRIVAL_CHANCES), self._sector_bytes)
                raise
            opened.file.sync()
            self.watch("sync", opened.path)

    def sync_folder(self, path: Path) -> None:
        with self._guard:
            self._begin("sync_folder", path)
            self._names.sync(self._names.folder(path))
            self.watch("sync_folder", str(path))

    def make_folder(self, path: Path) -> None:
        with self._guard:
            folder = self._names.root
            for name in parts_of(path):
                node = folder.seen.get(name)
                if node is None:
                    self._begin("make_folder", path)
                    node = CachedFolder()
                    self._names.change((folder, name, node))
                    self.watch("make_folder", str(path))
                if not isinstance(node, CachedFolder):
                    raise system_error(errno.EEXIST if name == path.name else errno.ENOTDIR, path)
                folder = node

    def names(self, path: Path) -> list[str]:
        with self._guard:
            self._begin("names", path, counts=False)
            try:
                return sorted(self._names.folder(path).seen)
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
            (old_folder, old_name), (folder, name) = self._names.place(source), self._names.place(target)
            node = self._names.node(source)
            _refuse_to_replace(folder.seen.get(name), node, target)
            if folder.seen.get(name) is not node:  # two names of one file: POSIX says that nothing happens
                self._names.change((old_folder, old_name, None), (folder, name, node))
            self.watch("rename", f"{source} {target}")

    def link(self, source: Path, target: Path) -> None:
        with self._guard:
            self._begin("link", target)
            node = self._names.node(source)
            folder, name = self._names.place(target)
            if name in folder.seen:
                raise system_error(errno.EEXIST, target)
            if isinstance(node, CachedFolder):
                raise system_error(errno.EPERM, source)
            self._names.change((folder, name, node))
            self.watch("link", f"{source} {target}")

    def is_named(self, fd: int, path: Path) -> bool:
        with self._guard:
            opened = self._opened(fd)
            self._begin("is_named", opened.path, counts=False)
            try:
                return self._names.node(path) is opened.node
            except (FileNotFoundError, NotADirectoryError):
                return False

    def forget(self, fd: int) -> None:
        with self._guard:
            opened = self._opened(fd)
            self._begin("forget", opened.path, counts=False)
            opened.file.forget()

    def remove(self, path: Path) -> None:
        with self._guard:
            self._begin("remove", path)
            folder, name = self._names.place(path)
            if isinstance(self._names.node(path), CachedFolder):
                raise system_error(errno.EISDIR, path)
            self._names.change((folder, name, None))
            self.watch("remove", str(path))

    def modified_ms(self, path: Path) -> int:
        with self._guard:
            self._begin("modified_ms", path, counts=False)
            node = self._names.node(path)
            if isinstance(node, CachedFolder):
                raise system_error(errno.EISDIR, path)
            return node.modified_ms

    # How it is done --------------------------------------------------------------------------------------------------

    def _begin(self, operation: str, path: Path | str, counts: bool = True) -> bool:
        """Let the power go or a fault strike where they are due; whether the operation is to be short."""
        if self._is_off:
            raise PowerLoss
        if counts:
            self.changes += 1
            if self.changes >= self._power_goes_at:
                self._is_off = True
                raise PowerLoss
        for planned in self._faults:
            if planned.strikes(operation, str(path), self._random):
                self.struck(operation, str(path))
                if planned.fault.error:
                    raise system_error(planned.fault.error, path)
                return True
        return False

    def _last_write(self, opened: _Open, data: bytes | memoryview, position: int) -> None:
        """The power goes while a write runs: a part of it is in the page cache. Nothing when it was gone before."""
        if self.changes >= self._power_goes_at:
            self._power_goes_at = inf
            opened.file.write(position, bytes(data[: self._random.randint(0, len(data))]))

    def _room_for(self, opened: _Open, position: int, size: int) -> int:
        """How many of the bytes fit on the disk; ENOSPC when there are some, and none does."""
        if self.capacity_bytes == inf or position + size <= len(opened.file.seen):
            return size
        end = len(opened.file.seen) + int(self.capacity_bytes) - self.used_bytes()
        if size and end <= position:
            raise system_error(errno.ENOSPC, opened.path)
        return min(size, end - position)

    def _create(self, folder: CachedFolder, name: str, path: Path, flags: int) -> CachedFile:
        if not flags & os.O_CREAT:
            raise system_error(errno.ENOENT, path)
        file = CachedFile(modified_ms=self._wall_ms())
        self._names.change((folder, name, file))
        return file

    def _new_fd(self, opened: _Open) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = opened
        return fd

    def _opened(self, fd: int) -> _Open:
        if fd not in self._open:
            raise OSError(errno.EBADF, f"file descriptor {fd} is not open on this disk")
        return self._open[fd]

    def _file_that_arrived(self, file: CachedFile) -> CachedFile:
        return file.after_power_loss(self._random, self._random.choice(ARRIVAL_CHANCES), self._sector_bytes)

    def _successor(self) -> FaultyDisk:
        self._is_off = True
        found = FaultyDisk(
            self._random.getrandbits(64),
            capacity_bytes=self.capacity_bytes,
            sector_bytes=self._sector_bytes,
            wall_ms=self._wall_ms,
        )
        found.watch = self.watch
        return found


def _refuse_to_replace(old: Node | None, new: Node, path: Path) -> None:
    """A rename may put a file over a file, and a folder over an empty one."""
    if isinstance(old, CachedFolder) and old is not new:
        if not isinstance(new, CachedFolder):
            raise system_error(errno.EISDIR, path)
        if old.seen:
            raise system_error(errno.ENOTEMPTY, path)
    elif isinstance(old, CachedFile) and isinstance(new, CachedFolder):
        raise system_error(errno.ENOTDIR, path)
