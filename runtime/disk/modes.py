"""Permissions of what is made in a data folder.

A server gives its files the mode of ``--file-mode``, and its lock file too when it starts. Other programs that make
files in the folder (compaction, repair, history) follow that file. So a compactor that runs as another user of the
group leaves files that the group can read.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from .disk import FILE_MODE, Disk

_WITNESSES = (".lock", "callboard.json", "")
"""The files of a data folder whose mode its server has set, then the folder itself."""


def disk_like(folder: Path) -> Disk:
    """A disk whose new files have the mode that the files of this folder have; 0600 where there is no such folder."""
    return Disk(file_mode_of(folder))


def file_mode_of(folder: Path) -> int:
    """The mode for new files in a folder, by those that are there. Its owner always reads and writes."""
    for name in _WITNESSES:
        with suppress(OSError):
            return stat.S_IMODE(os.stat(folder / name).st_mode) & 0o666 | FILE_MODE
    return FILE_MODE


def copy_owner_and_mode(source: Path, target: Path) -> None:
    """Give ``target`` the mode of ``source`` and, where this process may, its owner and group. OSError."""
    wanted, found = os.stat(source), os.stat(target, follow_symlinks=False)
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        with suppress(PermissionError):
            os.chown(target, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
    os.chmod(target, stat.S_IMODE(wanted.st_mode))
