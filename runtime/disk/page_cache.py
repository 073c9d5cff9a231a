"""Files and folders in memory as a page cache holds them: what is seen, what is durable, what a loss of power leaves.

The changes since the last sync are kept in order. After a loss of power each sector of a file holds what one of them
left there, or what was durable; its size is one of those that it had meanwhile. Of the changes of names any may have
arrived, but what builds upon another only with that one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

FileCopy: TypeAlias = "Callable[[CachedFile], CachedFile]"


class _Change(NamedTuple):
    """A write of ``data`` at ``position``; with None a change of the size to ``position``."""

    position: int
    data: bytes | None

    def size_after(self, size: int) -> int:
        return self.position if self.data is None else max(size, self.position + len(self.data))


class CachedFile:
    """``seen`` is what is read and written. Only ``sync`` makes it durable."""

    __slots__ = ("_durable", "_unsynced", "modified_ms", "seen")

    def __init__(self, durable: bytes | bytearray = b"", modified_ms: int = 0) -> None:
        self.seen = bytearray(durable)
        self.modified_ms = modified_ms
        self._durable = bytearray(durable)
        self._unsynced: list[_Change] = []

    def write(self, position: int, data: bytes) -> None:
        if data:
            _write(self.seen, position, data)
            self._unsynced.append(_Change(position, data))

    def truncate(self, size: int) -> None:
        _resize(self.seen, size)
        self._unsynced.append(_Change(size, None))

    def sync(self) -> None:
        """All changes become durable; not what a sync before has lost."""
        for position, data in self._unsynced:
            if data is None:
                _resize(self._durable, position)
            else:
                _write(self._durable, position, data)
        self._unsynced.clear()

    def lose(self, random: Random, chance: float, sector_bytes: int) -> None:
        """A sync has failed: what did not arrive is still seen, but counts as written. Only the size is not lost."""
        self._durable = self._left(random, chance, sector_bytes)
        self._unsynced.clear()
        if len(self._durable) != len(self.seen):
            self._unsynced.append(_Change(len(self.seen), None))

    def forget(self) -> None:
        """What counts as written is seen as it arrived; what is still to be written stays."""
        self.seen = bytearray(self._durable)
        for position, data in self._unsynced:
            if data is None:
                _resize(self.seen, position)
            else:
                _write(self.seen, position, data)

    def after_power_loss(self, random: Random, chance: float, sector_bytes: int) -> CachedFile:
        """The file as it is found. ``chance``: how likely a change arrived, from 0 to 1."""
        return CachedFile(self._left(random, chance, sector_bytes), self.modified_ms)

    def _left(self, random: Random, chance: float, sector_bytes: int) -> bytearray:
        left = bytearray(self._durable)
        if not self._unsynced:
            return left
        reached, size = self._size_left(random, chance, sector_bytes)
        stopped: set[int] = set()  # sectors that were written out for the last time
        for number, (position, data) in enumerate(self._unsynced):
            if data is not None:
                _write_some(left, position, data, stopped, random, chance, sector_bytes)
            elif number < reached:
                _resize(left, position)
                stopped = {sector for sector in stopped if sector * sector_bytes < position}
            else:  # its blocks are not freed yet, so what is written behind it later is nowhere to be seen
                stopped.update(range(-(-position // sector_bytes), len(left) // sector_bytes + 1))
        _resize(left, size)
        return left

    def _size_left(self, random: Random, chance: float, sector_bytes: int) -> tuple[int, int]:
        """How many changes of the size arrived, and the size, which may lie inside of the next write."""
        count = len(self._unsynced)
        reached = {0.0: 0, 1.0: count}.get(chance, random.randint(0, count))
        size = len(self._durable)
        for change in self._unsynced[:reached]:
            size = change.size_after(size)
        if chance > 0 and reached < count and self._unsynced[reached].data is not None:
            grown = self._unsynced[reached].size_after(size)
            size = min(grown, size + sector_bytes * random.randint(0, (grown - size) // sector_bytes))
        return reached, size


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _write_some(
    content: bytearray, position: int, data: bytes, stopped: set[int], random: Random, chance: float, sector_bytes: int
) -> None:
    """Those sectors of a write that arrive. Where one does not, nothing later does: that would hold this one too."""
    end = position + len(data)
    for sector in range(position // sector_bytes, -(-end // sector_bytes)):
        if sector in stopped or random.random() >= chance:
            stopped.add(sector)
            continue
        start, stop = max(position, sector * sector_bytes), min(end, (sector + 1) * sector_bytes)
        _write(content, start, data[start - position : stop - position])


class CachedFolder:
    """The names in a folder: as everybody sees them, and as they are durable."""

    __slots__ = ("durable", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = CachedFile | CachedFolder
Place = tuple[CachedFolder, str]
"""A folder, and a name in it, of which there need not be anything."""


class _NameChange(NamedTuple):
    """What a name stands for from now on, None for nothing; several names when they change together."""

    names: tuple[tuple[CachedFolder, str, Node | None], ...]

    def places(self) -> set[Place]:
        return {(folder, name) for folder, name, _ in self.names}


class CachedNames:
    """All folders, below a root that is always there. Errors are the system's."""

    def __init__(self, root: CachedFolder | None = None) -> None:
        self.root = root or CachedFolder()
        self._unsynced: list[_NameChange] = []

    def place(self, path: Path) -> Place:
        """The folder that the last name of a path is in, and that name."""
        *above, name = parts_of(path)
        return self._walk(above, path), name

    def folder(self, path: Path) -> CachedFolder:
        return self._walk(parts_of(path), path)

    def node(self, path: Path) -> Node:
        folder, name = self.place(path)
        return _existing(folder, name, path)

    def change(self, *names: tuple[CachedFolder, str, Node | None]) -> None:
        """Let names stand for something else, all of them together; not durable yet."""
        for folder, name, node in names:
            _put(folder.seen, name, node)
        self._unsynced.append(_NameChange(names))

    def sync(self, folder: CachedFolder) -> None:
        """The names in a folder become durable, and with them whatever they build upon."""
        wanted: set[Place] = set()
        left: list[_NameChange] = []
        synced: list[_NameChange] = []
        for change in reversed(self._unsynced):
            places = change.places()
            if wanted & places or any(each is folder for each, _ in places):
                wanted |= places
                synced.append(change)
            else:
                left.append(change)
        for change in reversed(synced):
            for where, name, node in change.names:
                _put(where.durable, name, node)
        self._unsynced = left[::-1]

    def after_power_loss(self, random: Random, chance: float, copy: FileCopy) -> CachedNames:
        """The folders as they are found. ``copy``: what becomes of a file, which is asked once for each."""
        return CachedNames(_Copier(self._arrived(random, chance), copy).folder(self.root))

    def files(self) -> Iterator[CachedFile]:
        """Those with a name; one with two names comes twice."""
        return _files(self.root)

    def _walk(self, names: list[str], path: Path) -> CachedFolder:
        folder = self.root
        for name in names:
            node = _existing(folder, name, path)
            if not isinstance(node, CachedFolder):
                raise system_error(errno.ENOTDIR, path)
            folder = node
        return folder

    def _arrived(self, random: Random, chance: float) -> dict[CachedFolder, dict[str, Node]]:
        """What the folders with unsynced changes hold after a loss of power."""
        arrived: dict[CachedFolder, dict[str, Node]] = {}
        lost: set[Place] = set()
        for change in self._unsynced:
            if lost & change.places() or random.random() >= chance:
                lost |= change.places()
                continue
            for folder, name, node in change.names:
                _put(arrived.setdefault(folder, dict(folder.durable)), name, node)
        return arrived


class _Copier:
    """Builds the folders that are found after a loss of power; a file of two names stays one file."""

    def __init__(self, arrived: dict[CachedFolder, dict[str, Node]], copy: FileCopy) -> None:
        self._arrived = arrived
        self._copy = copy
        self._files: dict[CachedFile, CachedFile] = {}

    def folder(self, old: CachedFolder) -> CachedFolder:
        new = CachedFolder()
        for name, node in self._arrived.get(old, old.durable).items():
            found = self.folder(node) if isinstance(node, CachedFolder) else self._file(node)
            new.seen[name] = new.durable[name] = found
        return new

    def _file(self, old: CachedFile) -> CachedFile:
        if old not in self._files:
            self._files[old] = self._copy(old)
        return self._files[old]


def system_error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def parts_of(path: Path) -> list[str]:
    return [part for part in str(path).split(os.sep) if part]


def _put(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _existing(folder: CachedFolder, name: str, path: Path) -> Node:
    if name not in folder.seen:
        raise system_error(errno.ENOENT, path)
    return folder.seen[name]


def _files(folder: CachedFolder) -> Iterator[CachedFile]:
    for node in folder.seen.values():
        if isinstance(node, CachedFolder):
            yield from _files(node)
        else:
            yield node
