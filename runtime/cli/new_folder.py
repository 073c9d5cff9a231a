"""A new folder, which has its name only when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..common.errors import StartError
from ..disk.disk import Disk

UNFINISHED = ".incomplete"


def check_destination(path: Path, name: str) -> None:
    """Raise StartError unless a folder can be created at the path, or there is an empty one, which is replaced."""
    real = Path(os.path.realpath(path))
    if real.exists() and not (real.is_dir() and not any(real.iterdir())):
        kind = "a folder that is not empty" if real.is_dir() else "a file"
        raise StartError(f"bad {name} '{path}': found {kind}, expected an empty folder, or none")
    check_replaceable(path, name)
    if not real.parent.is_dir():
        raise StartError(f"bad {name} '{path}': found no folder {real.parent}; create it first")


def check_replaceable(path: Path, name: str) -> None:
    """Raise StartError for an empty folder that no other one can replace, so that no copy ends with it."""
    real = Path(os.path.realpath(path))
    kind = "the mount point of a disk" if os.path.ismount(real) else "the current folder"
    if os.path.ismount(real) or real == Path(os.path.realpath(".")):
        raise StartError(f"bad {name} '{path}': found {kind}, which cannot be replaced; give a new folder in it")


@contextmanager
def make_new_folder(disk: Disk, target: Path) -> Iterator[Path]:
    """The folder to fill, beside ``target``. After the block it is there under the name ``target``, durably.

    If the block fails it is removed. Raises OSError; StartError if there is something under its first name: another
    run may be writing it, or it is the user's.
    """
    real = Path(os.path.realpath(target))
    temporary = real.with_name(real.name + UNFINISHED)
    if os.path.lexists(temporary):
        raise StartError(f"{temporary}: found it, of a run that was killed or has not ended; remove it, then try again")
    try:
        disk.make_folder(temporary)
        yield temporary
        disk.rename(temporary, real)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    try:
        disk.sync_folder(real.parent)
    except BaseException:
        shutil.rmtree(real, ignore_errors=True)
        raise
