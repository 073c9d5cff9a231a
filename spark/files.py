"""Finds a log in a local folder, or at a URL that pyarrow or fsspec can open.

The log's readers work on a ``Disk``; ``RemoteDisk`` is a read-only one for object stores and the like. Compaction
writes, so it works only on local or shared folders.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.cluster.engines import without_password
from ..runtime.disk.disk import Disk, read_file
from ..runtime.log.folder import INFO_NAME, parse_info
from ..runtime.log.partition import TOPIC
from ..runtime.log.reading.partition_reader import partition_of

_FOLDER = re.compile(rf"{re.escape(TOPIC)}-([0-9]{{1,9}})")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = re.compile(r"file:(?://)?(?=/)")


class RemoteDisk(Disk):
    """A read-only pyarrow file system. A file is opened at its first read, since of many only the size is needed."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self._sizes: dict[str, int] = {}
        self._paths: list[str] = []
        self._files: dict[int, Any] = {}

    def open(self, path: Path, flags: int) -> int:
        if flags != os.O_RDONLY:
            raise OSError(errno.EROFS, f"{path}: this file system is read-only")
        self._paths.append(str(path))
        return len(self._paths) - 1

    def close(self, fd: int) -> None:
        if fd in self._files:
            self._files.pop(fd).close()

    def size(self, fd: int) -> int:
        listed_size = self._sizes.get(self._paths[fd])
        return self._file(fd).size() if listed_size is None else listed_size

    def read(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._file(fd).read_at(size, position))

    def names(self, path: Path) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        infos = self._filesystem.get_file_info(FileSelector(str(path), allow_not_found=True))
        self._sizes.update((str(path / info.base_name), info.size) for info in infos if info.type == FileType.File)
        return sorted(info.base_name for info in infos)

    def files(self, path: Path, also: str = "") -> list[str]:
        """The paths of all files in a folder and the folders in it, without those that Spark ignores.

        ``also``: a name that Spark ignores and that is included.
        """
        from pyarrow.fs import FileSelector, FileType

        infos = self._filesystem.get_file_info(FileSelector(str(path), recursive=True, allow_not_found=True))
        files = (info for info in infos if info.type == FileType.File)
        return sorted(info.path for info in files if info.base_name[0] not in "._" or info.base_name == also)

    def _file(self, fd: int) -> Any:
        if fd not in self._files:
            self._files[fd] = self._filesystem.open_input_file(self._paths[fd])
        return self._files[fd]


class LogLocation(NamedTuple):
    """The folders of a log's partitions by number. ``partition_count`` is None if it is not known."""

    disk: Disk
    folders: dict[int, Path]
    partition_count: int | None

    def folder(self, number: int) -> Path | None:
        return self.folders.get(number)

    def partition_numbers(self, partitions: frozenset[int] | None, groups: frozenset[str] | None) -> list[int]:
        return partition_numbers(self.folders, self.partition_count, partitions, groups)


def partition_numbers(
    existing: Collection[int], count: int | None, partitions: frozenset[int] | None, groups: frozenset[str] | None
) -> list[int]:
    """The selected partitions, in order. With a known count this includes partitions that have no records yet."""
    numbers = set(existing) | set(range(count or 0))
    if partitions is not None:
        numbers &= partitions
    if groups is not None and count is not None:
        numbers &= {partition_of(group, count) for group in groups}
    return sorted(numbers)


def find_log(path: str) -> LogLocation:
    """Find the log in a data folder, in one of Kafka's log folders, or in the folder of one partition.

    Raises FileNotFoundError if there is none, ValueError for a URL that cannot be opened, StartError for a data folder
    of a newer version.
    """
    disk, root = _open(path)
    names = disk.names(root)
    partition = _FOLDER.fullmatch(root.name)
    if partition and names:
        return LogLocation(disk, {int(partition[1]): root}, None)
    folders = {int(match[1]): root / match[0] for name in names if (match := _FOLDER.fullmatch(name))}
    if not folders and INFO_NAME not in names:
        exists = bool(names) or (not isinstance(disk, RemoteDisk) and root.is_dir())
        description = f"neither {INFO_NAME} nor a folder {TOPIC}-N" if exists else "no folder"
        raise FileNotFoundError(
            f"{without_password(path)}: found {description}, expected the data folder of a server, or Kafka's; give the"
            " folder that contains the partitions' folders"
        )
    partition_count = None
    if INFO_NAME in names:
        info = root / INFO_NAME
        partition_count = parse_info(info, read_file(disk, info)).offsets_partitions
    return LogLocation(disk, dict(sorted(folders.items())), partition_count)


def _open(path: str) -> tuple[Disk, Path]:
    local = _LOCAL.sub("", path, count=1)
    if not is_url(local):
        return Disk(), Path(local).absolute()
    filesystem, inside = filesystem_of(local)
    return RemoteDisk(filesystem), Path(inside)


def is_url(path: str) -> bool:
    return bool(_URL.match(path))


def filesystem_of(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises ValueError if neither pyarrow nor fsspec can open it."""
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        return FileSystem.from_uri(url)  # type: ignore[no-any-return]
    except ArrowInvalid as error:
        reason = str(error)
    try:
        from fsspec.core import url_to_fs

        filesystem, inside = url_to_fs(url)
    except (ImportError, ValueError) as error:
        message = (
            f"{url}: neither pyarrow ({reason}) nor fsspec ({error}) can open it; expected a folder, a URL for"
            " pyarrow (s3://, gs://, abfs://, hdfs://), or one for fsspec with the package that it needs"
        )
        raise ValueError(message.replace(url, without_password(url))) from None
    return PyFileSystem(FSSpecHandler(filesystem)), inside
