"""ValueLog: the values of a folder of keys in one file that only grows, for processes of one machine.

A value is durable after one write and one sync of an allocated file. A lock of the system orders the processes; it ends
with its process. Each record has a checksum that begins with random bytes of the file, so no bytes in a value are read
as a record. Records follow each other, so the first one that is not whole is the end. When most of a file is deleted
values, the others are copied to the next file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import NamedTuple

from ...disk.crc import crc32c
from ...disk.disk import Disk, read_at, write_all

SUFFIX = ".values"
LOCK = "lock"
LOCK_WAIT_S = 4.0
LOCK_POLL_S = 0.002
DELETED_BYTES_MAX = 4 * 1024 * 1024
SALT_BYTES = 16
SHORT_BYTES = 256 * 1024  # written to the page cache in about 50 us

_HEAD = Struct(">BIIH")  # kind, checksum of the rest, length of the value, length of the name
_COVERED = Struct(">BIH")


class Kind(IntEnum):
    """Of a record. No record begins with a zero byte, as the space that is allocated ahead does."""

    VALUE = 1
    DELETED = 2
    COMPLETE = 3  # the file has everything that the one before it had
    MOVED = 4  # there may be a next file; processes that have this one open look for it


class Place(NamedTuple):
    """Where a value is in the file."""

    position: int
    size: int


class BegunCreate(NamedTuple):
    """A value that is written, but not durable. ``end``: to be called with the error of the file's sync, or None."""

    fd: int
    end: Callable[[OSError | None], None]


