"""Files that the driver reads and sends to the tasks, for workers that cannot open the log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..runtime.disk.disk import Disk, read_at
from ..runtime.log.manifest import TRIES, LogFile, ManifestError, generations, log_files, manifest_folder, manifest_name
from .files import LogLocation
from .scan import FilePosition

SENT_BYTES_MAX = 512 * 1024 * 1024
"""The driver holds all files in memory while it sends them."""


class SentFile(NamedTuple):
    """The bytes of a file from ``start`` on."""

    data: bytes
    start: int = 0


class OffsetRange(NamedTuple):
    """Offsets of one log partition, from ``first`` up to ``end``. ``start_hint``: a known position before them."""

    number: int
    first: int
    end: int
    start_hint: FilePosition | None


class SentDisk(Disk):
    """A read-only disk of files in memory, by path."""

    def __init__(self, contents: dict[str, SentFile]) -> None:
        self._contents = contents
        self._opened: list[SentFile] = []

    def open(self, path: Path, flags: int) -> int:
        if flags != os.O_RDONLY:
            raise OSError(errno.EROFS, f"{path}: files that were sent are read-only")
        if str(path) not in self._contents:
            raise FileNotFoundError(errno.ENOENT, "the driver has not sent it", str(path))
        self._opened.append(self._contents[str(path)])
        return len(self._opened) - 1

    def close(self, fd: int) -> None:
        """Nothing to release."""

    def size(self, fd: int) -> int:
        data, start = self._opened[fd]
        return start + len(data)

    def read(self, fd: int, size: int, position: int) -> bytes:
        data, start = self._opened[fd]
        if position < start:
            raise OSError(errno.EINVAL, f"byte {position} was not sent; the file was sent from byte {start} on")
        return data[position - start : position - start + size]

    def names(self, path: Path) -> list[str]:
        inside = [Path(name).relative_to(path).parts[0] for name in self._contents if Path(name).is_relative_to(path)]
        return sorted(set(inside))


class SentLimit:
    """Counts the bytes that are sent for a query, or for a batch of a stream. ``path``: as messages show it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._bytes = 0

    def add(self, size: int) -> None:
        """Raises ValueError for too many."""
        self._bytes += size
        if self._bytes > SENT_BYTES_MAX:
            raise ValueError(
                f"files=driver would send {self._bytes:,} bytes of {self._path}, expected at most {SENT_BYTES_MAX:,};"
                " select fewer partitions or groups, give a stream rowsPerTrigger, compact the log, or put it where the"
                " workers can open it"
            )


def copy_partitions(location: LogLocation, numbers: Sequence[int]) -> LogLocation:
    """The same partitions on a disk that can be sent. Raises OSError."""
    folders = {number: folder for number in numbers if (folder := location.folder(number)) is not None}
    contents: dict[str, SentFile] = {}
    for folder in folders.values():
        contents |= _copy(location.disk, folder, lambda files: dict.fromkeys(files, 0))
    return LogLocation(SentDisk(contents), folders, location.partition_count)


def copy_ranges(location: LogLocation, ranges: Sequence[OffsetRange], limit: SentLimit) -> LogLocation:
    """What is needed to read these ranges, on such a disk. Raises OSError, and ValueError beyond the limit."""
    folders: dict[int, Path] = {}
    contents: dict[str, SentFile] = {}
    for offset_range in ranges:
        if (folder := location.folder(offset_range.number)) is not None:
            folders[offset_range.number] = folder
            copied = _copy(location.disk, folder, partial(starts, offset_range=offset_range))
            limit.add(sum(len(file.data) for file in copied.values()))
            contents |= copied
    return LogLocation(SentDisk(contents), folders, location.partition_count)


def starts(files: Sequence[LogFile], offset_range: OffsetRange) -> dict[LogFile, int]:
    """The files that may have offsets of the range, each with the first byte that is read of it."""
    _, first, end, hint = offset_range
    positions = {}
    for file, next_file in zip(files, [*files[1:], None], strict=True):
        if file.base < end and (next_file is None or next_file.base > first):
            is_hinted = hint is not None and hint.name == file.path.name and not file.is_closed
            positions[file] = hint.position if hint is not None and is_hinted else 0
    return positions


def _copy(
    disk: Disk, folder: Path, starts_of: Callable[[Sequence[LogFile]], dict[LogFile, int]]
) -> dict[str, SentFile]:
    """Files of a partition at one moment: its manifest, and segments that belong to it, each from some byte on.

    A file that is missing though the manifest names it is missing in the copy too: the task reports it as damage.
    """
    for _ in range(TRIES):
        manifest, files = log_files(disk, folder)
        read = {file: _read_if_there(disk, file.path, start) for file, start in starts_of(files).items()}
        contents = {str(file.path): sent for file, sent in read.items() if sent is not None}
        if manifest.generation:
            path = manifest_folder(folder) / manifest_name(manifest.generation)
            contents[str(path)] = _read_if_there(disk, path) or SentFile(b"")
        if generations(disk, folder)[-1:] in ([], [manifest.generation]):
            return contents
    raise ManifestError(f"{folder}: {TRIES} times a new manifest while its files were read")


def _read_if_there(disk: Disk, path: Path, start: int = 0) -> SentFile | None:
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return SentFile(read_at(disk, fd, disk.size(fd) - start, start), start)
    finally:
        disk.close(fd)
