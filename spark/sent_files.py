"""Files that the driver reads and sends to the tasks, for workers that cannot open the log."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from ..runtime.disk.disk import Disk, read_file
from ..runtime.log.manifest import TRIES, ManifestError, generations, log_files, manifest_folder, manifest_name
from .files import LogLocation

SENT_BYTES_MAX = 512 * 1024 * 1024
"""The driver holds all files in memory while it sends them."""


class SentDisk(Disk):
    """A read-only disk of files in memory, by path."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents
        self._opened: list[bytes] = []

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
        return len(self._opened[fd])

    def read(self, fd: int, size: int, position: int) -> bytes:
        return self._opened[fd][position : position + size]

    def names(self, path: Path) -> list[str]:
        inside = [Path(name).relative_to(path).parts[0] for name in self._contents if Path(name).is_relative_to(path)]
        return sorted(set(inside))


def refuse_large(path: str, log_bytes: int) -> None:
    """Raise ValueError if the selected partitions are too large to be sent."""
    if log_bytes > SENT_BYTES_MAX:
        raise ValueError(
            f"files=driver would send {log_bytes:,} bytes of {path}, expected at most {SENT_BYTES_MAX:,}; select fewer"
            " partitions or groups, compact the log, or put it where the workers can open it"
        )


def copy_partitions(location: LogLocation, numbers: Sequence[int]) -> LogLocation:
    """The same partitions on a disk that can be sent. Raises OSError."""
    folders = {number: folder for number in numbers if (folder := location.folder(number)) is not None}
    contents: dict[str, bytes] = {}
    for folder in folders.values():
        contents |= _copy(location.disk, folder)
    return LogLocation(SentDisk(contents), folders, location.partition_count)


def _copy(disk: Disk, folder: Path) -> dict[str, bytes]:
    """The files of a partition at one moment: its manifest, and the segments that belong to it.

    A file that is missing though the manifest names it is missing in the copy too: the task reports it as damage.
    """
    for _ in range(TRIES):
        manifest, files = log_files(disk, folder)
        contents = {str(file.path): data for file in files if (data := _read_if_there(disk, file.path)) is not None}
        if manifest.generation:
            path = manifest_folder(folder) / manifest_name(manifest.generation)
            contents[str(path)] = _read_if_there(disk, path) or b""
        if generations(disk, folder)[-1:] in ([], [manifest.generation]):
            return contents
    raise ManifestError(f"{folder}: {TRIES} times a new manifest while its files were read")


def _read_if_there(disk: Disk, path: Path) -> bytes | None:
    try:
        return read_file(disk, path)
    except FileNotFoundError:
        return None