class ValueLog:
    """Methods block, raise OSError, and may be called by several threads. ``folder`` exists when a value is stored."""

    def __init__(self, folder: Path, disk: Disk, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._folder = folder
        self._disk = disk
        self._random_bytes = random_bytes
        self._guard = Lock()
        self._lock_fd: int | None = None
        self._file: _File | None = None
        self._failure: OSError | None = None

    def create(self, name: str, value: bytes) -> bool:
        with self._locked(for_writing=True) as file:
            if name in file.places:
                return False
            self._append(file, file.record(Kind.VALUE, name, value))
            return True

    def begin_create(self, name: str, value: bytes) -> BegunCreate | None:
        """Write a new value, and leave its sync to the caller. Nobody else uses the log before it has ended.

        Does not block: None, and nothing is done, if the log is in use, another process has changed it, the value is
        large or exists, or space has to be allocated. Then use ``create``.
        """
        if not self._guard.acquire(blocking=False):
            return None
        with ExitStack() as locks:
            locks.callback(self._guard.release)
            file, lock_fd = self._file, self._lock_fd
            if file is None or lock_fd is None or self._failure is not None:
                return None
            try:
                self._disk.lock(lock_fd)
            except OSError:
                return None
            locks.callback(self._disk.lock, lock_fd, hold=False)
            if name in file.places or not file.has_room(len(name) + len(value)) or file.has_grown():
                return None
            record = file.record(Kind.VALUE, name, value)
            try:
                file.write(record, must_sync=False)
            except OSError:
                self._cut(file)
                return None
            held_locks = locks.pop_all()
        return BegunCreate(file.fd, partial(self._end_create, file, record, held_locks))

    def _end_create(self, file: _File, record: bytes, locks: ExitStack, error: OSError | None) -> None:
        with locks:
            if error is None:
                file.apply(record)
            else:
                self._cut(file)

    def put(self, name: str, value: bytes) -> None:
        with self._locked(for_writing=True) as file:
            self._append(file, file.record(Kind.VALUE, name, value))

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        with self._locked() as file:
            return [file.value(name) for name in names]

    def names(self) -> list[str]:
        with self._locked() as file:
            return list(file.places)

    def delete(self, names: Iterable[str]) -> None:
        """Not durable: a deleted value may be back after a power loss."""
        with self._locked() as file:
            records = b"".join(file.record(Kind.DELETED, name, b"") for name in names if name in file.places)
            if records:
                self._append(file, records, must_sync=False)
            if file.deleted_bytes > max(DELETED_BYTES_MAX, 4 * file.value_bytes):
                self._move(file)

    def sync(self) -> None:
        """What a ``get`` has returned may be of a process that died before its sync."""
        with self._locked() as file:
            file.sync()

    def close(self) -> None:
        with self._guard:
            self._close_file()
            if self._lock_fd is not None:
                self._disk.close(self._lock_fd)
                self._lock_fd = None

    # The file --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, *, for_writing: bool = False) -> Iterator[_File]:
        """The newest file, and nobody else changes it."""
        with self._guard:
            if self._failure is not None:
                raise self._failure
            if self._lock_fd is None:
                if not for_writing and self._disk.kind(self._folder / LOCK) == "nothing":
                    yield _File(self._disk)
                    return
                self._lock_fd = self._disk.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT)
            self._lock(self._lock_fd)
            try:
                yield self._newest()
            finally:
                self._disk.lock(self._lock_fd, hold=False)

    def _lock(self, fd: int) -> None:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                self._disk.lock(fd)
                return
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(LOCK_POLL_S)

    def _newest(self) -> _File:
        if self._file is None or self._file.has_grown():
            self._close_file()
            self._file = self._read() or self._make(1, {})
        return self._file

    def _read(self) -> _File | None:
        """The newest complete file. A process may have died before it completed a newer one, or removed an older."""
        paths = [self._folder / name for name in self._disk.names(self._folder) if name.endswith(SUFFIX)]
        newest = None
        for path in reversed(paths):
            file = None if newest is not None else _read_file(self._disk, path)
            if file is None:
                self._disk.remove(path)
            else:
                newest = file
        return newest

    def _make(self, number: int, values: dict[str, bytes]) -> _File:
        path = self._folder / f"{number:010d}{SUFFIX}"
        fd = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        file = _File(self._disk, fd, number, self._random_bytes(SALT_BYTES))
        try:
            records = [file.record(Kind.VALUE, name, value) for name, value in values.items()]
            content = b"".join((file.salt, *records, file.record(Kind.COMPLETE, "", b"")))
            write_all(self._disk, fd, content, 0)
            file.apply(content[SALT_BYTES:])
            file.sync()
            self._disk.sync_folder(self._folder)
        except BaseException:
            file.close()
            raise
        return file

    def _append(self, file: _File, records: bytes, *, must_sync: bool = True) -> None:
        try:
            file.write(records, must_sync=must_sync)
        except OSError:
            self._cut(file)
            raise
        file.apply(records)

    def _cut(self, file: _File) -> None:
        """After a failed sync the system takes the pages for written, so nobody may read them."""
        try:
            file.cut()
        except OSError as error:
            self._failure = error

    def _move(self, file: _File) -> None:
        """Copy the values to the next file, and remove this one."""
        values = {name: value for name in file.places if (value := file.value(name)) is not None}
        self._append(file, file.record(Kind.MOVED, "", b""), must_sync=False)
        following = self._make(file.number + 1, values)
        self._close_file()
        self._file = following
        self._disk.remove(self._folder / f"{file.number:010d}{SUFFIX}")

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _File:
    """An open file, and the places of its values. ``end``: behind the last whole record."""

    def __init__(self, disk: Disk, fd: int = -1, number: int = 0, salt: bytes = b"", allocated: int = 0) -> None:
        self.number = number
        self.salt = salt
        self.places: dict[str, Place] = {}
        self.end = SALT_BYTES
        self.value_bytes = 0
        self.fd = fd
        self._disk = disk
        self._allocated = allocated

    @property
    def deleted_bytes(self) -> int:
        return self.end - self.value_bytes

    def record(self, kind: Kind, name: str, value: bytes) -> bytes:
        encoded = name.encode()
        checksum = _checksum(self.salt, kind, encoded, value)
        return b"".join((_HEAD.pack(kind, checksum, len(value), len(encoded)), encoded, value))

    def has_grown(self) -> bool:
        """Whether another process has written behind the end."""
        return self._disk.read(self.fd, 1, self.end) not in (b"", b"\0")

    def apply(self, records: bytes) -> bool:
        """Apply records that are in the file at ``end``. Returns whether the file is complete."""
        is_complete, start = False, self.end
        for kind, name, value_at, size in _whole_records(records, self.salt):
            old = self.places.pop(name, None)
            self.value_bytes -= 0 if old is None else old.size
            if kind == Kind.VALUE:
                self.places[name] = Place(start + value_at, size)
                self.value_bytes += size
            is_complete = is_complete or kind == Kind.COMPLETE
            self.end = start + value_at + size
        return is_complete

    def value(self, name: str) -> bytes | None:
        place = self.places.get(name)
        return None if place is None else read_at(self._disk, self.fd, place.size, place.position)

    def has_room(self, size: int) -> bool:
        """Whether a value and its name of this size together are written in microseconds."""
        return size <= SHORT_BYTES and self.end + _HEAD.size + size <= self._allocated

    def write(self, records: bytes, *, must_sync: bool) -> None:
        end = self.end + len(records)
        if end > self._allocated:
            self._allocate(end)
        write_all(self._disk, self.fd, records, self.end)
        if must_sync:
            self.sync()

    def _allocate(self, end: int) -> None:
        """A sync of a file that grows takes longer."""
        self._allocated = end
        with suppress(OSError):
            write_all(self._disk, self.fd, bytes(self._disk.ahead_bytes), end)
            self._allocated = end + self._disk.ahead_bytes

    def cut(self) -> None:
        """Remove what is behind the last whole record."""
        self._disk.truncate(self.fd, self.end)
        self._allocated = self.end

    def sync(self) -> None:
        if self.fd >= 0:
            self._disk.sync(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)


def _read_file(disk: Disk, path: Path) -> _File | None:
    """None if it is not complete."""
    fd = disk.open(path, os.O_RDWR)
    content = read_at(disk, fd, disk.size(fd), 0)
    file = _File(disk, fd, int(path.name.removesuffix(SUFFIX)), content[:SALT_BYTES], len(content))
    if not file.apply(content[SALT_BYTES:]):
        file.close()
        return None
    if file.has_grown():
        file.cut()
    return file


def _checksum(salt: bytes, kind: int, name: bytes, value: bytes | memoryview) -> int:
    return crc32c(value, crc32c(name, crc32c(_COVERED.pack(kind, len(value), len(name)), crc32c(salt))))


def _whole_records(records: bytes, salt: bytes) -> Iterator[tuple[int, str, int, int]]:
    """The kind and name of each record up to the first one that is not whole, and where its value is."""
    view, position = memoryview(records), 0
    while position + _HEAD.size <= len(records) and records[position]:
        kind, checksum, value_size, name_size = _HEAD.unpack_from(records, position)
        value_at = position + _HEAD.size + name_size
        name = records[position + _HEAD.size : value_at]
        if checksum != _checksum(salt, kind, name, view[value_at : value_at + value_size]):
            return
        yield kind, name.decode(), value_at, value_size
        position = value_at + value_size
