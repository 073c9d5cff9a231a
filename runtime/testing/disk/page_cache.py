"""Files and folders in memory, as a page cache holds them: visible content, durable content, content after a crash.

The changes since the last sync are kept in order. After a power loss each sector of a file holds its durable content or
that after one of the changes, and the size is one of the sizes since the last sync. Any change of a name may survive,
but a change that depends on another one only together with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ...disk.memory_files import (
    FolderEntry,
    MemoryFile,
    MemoryFolder,
    MemoryNames,
    MemoryNode,
    NameChange,
    put_name,
    resize,
    write_at,
)

FileCopy = Callable[[MemoryFile], MemoryFile]


class _Change(NamedTuple):
    """A write of ``data`` at ``position``; if ``data`` is None, a change of the size to ``position``."""

    position: int
    data: bytes | None

    def size_after(self, size: int) -> int:
        return self.position if self.data is None else max(size, self.position + len(self.data))


class CachedFile(MemoryFile):
    """``visible`` is the content for reads and writes. Only ``sync`` makes it durable."""

    __slots__ = ("_durable", "_unsynced")

    def __init__(self, durable: bytes | bytearray = b"") -> None:
        super().__init__(durable)
        self._durable = bytearray(durable)
        self._unsynced: list[_Change] = []

    def write(self, position: int, data: bytes | memoryview) -> None:
        super().write(position, data)
        if data:
            self._unsynced.append(_Change(position, bytes(data)))

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._unsynced.append(_Change(size, None))

    def sync(self) -> None:
        """Make all changes durable, except for those that a failed sync has lost."""
        for position, data in self._unsynced:
            if data is None:
                resize(self._durable, position)
            else:
                write_at(self._durable, position, data)
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
                resize(self.visible, position)
            else:
                write_at(self.visible, position, data)

    def after_power_loss(self, random: Random, chance: float, sector_bytes: int) -> CachedFile:
        """The file after a power loss. ``chance``: the probability that a change survives."""
        return CachedFile(self._surviving_content(random, chance, sector_bytes))

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
                resize(content, position)
                stopped = {sector for sector in stopped if sector * sector_bytes < position}
            else:  # a lost truncation has not freed its blocks, so later writes behind it do not survive either
                stopped.update(range(-(-position // sector_bytes), len(content) // sector_bytes + 1))
        resize(content, size)
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
        write_at(content, start, data[start - position : stop - position])


DurableNames = dict[MemoryFolder, dict[str, MemoryNode]]
"""The durable names of each folder that has any."""


class _AtomicChange(NamedTuple):
    """Changes of names that are done together."""

    names: tuple[NameChange, ...]

    def entries(self) -> set[FolderEntry]:
        return {(folder, name) for folder, name, _ in self.names}


class CachedNames(MemoryNames):
    """The names that are seen, and the durable ones. Only ``sync`` makes a name durable."""

    def __init__(self, root: MemoryFolder | None = None, durable: DurableNames | None = None) -> None:
        super().__init__(root)
        self._durable: DurableNames = durable or {}
        self._unsynced: list[_AtomicChange] = []

    def new_file(self) -> CachedFile:
        return CachedFile()

    def change(self, *changes: NameChange) -> None:
        super().change(*changes)
        self._unsynced.append(_AtomicChange(changes))

    def sync(self, folder: MemoryFolder) -> None:
        """Make the names in a folder durable, and all earlier changes that they depend on."""
        required: set[FolderEntry] = set()
        unsynced: list[_AtomicChange] = []
        synced: list[_AtomicChange] = []
        for change in reversed(self._unsynced):
            entries = change.entries()
            if required & entries or any(parent is folder for parent, _ in entries):
                required |= entries
                synced.append(change)
            else:
                unsynced.append(change)
        for change in reversed(synced):
            for parent, name, node in change.names:
                put_name(self._durable.setdefault(parent, {}), name, node)
        self._unsynced = unsynced[::-1]

    def after_power_loss(self, random: Random, chance: float, copy: FileCopy) -> CachedNames:
        """The folders after a power loss. ``copy``: makes the file after the power loss; called once for each file."""
        copier = _Copier({**self._durable, **self._surviving_names(random, chance)}, copy)
        return CachedNames(copier.folder(self.root), copier.durable)

    def _surviving_names(self, random: Random, chance: float) -> DurableNames:
        """The names in all folders with unsynced changes after a power loss."""
        surviving: DurableNames = {}
        lost: set[FolderEntry] = set()
        for change in self._unsynced:
            if lost & change.entries() or random.random() >= chance:
                lost |= change.entries()
                continue
            for folder, name, node in change.names:
                put_name(surviving.setdefault(folder, dict(self._durable.get(folder, {}))), name, node)
        return surviving


class _Copier:
    """Builds the folders after a power loss, and their durable names. A file with two names stays one file."""

    def __init__(self, surviving: Mapping[MemoryFolder, Mapping[str, MemoryNode]], copy: FileCopy) -> None:
        self.durable: DurableNames = {}
        self._surviving = surviving
        self._copy = copy
        self._files: dict[MemoryFile, MemoryFile] = {}

    def folder(self, old: MemoryFolder) -> MemoryFolder:
        new = MemoryFolder()
        for name, node in self._surviving.get(old, {}).items():
            new.visible[name] = self.folder(node) if isinstance(node, MemoryFolder) else self._file(node)
        self.durable[new] = dict(new.visible)
        return new

    def _file(self, old: MemoryFile) -> MemoryFile:
        if old not in self._files:
            self._files[old] = self._copy(old)
        return self._files[old]
