"""Where a log lies: a local folder, or any place that pyarrow or fsspec opens by its URL, to be read there.

The log's readers work on a ``Disk``; ``RemoteDisk`` is one for object stores and the like, which can only read. What
writes (compaction) works on folders of this machine, or of all machines.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.disk.disk import Disk, read_file
from ..runtime.log.folder import INFO_NAME, parse_info
from ..runtime.log.partition import TOPIC
from ..runtime.log.reading.partition_reader import partition_of

_FOLDER = re.compile(rf"{re.escape(TOPIC)}-([0-9]{{1,9}})")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = re.compile(r"file:(?://)?(?=/)")


class RemoteDisk(Disk):
    """A file system of pyarrow's, for reading. A file is opened when it is read, since many are only counted."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self._sizes: dict[str, int] = {}
        self._paths: list[str] = []
        self._files: dict[int, Any] = {}

    def open(self, path: Path, flags: int) -> int:
        if flags != os.O_RDONLY:
            raise OSError(errno.EROFS, f"{path}: it can only be read where it lies")
        self._paths.append(str(path))
        return len(self._paths) - 1

    def close(self, fd: int) -> None:
        if fd in self._files:
            self._files.pop(fd).close()

    def size(self, fd: int) -> int:
        known = self._sizes.get(self._paths[fd])
        return self._file(fd).size() if known is None else known

    def read(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._file(fd).read_at(size, position))

    def names(self, path: Path) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        found = self._filesystem.get_file_info(FileSelector(str(path), allow_not_found=True))
        self._sizes.update((str(path / one.base_name), one.size) for one in found if one.type == FileType.File)
        return sorted(one.base_name for one in found)

    def _file(self, fd: int) -> Any:
        if fd not in self._files:
            self._files[fd] = self._filesystem.open_input_file(self._paths[fd])
        return self._files[fd]


class Log(NamedTuple):
    """The folders of a log's partitions by number; ``total``: how many there can be, None when it is not known."""

    disk: Disk
    folders: dict[int, Path]
    total: int | None

    def folder(self, number: int) -> Path | None:
        return self.folders.get(number)

    def numbers_of(self, partitions: frozenset[int] | None, groups: frozenset[str] | None) -> list[int]:
        """The partitions to look at, in order. With a known number those too that nothing was written to yet."""
        numbers = set(self.folders if self.total is None else range(self.total)) | self.folders.keys()
        if partitions is not None:
            numbers &= partitions
        if groups is not None and self.total is not None:
            numbers &= {partition_of(group, self.total) for group in groups}
        return sorted(numbers)


def find_log(path: str) -> Log:
    """The log in a data folder, in a log folder of Kafka's, or in the folder of one partition.

    FileNotFoundError where there is none, ValueError for a URL that nothing here opens, StartError for a data folder of
    a newer version.
    """
    disk, root = _open(path)
    names = disk.names(root)
    one = _FOLDER.fullmatch(root.name)
    if one and names:
        return Log(disk, {int(one[1]): root}, None)
    folders = {int(match[1]): root / match[0] for name in names if (match := _FOLDER.fullmatch(name))}
    if not folders and INFO_NAME not in names:
        is_there = bool(names) or (not isinstance(disk, RemoteDisk) and root.is_dir())
        found = f"neither {INFO_NAME} nor a folder {TOPIC}-N" if is_there else "no folder"
        raise FileNotFoundError(
            f"{path}: found {found}, expected the data folder of a server, or Kafka's; give the folder that holds those"
            " of the partitions"
        )
    total = None
    if INFO_NAME in names:
        info = root / INFO_NAME
        total = parse_info(info, read_file(disk, info)).offsets_partitions
    return Log(disk, dict(sorted(folders.items())), total)


def _open(path: str) -> tuple[Disk, Path]:
    local = _LOCAL.sub("", path, count=1)
    if not _URL.match(local):
        return Disk(), Path(local).absolute()
    filesystem, inside = _filesystem(local)
    return RemoteDisk(filesystem), Path(inside)


def _filesystem(url: str) -> tuple[Any, str]:
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
        raise ValueError(
            f"{url}: pyarrow does not open it ({reason}), nor does fsspec ({error}); expected a folder, a URL of"
            " pyarrow's (s3://, gs://, abfs://, hdfs://), or one of fsspec's with the package that it needs"
        ) from None
    return PyFileSystem(FSSpecHandler(filesystem)), inside
