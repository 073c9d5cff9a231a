"""Files and folders in memory, as a page cache holds them: visible content, durable content, content after a crash.

The changes since the last sync are kept in order. After a power loss each sector of a file holds its durable content or
that after one of the changes, and the size is one of the sizes since the last sync. Any change of a name may survive,
but a change that depends on another one only together with it.
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
    """A write of ``data`` at ``position``; if ``data`` is None, a change of the size to ``position``."""

    position: int
    data: bytes | None

    def size_after(self, size: int) -> int:
        return self.position if self.data is None else max(size, self.position + len(self.data))


class CachedFile:
    """``visible`` is the content for reads and writes. Only ``sync`` makes it durable."""

    __slots__ = ("_durable", "_unsynced", "modified_ms", "visible")

    def __init__(self, durable: bytes | bytearray = b"", modified_ms: int = 0) -> None:
        self.visible = bytearray(durable)
        self.modified_ms = modified_ms
        self._durable = bytearray(durable)
        self._unsynced: list[_Change] = []

    def write(self, position: int, data: bytes) -> None:
        if data:
            _write(self.visible, position, data)
            self._unsynced.append(_Change(position, data))

    def truncate(self, size: int) -> None:
        _resize(self.visible, size)
        self._unsynced.append(_Change(size, None))

    def sync(self) -> None:
        """Make all changes durable, except for those that a failed sync has lost."""
        for position, data in self._unsynced:
            if data is None:
                _resize(self._durable, position)
            else:
                _write(self._durable, position, data)
        self._unsynced.clear()

    def fail_sync(self, random: Random, chance: float, sector_bytes: int) -> None:
        """A sync has failed: lost data stays visible but counts as written. The size is not lost."""
        self._durable = self._surviving_content(random, chance, sector_bytes)
        self._unsynced.clear()
        if len(self._durable) != len(self.visible):
            self._unsynced.append(_Change(len(self.visible), None))

    def drop_cached(self) -> None:
        """Reread data that counts as written from the durable content; keep the unsynced changes."""
        self.visible = bytearray(self._durable)
        for position, data in self._unsynced:
            if data is None:
                _resize(self.visible, position)
            else:
                _write(self.visible, position, data)

    def after_power_loss(self, random: Random, chance: float, sector_bytes: int) -> CachedFile:
        """The file after a power loss. ``chance``: the probability that a change survives."""
        return CachedFile(self._surviving_content(random, chance, sector_bytes), self.modified_ms)

    def _surviving_content(self, random: Random, chance: float, sector_bytes: int) -> bytearray:
        content = bytearray(self._durable)
        if not self._unsynced:
            return content
        reached, size = self._surviving_size(random, chance, sector_bytes)
        stopped: set[int] = set()  # sectors that were written out for the last time
        for number, (position, data) in enumerate(self._unsynced):
            if data is not None:
                _write_some(content, position, data, stopped, random, chance, sector_bytes)
            elif number < reached:
                _resize(content, position)
                stopped = {sector for sector in stopped if sector * sector_bytes < position}
            else:  # a lost truncation has not freed its blocks, so later writes behind it do not survive either
                stopped.update(range(-(-position // sector_bytes), len(content) // sector_bytes + 1))
        _resize(content, size)
        return content

    def _surviving_size(self, random: Random, chance: float, sector_bytes: int) -> tuple[int, int]:
        """How many changes of the size survive, and the size, which may be inside of the next write."""
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
    """Apply the sectors of a write that survive. After a lost sector no later write of it survives either."""
    end = position + len(data)
    for sector in range(position // sector_bytes, -(-end // sector_bytes)):
        if sector in stopped or random.random() >= chance:
            stopped.add(sector)
            continue
        start, stop = max(position, sector * sector_bytes), min(end, (sector + 1) * sector_bytes)
        _write(content, start, data[start - position : stop - position])


class CachedFolder:
    """The names in a folder: the visible ones and the durable ones."""

    __slots__ = ("durable", "visible")

    def __init__(self) -> None:
        self.visible: dict[str, CachedNode] = {}
        self.durable: dict[str, CachedNode] = {}


CachedNode = CachedFile | CachedFolder
FolderEntry = tuple[CachedFolder, str]
"""A folder, and a name in it that need not exist."""


class _NameChange(NamedTuple):
    """An atomic change of one or more names: folder, name, and the new node, or None for no node."""

    names: tuple[tuple[CachedFolder, str, CachedNode | None], ...]

    def entries(self) -> set[FolderEntry]:
        return {(folder, name) for folder, name, _ in self.names}


class CachedNames:
    """The tree of all folders, below a root that always exists. Errors are those of the operating system."""

    def __init__(self, root: CachedFolder | None = None) -> None:
        self.root = root or CachedFolder()
        self._unsynced: list[_NameChange] = []

    def locate(self, path: Path) -> FolderEntry:
        """The folder of a path's last name, and that name."""
        *parents, name = parts_of(path)
        return self._walk(parents, path), name

    def folder(self, path: Path) -> CachedFolder:
        return self._walk(parts_of(path), path)

    def node(self, path: Path) -> CachedNode:
        folder, name = self.locate(path)
        return _existing(folder, name, path)

    def change(self, *names: tuple[CachedFolder, str, CachedNode | None]) -> None:
        """Change names atomically; not durable yet."""
        for folder, name, node in names:
            _put(folder.visible, name, node)
        self._unsynced.append(_NameChange(names))

    def sync(self, folder: CachedFolder) -> None:
        """Make the names in a folder durable, and all earlier changes that they depend on."""
        required: set[FolderEntry] = set()
        unsynced: list[_NameChange] = []
        synced: list[_NameChange] = []
        for change in reversed(self._unsynced):
            entries = change.entries()
            if required & entries or any(parent is folder for parent, _ in entries):
                required |= entries
                synced.append(change)
            else:
                unsynced.append(change)
        for change in reversed(synced):
            for parent, name, node in change.names:
                _put(parent.durable, name, node)
        self._unsynced = unsynced[::-1]

    def after_power_loss(self, random: Random, chance: float, copy: FileCopy) -> CachedNames:
        """The folders after a power loss. ``copy``: makes the file after the power loss; called once for each file."""
        return CachedNames(_Copier(self._surviving_names(random, chance), copy).folder(self.root))

    def files(self) -> Iterator[CachedFile]:
        """The files with a name. A file with two names is yielded twice."""
        return _files(self.root)

    def _walk(self, names: list[str], path: Path) -> CachedFolder:
        folder = self.root
        for name in names:
            node = _existing(folder, name, path)
            if not isinstance(node, CachedFolder):
                raise system_error(errno.ENOTDIR, path)
            folder = node
        return folder

    def _surviving_names(self, random: Random, chance: float) -> dict[CachedFolder, dict[str, CachedNode]]:
        """The names in all folders with unsynced changes after a power loss."""
        surviving: dict[CachedFolder, dict[str, CachedNode]] = {}
        lost: set[FolderEntry] = set()
        for change in self._unsynced:
            if lost & change.entries() or random.random() >= chance:
                lost |= change.entries()
                continue
            for folder, name, node in change.names:
                _put(surviving.setdefault(folder, dict(folder.durable)), name, node)
        return surviving


