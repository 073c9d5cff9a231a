"""Permissions of new files in a data folder.

A server gives its files the mode of ``--file-mode``, and its lock file too when it starts. Other programs that create
files in the folder (compaction, repair, history) use the mode of the lock file. So a compactor that runs as another
user of the group leaves files that the group can read.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from .disk import FILE_MODE, Disk

_MODE_SOURCES = (".lock", "callboard.json", "")
"""The files of a data folder whose mode the server sets, then the folder itself."""


def disk_like(folder: Path) -> Disk:
    """A disk whose new files get the mode of the files in this folder; 0600 if there is no such folder."""
    return Disk(file_mode_of(folder))


def file_mode_of(folder: Path) -> int:
    """The mode for new files in a folder, from its existing files. The owner may always read and write."""
    for name in _MODE_SOURCES:
        with suppress(OSError):
            return stat.S_IMODE(os.stat(folder / name).st_mode) & 0o666 | FILE_MODE
    return FILE_MODE


def copy_owner_and_mode(source: Path, target: Path) -> None:
    """Give ``target`` the mode of ``source`` and, where this process may, its owner and group. OSError."""
    expected, actual = os.stat(source), os.stat(target, follow_symlinks=False)
    if (expected.st_uid, expected.st_gid) != (actual.st_uid, actual.st_gid):
        with suppress(PermissionError):
            os.chown(target, expected.st_uid, expected.st_gid, follow_symlinks=False)
    if os.stat(target, follow_symlinks=False).st_mode != expected.st_mode:  # no call where there are no modes
        os.chmod(target, stat.S_IMODE(expected.st_mode))
