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
from collections.abc import Callable, Collection
from math import inf
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Kind
from ...disk.memory import MemoryDisk
from ...disk.memory_files import MemoryFile, OpenFile, system_error
from .page_cache import CachedFile, CachedNames

SECTOR_BYTES = 512
"""The unit that a disk writes atomically. Smaller sectors find more errors in tests with small files."""

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


class FaultPlan:
    """The errors and the power loss that a disk will have, and the number of its changes.

    ``on_change`` is called after each change with the name of the method and the path, ``on_fault`` for each operation
    that a fault affects.
    """

    def __init__(self, chance: random.Random) -> None:
        self.changes = 0
        self.is_off = False
        """Whether there was a power loss, or the process was killed."""
        self.on_change: Callable[[str, str], None] = lambda operation, path: None
        self.on_fault: Callable[[str, str], None] = lambda operation, path: None
        self._chance = chance
        self._planned: list[_PlannedFault] = []
        self._power_loss_at: float = inf  # the number of the change in which it happens

    def fail(self, fault: Fault) -> None:
        """Inject a fault from now on. If several faults match an operation, the first one applies."""
        self._planned.append(_PlannedFault(fault))

    def clear(self) -> None:
        """Remove all faults."""
        self._planned.clear()

    def crash_at(self, change: int) -> None:
        """Lose power in the middle of a change (1 is the next change): it raises ``PowerLoss``.

        Every later operation raises it too. ``FaultyDisk.crash`` or ``kill`` returns the disk for the next process.
        """
        self._power_loss_at = self.changes + change

    def begin_change(self, operation: str, path: Path | str) -> bool:
        """Count a change, and raise PowerLoss if it is the one in which power is lost; then as ``begin``."""
        if self.is_off:
            raise PowerLoss
        self.changes += 1
        if self.changes >= self._power_loss_at:
            self.is_off = True
            raise PowerLoss
        return self.begin(operation, path)

    def begin(self, operation: str, path: Path | str) -> bool:
        """Raise PowerLoss or the error of a fault, if one is due. True if the read or write must be short."""
        if self.is_off:
            raise PowerLoss
        for planned in self._planned:
            if planned.applies_to(operation, str(path), self._chance):
                self.on_fault(operation, str(path))
                if planned.fault.error:
                    raise system_error(planned.fault.error, path)
                return True
        return False


