"""A disk in memory, for a coordinator without a folder. Nothing outlives the process.

Files have no permissions, and there are no symbolic links.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from .disk import Disk, Kind
from .memory_files import MemoryFile, MemoryFolder, MemoryNames, MemoryNode, OpenFile, OpenFiles, parts_of, system_error


class MemoryDisk(Disk):
    """See the module. ``names``: the folders and files that it has from the beginning. Thread-safe."""

    is_real = False
    ahead_bytes = 4096  # more gains nothing in memory

    def __init__(self, names: MemoryNames | None = None) -> None:
        super().__init__()
        self.open_files = OpenFiles()
        self._names = names or MemoryNames()
        self._guard = threading.RLock()

    def for_next_process(self, *, is_power_lost: bool = False) -> MemoryDisk:
        """The same files for the next process: none is open or locked. This disk must not be used any more.

        ``is_power_lost``: without the changes that a power loss loses, only if ``simulates_power_loss``.
        """
        assert not is_power_lost, "this disk does not simulate a power loss"
        return MemoryDisk(self._names)

    def open(self, path: Path, flags: int) -> int:
        with self._guard:
            folder, name = self._names.locate(path)
            node = folder.visible.get(name)
            if node is not None and flags & os.O_CREAT and flags & os.O_EXCL:
                raise system_error(errno.EEXIST, path)
            if isinstance(node, MemoryFolder):
                raise system_error(errno.EISDIR, path)
            if node is None:
                if not flags & os.O_CREAT:
                    raise system_error(errno.ENOENT, path)
                node = self._names.new_file()
                self._names.change((folder, name, node))
            elif flags & os.O_TRUNC:
                node.truncate(0)
            return self.open_files.add(OpenFile(node, str(path), flags))

    def open_folder(self, path: Path) -> int:
        with self._guard:
            return self.open_files.add(OpenFile(self._names.folder(path), str(path), os.O_RDONLY))

    def set_mode(self, fd: int, mode: int | None = None) -> None:
        """Files in memory have no permissions. EBADF if the descriptor is not open."""
        _ = self.open_files[fd]

    def duplicate(self, fd: int) -> int:
        with self._guard:
            return self.open_files.add(self.open_files[fd])

    def close(self, fd: int) -> None:
        with self._guard:
            self.open_files.close(fd)

    def size(self, fd: int) -> int:
        with self._guard:
            return len(self.open_files[fd].file.visible)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._guard:
            return bytes(memoryview(self.open_files[fd].file.visible)[position : position + size])

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._guard:
            opened = self.open_files[fd]
            if opened.flags & os.O_ACCMODE == os.O_RDONLY:
                raise system_error(errno.EBADF, opened.path)
            opened.file.write(position, data)
            return len(data)

    def truncate(self, fd: int, size: int) -> None:
        with self._guard:
            self.open_files[fd].file.truncate(size)

    def sync(self, fd: int) -> None:
        with self._guard:
            self.open_files[fd].file.sync()

    def sync_folder(self, path: Path) -> None:
        with self._guard:
            self._names.sync(self._names.folder(path))

    def make_folder(self, path: Path) -> None:
        with self._guard:
            folder = self._names.root
            for name in parts_of(path):
                node = folder.visible.get(name)
                if node is None:
                    node = MemoryFolder()
                    self._names.change((folder, name, node))
                if not isinstance(node, MemoryFolder):
                    raise system_error(errno.EEXIST if name == path.name else errno.ENOTDIR, path)
                folder = node

    def names(self, path: Path) -> list[str]:
        with self._guard:
            try:
                return sorted(self._names.folder(path).visible)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def kind(self, path: Path) -> Kind:
        with self._guard:
            try:
                is_root = not parts_of(path)
                return "folder" if is_root or isinstance(self._names.node(path), MemoryFolder) else "file"
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"

    def lock(self, fd: int, *, hold: bool = True) -> None:
        with self._guard:
            self.open_files.lock(fd, hold)

    def rename(self, source: Path, target: Path) -> None:
        with self._guard:
            (old_folder, old_name), (folder, name) = self._names.locate(source), self._names.locate(target)
            node = self._names.node(source)
            _refuse_to_replace(folder.visible.get(name), node, target)
            if folder.visible.get(name) is not node:  # POSIX: renaming a file to another name of itself does nothing
                self._names.change((old_folder, old_name, None), (folder, name, node))

    def link(self, source: Path, target: Path) -> None:
        with self._guard:
            node = self._names.node(source)
            folder, name = self._names.locate(target)
            if name in folder.visible:
                raise system_error(errno.EEXIST, target)
            if isinstance(node, MemoryFolder):
                raise system_error(errno.EPERM, source)
            self._names.change((folder, name, node))

    def is_named(self, fd: int, path: Path) -> bool:
        with self._guard:
            opened = self.open_files[fd]
            try:
                return self._names.node(path) is opened.node
            except (FileNotFoundError, NotADirectoryError):
                return False

    def drop_cached(self, fd: int) -> None:
        with self._guard:
            self.open_files[fd].file.drop_cached()

    def remove(self, path: Path) -> None:
        with self._guard:
            folder, name = self._names.locate(path)
            if isinstance(self._names.node(path), MemoryFolder):
                raise system_error(errno.EISDIR, path)
            self._names.change((folder, name, None))


def _refuse_to_replace(old: MemoryNode | None, new: MemoryNode, path: Path) -> None:
    """A rename may put a file over a file, and a folder over an empty one."""
    if isinstance(old, MemoryFolder) and old is not new:
        if not isinstance(new, MemoryFolder):
            raise system_error(errno.EISDIR, path)
        if old.visible:
            raise system_error(errno.ENOTEMPTY, path)
    elif isinstance(old, MemoryFile) and isinstance(new, MemoryFolder):
        raise system_error(errno.ENOTDIR, path)