class _Copier:
    """Builds the folders after a power loss. A file with two names stays one file."""

    def __init__(self, surviving: dict[CachedFolder, dict[str, CachedNode]], copy: FileCopy) -> None:
        self._surviving = surviving
        self._copy = copy
        self._files: dict[CachedFile, CachedFile] = {}

    def folder(self, old: CachedFolder) -> CachedFolder:
        new = CachedFolder()
        for name, node in self._surviving.get(old, old.durable).items():
            copied = self.folder(node) if isinstance(node, CachedFolder) else self._file(node)
            new.visible[name] = new.durable[name] = copied
        return new

    def _file(self, old: CachedFile) -> CachedFile:
        if old not in self._files:
            self._files[old] = self._copy(old)
        return self._files[old]


def system_error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def parts_of(path: Path) -> list[str]:
    return [part for part in str(path).split(os.sep) if part]


def _put(names: dict[str, CachedNode], name: str, node: CachedNode | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _existing(folder: CachedFolder, name: str, path: Path) -> CachedNode:
    if name not in folder.visible:
        raise system_error(errno.ENOENT, path)
    return folder.visible[name]


def _files(folder: CachedFolder) -> Iterator[CachedFile]:
    for node in folder.visible.values():
        if isinstance(node, CachedFolder):
            yield from _files(node)
        else:
            yield node