class FaultyDisk(MemoryDisk):
    """See the module. ``capacity_bytes``: the maximum size of all files together (ENOSPC); it may change at any time.

    ``faults``: what fails, and when the power is lost. Thread-safe, but reproducible from the seed only if the order of
    operations is fixed.
    """

    simulates_power_loss = True

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: float = inf,
        sector_bytes: int = SECTOR_BYTES,
        names: CachedNames | None = None,
    ) -> None:
        self._names: CachedNames = names or CachedNames()
        super().__init__(self._names)
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self._random = random.Random(seed)
        self.faults = FaultPlan(self._random)

    # Controls for tests ----------------------------------------------------------------------------------------------

    def for_next_process(self, *, is_power_lost: bool = False) -> FaultyDisk:
        return self.crash() if is_power_lost else self.kill()

    def crash(self) -> FaultyDisk:
        """A disk with the content that may be left after a power loss. Each call draws another one.

        The files of this disk do not change, but all later operations on it raise ``PowerLoss``.
        """

        def copy(file: MemoryFile) -> MemoryFile:
            return _cached(file).after_power_loss(
                self._random, self._random.choice(SURVIVAL_CHANCES), self.sector_bytes
            )

        with self._guard:
            seed, chance = self._random.getrandbits(64), self._random.choice(SURVIVAL_CHANCES)
            return _successor(self, seed, self._names.after_power_loss(self._random, chance, copy))

    def kill(self, others: Collection[int] = ()) -> FaultyDisk:
        """The disk for the next process when only this process was killed: nothing is lost, nothing becomes durable.

        ``others``: descriptors of other processes that go on. They stay valid on the returned disk.
        """
        with self._guard:
            successor = _successor(self, self._random.getrandbits(64), self._names)
            successor.open_files = self.open_files.only(others)
            return successor

    def used_bytes(self) -> int:
        """The size of all files together, including open files that were removed."""
        with self._guard:
            files = {id(node): node for node in (*self._names.files(), *self.open_files.nodes())}
            return sum(len(node.visible) for node in files.values() if isinstance(node, MemoryFile))

    # The interface of Disk -------------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        with self._guard:
            folder, name = self._names.locate(path)
            if not flags & (os.O_TRUNC if name in folder.visible else os.O_CREAT):
                self.faults.begin("open", path)
                return super().open(path, flags)
            self.faults.begin_change("open", path)
            fd = super().open(path, flags)
            self.faults.on_change("open", str(path))
            return fd

    def open_folder(self, path: Path) -> int:
        with self._guard:
            self.faults.begin("open_folder", path)
            return super().open_folder(path)

    def duplicate(self, fd: int) -> int:
        with self._guard:
            self.faults.begin("duplicate", self.open_files[fd].path)
            return super().duplicate(fd)

    def size(self, fd: int) -> int:
        with self._guard:
            self.faults.begin("size", self.open_files[fd].path)
            return super().size(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._guard:
            if self.faults.begin("read", self.open_files[fd].path) and size > 1:
                size = self._random.randrange(1, size)
            return super().read(fd, size, position)

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._guard:
            opened, size, was_off = self.open_files[fd], len(data), self.faults.is_off
            try:
                is_short = self.faults.begin_change("write", opened.path)
            except PowerLoss:
                if not was_off:  # a part of the write in which power is lost reaches the page cache
                    torn = _part_of_write(self, opened, position, size, self._random.randint(0, size))
                    opened.file.write(position, bytes(data[:torn]))
                raise
            if is_short and size > 1:
                size = _part_of_write(self, opened, position, size, self._random.randrange(1, size)) or size
            written = super().write(fd, data[: _room_for(self, opened, position, size)], position)
            self.faults.on_change("write", opened.path)
            return written

    def truncate(self, fd: int, size: int) -> None:
        with self._guard:
            path = self.open_files[fd].path
            self.faults.begin_change("truncate", path)
            super().truncate(fd, size)
            self.faults.on_change("truncate", path)

    def sync(self, fd: int) -> None:
        with self._guard:
            opened = self.open_files[fd]
            try:
                self.faults.begin_change("sync", opened.path)
            except OSError:
                chance = self._random.choice(SURVIVAL_CHANCES)
                _cached(opened.file).fail_sync(self._random, chance, self.sector_bytes)
                raise
            super().sync(fd)
            self.faults.on_change("sync", opened.path)

    def sync_folder(self, path: Path) -> None:
        with self._guard:
            self.faults.begin_change("sync_folder", path)
            super().sync_folder(path)
            self.faults.on_change("sync_folder", str(path))

    def make_folder(self, path: Path) -> None:
        """Each folder that is missing is a change."""
        with self._guard:
            for folder in (*reversed(path.parents), path):
                if super().kind(folder) == "nothing":
                    self.faults.begin_change("make_folder", path)
                    super().make_folder(folder)
                    self.faults.on_change("make_folder", str(path))
            super().make_folder(path)

    def names(self, path: Path) -> list[str]:
        with self._guard:
            self.faults.begin("names", path)
            return super().names(path)

    def kind(self, path: Path) -> Kind:
        with self._guard:
            self.faults.begin("kind", path)
            return super().kind(path)

    def lock(self, fd: int, *, hold: bool = True) -> None:
        with self._guard:
            self.faults.begin("lock", self.open_files[fd].path)
            super().lock(fd, hold=hold)

    def rename(self, source: Path, target: Path) -> None:
        with self._guard:
            self.faults.begin_change("rename", source)
            super().rename(source, target)
            self.faults.on_change("rename", f"{source} {target}")

    def link(self, source: Path, target: Path) -> None:
        with self._guard:
            self.faults.begin_change("link", target)
            super().link(source, target)
            self.faults.on_change("link", f"{source} {target}")

    def is_named(self, fd: int, path: Path) -> bool:
        with self._guard:
            self.faults.begin("is_named", self.open_files[fd].path)
            return super().is_named(fd, path)

    def drop_cached(self, fd: int) -> None:
        with self._guard:
            self.faults.begin("forget", self.open_files[fd].path)
            super().drop_cached(fd)

    def remove(self, path: Path) -> None:
        with self._guard:
            self.faults.begin_change("remove", path)
            super().remove(path)
            self.faults.on_change("remove", str(path))


def _successor(disk: FaultyDisk, seed: int, names: CachedNames) -> FaultyDisk:
    """Switch the disk off; the disk for the next process has these names, no faults and no open files."""
    disk.faults.is_off = True
    successor = FaultyDisk(seed, capacity_bytes=disk.capacity_bytes, sector_bytes=disk.sector_bytes, names=names)
    successor.faults.on_change = disk.faults.on_change
    return successor


def _part_of_write(disk: FaultyDisk, opened: OpenFile, position: int, size: int, part: int) -> int:
    """How much of a write is done when it is interrupted after ``part`` bytes.

    A write that appends may end anywhere. One within the file ends at a sector.
    """
    end = position + part
    is_within_file = position + size <= len(opened.file.visible)
    return max(0, end - end % disk.sector_bytes - position) if is_within_file and part < size else part


def _room_for(disk: FaultyDisk, opened: OpenFile, position: int, size: int) -> int:
    """How many of the bytes fit on the disk. ENOSPC if not a single one does."""
    visible_bytes = len(opened.file.visible)
    if disk.capacity_bytes == inf or position + size <= visible_bytes:
        return size
    end = visible_bytes + int(disk.capacity_bytes) - disk.used_bytes()
    if size and end <= position:
        raise system_error(errno.ENOSPC, opened.path)
    return min(size, end - position)


def _cached(file: MemoryFile) -> CachedFile:
    assert isinstance(file, CachedFile)
    return file
