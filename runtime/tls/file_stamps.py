"""Stamps of files, by which it is noticed that they have changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Changes when a file or its permissions change, and when it is replaced. ``size``: -1 if there is no file."""

    inode: int
    modified_ns: int
    size: int
    mode: int = 0
    user: int = 0
    group: int = 0


def stamps_of(paths: Iterable[Path]) -> tuple[FileStamp, ...]:
    return tuple(map(_stamp_of, paths))


def _stamp_of(path: Path) -> FileStamp:
    try:
        status = path.stat()
    except OSError:
        return FileStamp(0, 0, -1)
    return FileStamp(status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid, status.st_gid)
