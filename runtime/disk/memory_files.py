"""Files, folders and open files in memory. Errors are those of the operating system.

A subclass of ``MemoryFile`` and ``MemoryNames`` may also keep what is durable; here everything is, at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from pathlib import Path

FIRST_FD = 1_000_000  # higher than any real descriptor, so that a simulated one never refers to a real file


class MemoryFile:
    """``visible`` is the content for reads and writes."""

    __slots__ = ("visible",)

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.visible = bytearray(content)

    def write(self, position: int, data: bytes | memoryview) -> None:
        if data:
            write_at(self.visible, position, data)

    def truncate(self, size: int) -> None:
        resize(self.visible, size)

    def sync(self) -> None:
        """Make all changes durable."""

    def drop_cached(self) -> None:
        """Reread the clean pages from the durable content."""


class MemoryFolder:
    """The names in a folder."""

    __slots__ = ("visible",)

    def __init__(self) -> None:
        self.visible: dict[str, MemoryNode] = {}


MemoryNode = MemoryFile | MemoryFolder
FolderEntry = tuple[MemoryFolder, str]
"""A folder, and a name in it that need not exist."""

NameChange = tuple[MemoryFolder, str, MemoryNode | None]
"""The new node of a name in a folder, or None for no node."""


class MemoryNames:
    """The tree of all folders, below a root that always exists."""

    def __init__(self, root: MemoryFolder | None = None) -> None:
        self.root = root or MemoryFolder()

    def new_file(self) -> MemoryFile:
        """An empty file without a name."""
        return MemoryFile()

    def locate(self, path: Path) -> FolderEntry:
        """The folder of a path's last name, and that name."""
        *parents, name = parts_of(path)
        return self._walk(parents, path), name

    def folder(self, path: Path) -> MemoryFolder:
        return self._walk(parts_of(path), path)

    def node(self, path: Path) -> MemoryNode:
        folder, name = self.locate(path)
        return _existing(folder, name, path)

    def change(self, *changes: NameChange) -> None:
        """Change names atomically."""
        for folder, name, node in changes:
            put_name(folder.visible, name, node)

    def sync(self, folder: MemoryFolder) -> None:
        """Make the names in a folder durable."""

    def files(self) -> Iterator[MemoryFile]:
        """The files with a name. A file with two names is yielded twice."""
        return _files(self.root)

    def _walk(self, names: list[str], path: Path) -> MemoryFolder:
        folder = self.root
        for name in names:
            node = _existing(folder, name, path)
            if not isinstance(node, MemoryFolder):
                raise system_error(errno.ENOTDIR, path)
            folder = node
        return folder


class OpenFile:
    """An open file, shared by duplicates of its descriptor."""

    __slots__ = ("flags", "node", "path")

    def __init__(self, node: MemoryNode, path: str, flags: int) -> None:
        self.node = node
        self.path = path
        self.flags = flags

    @property
    def file(self) -> MemoryFile:
        if isinstance(self.node, MemoryFolder):
            raise system_error(errno.EISDIR, self.path)
        return self.node


class OpenFiles:
    """The open files by descriptor, and their locks. Descriptors are never used again."""

    def __init__(self, next_fd: int = FIRST_FD) -> None:
        self._files: dict[int, OpenFile] = {}
        self._locks: dict[MemoryNode, OpenFile] = {}
        self._next_fd = next_fd

    def __getitem__(self, fd: int) -> OpenFile:
        if fd not in self._files:
            raise OSError(errno.EBADF, f"file descriptor {fd} is not open on this disk")
        return self._files[fd]

    def add(self, opened: OpenFile) -> int:
        """A new descriptor of an open file."""
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._files[fd] = opened
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor. The last one of an open file releases its lock."""
        opened = self[fd]
        del self._files[fd]
        if self._locks.get(opened.node) is opened and opened not in self._files.values():
            del self._locks[opened.node]

    def lock(self, fd: int, hold: bool) -> None:
        opened = self[fd]
        if self._locks.setdefault(opened.node, opened) is not opened:
            raise system_error(errno.EAGAIN, opened.path)
        if not hold:
            del self._locks[opened.node]

    def nodes(self) -> list[MemoryNode]:
        return [opened.node for opened in self._files.values()]

    def only(self, fds: Collection[int]) -> OpenFiles:
        """These descriptors with their locks, as if all others were closed."""
        kept = OpenFiles(self._next_fd)
        for fd in fds:
            opened = kept._files[fd] = self[fd]
            if self._locks.get(opened.node) is opened:
                kept._locks[opened.node] = opened
        return kept


def system_error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def parts_of(path: Path) -> list[str]:
    return [part for part in str(path).split(os.sep) if part]


def write_at(content: bytearray, position: int, data: bytes | memoryview) -> None:
    """Write into a file's content; a gap before ``position`` is filled with zeros."""
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Cut a file's content, or extend it with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def put_name(names: dict[str, MemoryNode], name: str, node: MemoryNode | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _existing(folder: MemoryFolder, name: str, path: Path) -> MemoryNode:
    if name not in folder.visible:
        raise system_error(errno.ENOENT, path)
    return folder.visible[name]


def _files(folder: MemoryFolder) -> Iterator[MemoryFile]:
    for node in folder.visible.values():
        if isinstance(node, MemoryFolder):
            yield from _files(node)
        else:
            yield node
