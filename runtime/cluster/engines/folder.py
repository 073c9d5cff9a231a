"""A store in a folder that all nodes share: one file per key, on a local disk, NFS or another POSIX file system.

A value is written to a file in ``.temporary`` and synced. ``create`` links it to its name, which fails if the name
exists; ``put`` renames it. Then the folder is synced. A temporary file is locked while its process works on it, so the
next process knows those that dead ones left. If a lock is lost on the way, at worst a file is removed too early: then
``create`` finds nothing to link and has no effect. No key may be the folder of another key.

NFS must be mounted with ``noac,lookupcache=none``. Otherwise a node may see the files of others late.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

from ....actors.text import format_count
from ...common.errors import StartError
from ...common.thread_pool import ThreadPool
from ...disk.disk import Disk, write_all
from ..store import StoreRefused, StoreUnavailable, check_key
from .operations import Operations

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_S = 5.0
POLL_S = 0.1
THREADS = 8

TEMPORARY = ".temporary"
CHANGES = ".changes"
"""Its content changes with every announcement. No key begins with a dot."""

REFUSED = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP),
        *(errno.EEXIST, errno.ENAMETOOLONG, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK),
    )
)
"""Errors that stay until somebody changes permissions, names or the mount. A full disk may get space again."""


def open_store(url: str, client: str) -> FolderStore:
    """The store in the folder of a URL like ``file:///shared/callboard``. The folder must exist before its first use.

    ``client`` is part of the names of temporary files. Raises StartError.
    """
    return FolderStore(Folder(folder_of(url), Disk(), f"{client}-{secrets.token_hex(8)}"))


def folder_of(url: str) -> Path:
    """The path in a URL. Raises StartError."""
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc or parts.query or parts.fragment or path.parts[1:] == ():
        raise StartError(f"{url!r} names no folder; expected the absolute path of one, like file:///shared/callboard")
    return path


class Folder:
    """The blocking half: the operations of a store on files. Thread-safe. Methods raise OSError.

    ``name`` is part of the names of temporary files. No other process may have it.
    """

    def __init__(self, root: Path, disk: Disk, name: str) -> None:
        self.root = root
        self._disk = disk
        self._name = name
        self._numbers = count()
        self._guard = Lock()
        self._is_prepared = False
        self._durable: set[Path] = set()  # folders whose names in their parents are synced
        self._read: set[Path] = set()  # folders of values that were read since the last sync

    def create(self, key: str, value: bytes) -> bool:
        path = self.new_path(key)
        with self._temporary_file(value) as temporary:
            try:
                self._disk.link(temporary, path)
            except FileExistsError:
                return False
            self._disk.sync_folder(path.parent)
        return True

    def put(self, key: str, value: bytes) -> None:
        path = self.new_path(key)
        with self._temporary_file(value) as temporary:
            self._disk.rename(temporary, path)
            self._disk.sync_folder(path.parent)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        self._prepare()
        return [self._value(self.root / key) for key in keys]

    def list(self, prefix: str, after: str) -> list[str]:
        self._prepare()
        folder = prefix.rpartition("/")[0]
        return sorted(key for key in self._walk(folder) if key.startswith(prefix) and key > after)

    def delete(self, keys: Sequence[str]) -> None:
        self._prepare()
        paths = [self.root / key for key in keys]
        for path in paths:
            with suppress(FileNotFoundError):
                self._disk.remove(path)
        for folder in {path.parent for path in paths}:
            if self._disk.kind(folder) == "folder":
                self._disk.sync_folder(folder)

    def sync(self) -> None:
        """A value is visible before its creator has synced the folder."""
        with self._guard:
            folders, self._read = self._read, set()
        try:
            for folder in folders:
                self._make_folder(folder)
                self._disk.sync_folder(folder)
        except OSError:
            with self._guard:
                self._read |= folders
            raise

    def announce_change(self) -> None:
        self._prepare()
        with self._temporary_file(f"{self._name}-{next(self._numbers)}".encode()) as temporary:
            self._disk.rename(temporary, self.root / CHANGES)

    def last_change(self) -> bytes | None:
        """What the newest announcement wrote; None if there was none."""
        self._prepare()
        return self._content(self.root / CHANGES)

    def is_there(self) -> bool:
        return self._disk.kind(self.root) == "folder"

    def forget_folders(self) -> None:
        """Somebody has removed a folder that this process has made."""
        with self._guard:
            self._durable.clear()
            self._is_prepared = False

    def _prepare(self) -> None:
        """The root is never made here: where a share is not mounted, that would begin a second cluster."""
        if self._is_prepared:
            return
        if not self.is_there():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.root))
        self._make_folder(self.root / TEMPORARY)
        for name in self._disk.names(self.root / TEMPORARY):
            self._remove_if_dead(self.root / TEMPORARY / name)
        self._is_prepared = True

    def _remove_if_dead(self, path: Path) -> None:
        with suppress(OSError):
            fd = self._disk.open(path, os.O_RDWR)
            try:
                self._disk.lock(fd)
                self._disk.remove(path)
            finally:
                self._disk.close(fd)

    def new_path(self, key: str) -> Path:
        """The path of a key, whose folder is made if it is missing."""
        self._prepare()
        path = self.root / key
        self._make_folder(path.parent)
        return path

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root, and sync the names that lead to it. Another process may just have made it."""
        if folder == self.root or folder in self._durable:
            return
        self._make_folder(folder.parent)
        self._disk.make_folder(folder)
        self._disk.sync_folder(folder.parent)
        with self._guard:
            self._durable.add(folder)

    @contextmanager
    def _temporary_file(self, value: bytes) -> Iterator[Path]:
        path, fd = self._locked_file()
        try:
            write_all(self._disk, fd, value, 0)
            self._disk.sync(fd)
            yield path
        finally:
            with suppress(OSError):  # a rename has removed it, or the next process will
                self._disk.remove(path)
            self._disk.close(fd)

    def _locked_file(self) -> tuple[Path, int]:
        """A new temporary file. Before it is locked it looks like one of a dead process, and may be removed."""
        while True:
            path = self.root / TEMPORARY / f"{self._name}-{next(self._numbers)}"
            fd = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                self._disk.lock(fd)
                if self._disk.is_named(fd, path):
                    return path, fd
            except BlockingIOError:
                pass
            except OSError:
                self._disk.close(fd)
                raise
            self._disk.close(fd)

    def _value(self, path: Path) -> bytes | None:
        value = self._content(path)
        if value is not None:
            with self._guard:
                self._read.add(path.parent)
        return value

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._read_file(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _read_file(self, path: Path) -> bytes:
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            size = self._disk.size(fd)
            content = b""
            while len(content) < size:
                piece = self._disk.read(fd, size - len(content), len(content))
                if not piece:
                    raise OSError(errno.EIO, "the file is shorter than its size", str(path))
                content += piece
            return content
        finally:
            self._disk.close(fd)

    def _walk(self, folder: str) -> Iterator[str]:
        """The keys below a folder, given as the beginning of a key without its last slash."""
        for name in self._disk.names(self.root / folder):
            key = f"{folder}/{name}" if folder else name
            kind = "nothing" if name.startswith(".") else self._disk.kind(self.root / key)
            if kind == "file":
                yield key
            elif kind == "folder":
                yield from self._walk(key)


class FolderStore:
    """A ``Store``. The work is done in threads, because a network file system may block for long."""

    def __init__(self, folder: Folder, limit_s: float = LIMIT_S) -> None:
        self._folder = folder
        self._operations = Operations(f"the folder {folder.root}", limit_s)
        self._threads = ThreadPool(THREADS, "callboard-store")
        self._seen_change: bytes | None = None
        self._limit_s = limit_s

    async def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        return await self._operations.run(f"create of {key}", self._call(self._folder.create, key, value))

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._operations.run(
            f"get of {format_count(len(keys), 'key')}", self._call(self._folder.get, keys)
        )

    async def put(self, key: str, value: bytes) -> None:
        check_key(key)
        await self._operations.run(f"put of {key}", self._call(self._folder.put, key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await self._operations.run(f"list of {prefix}", self._call(self._folder.list, prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._operations.run(f"delete of {format_count(len(keys), 'key')}", self._call(self._folder.delete, keys))

    async def sync(self) -> None:
        await self._operations.run("sync", self._call(self._folder.sync))

    async def announce_change(self) -> None:
        await self._operations.run("announcement", self._call(self._folder.announce_change))

    async def wait_for_change(self, timeout_s: float) -> None:
        await self._operations.run("wait", self._wait_for_change(timeout_s), timeout_s + self._limit_s)

    async def close(self) -> None:
        await self._operations.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_change(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while (change := await self._call(self._folder.last_change)) == self._seen_change and loop.time() < end:
            await asyncio.sleep(min(POLL_S, max(0.0, end - loop.time())))
        self._seen_change = change

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            try:
                return function(*args, **kwargs)
            except OSError as error:
                raise self._translated(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _translated(self, error: OSError) -> StoreUnavailable | StoreRefused:
        root = self._folder.root
        if error.errno == errno.ENOENT:
            self._folder.forget_folders()
            if not self._folder.is_there():
                return StoreRefused(
                    f"there is no folder {root}; mount the file system that all nodes share, and make it there once"
                )
        if error.errno in REFUSED:
            return StoreRefused(
                f"the folder {root} refused an operation: {error}; it must be writable and support hard links and locks"
            )
        return StoreUnavailable(f"an operation on the folder {root} failed: {error}")
