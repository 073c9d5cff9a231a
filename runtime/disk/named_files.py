"""The files in a folder whose names have a pattern. Anything else there is left out, so that it holds nothing up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .disk import Disk, NotAFile, file_size


class NamedFile(NamedTuple):
    """``match``: of the name. ``size``: in bytes."""

    match: re.Match[str]
    size: int


def named_files(disk: Disk, folder: Path, pattern: re.Pattern[str]) -> Iterator[NamedFile]:
    """By name. FIFOs, sockets, devices and folders are left out. Raises OSError."""
    for match in filter(None, map(pattern.fullmatch, disk.names(folder))):
        path = folder / match[0]
        try:
            if disk.kind(path) != "folder":
                yield NamedFile(match, file_size(disk, path))
        except NotAFile:
            continue
