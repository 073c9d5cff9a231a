"""What was found damaged since the log was opened, for the log file, metrics and people; and bytes that are put aside.

Damage is never cut and never silent: it stays where it is, what follows it counts, and it is listed here. What is cut
is the torn end of a file, behind which nothing good lies: its bytes are kept in a file beside it, in case somebody
knows better. Those files are small (what one crash left unfinished), they are never overwritten, and no code of ours
removes them: when there are many the log says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from ...common.logs import get_logger
from ...disk.disk import Disk, read_at, write_all
from ..format.errors import Damage

CONSEQUENCE = "what follows counts; groups whose records lay there are as they were before them"
ADVICE = "keep a copy of this file; put back an undamaged one while the server is stopped, or let it be"
TORN = ".torn-"
DAMAGED = ".damaged"
KEPT_BYTES_TOLD = 64 * 1024 * 1024  # from so many bytes put aside on, a start mentions them

_CHUNK_BYTES = 1024 * 1024

log = get_logger("callboard.log")


class Quarantine:
    """The damages of one open log, each told once. Any thread may add to it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Path, int], Damage] = {}
        self._lock = threading.Lock()

    def add(self, damage: Damage, consequence: str = CONSEQUENCE, advice: str = ADVICE) -> None:
        """Note a damage and, unless it is known, log it."""
        key = damage.path, damage.position
        with self._lock:
            is_known = key in self._found
            self._found[key] = damage
        if not is_known:
            log.error(
                "damage in the log",
                file=str(damage.path),
                byte=damage.position,
                bytes=damage.size,
                reason=damage.reason,
                lost_offsets=damage.lost,
                consequence=consequence,
                advice=advice,
            )

    def damages(self) -> list[Damage]:
        """All that was found, by file and position."""
        with self._lock:
            return sorted(self._found.values(), key=lambda damage: (damage.path, damage.position))


def put_aside(disk: Disk, path: Path, position: int, end: int, offset: int) -> Path | None:
    """Keep a file's bytes from ``position`` to ``end`` in ``<file>.torn-<offset>``, durably; None when all are zero.

    A file of that name is never overwritten: if it holds just these bytes it will do, else the name gets a number.
    """
    if not any(any(chunk) for chunk in _chunks(disk, path, position, end)):
        return None
    names = set(disk.names(path.parent))
    for number in count(1):
        target = path.with_name(f"{path.name}{TORN}{offset}" + (f".{number}" if number > 1 else ""))
        if target.name not in names:
            _copy(disk, path, position, end, target)
            return target
        if _is_same(disk, path, position, end, target):
            return target
    return None


def free_name(disk: Disk, path: Path, suffix: str) -> Path:
    """A name beside ``path`` that nobody has: with the suffix, and a number if that is taken."""
    names = set(disk.names(path.parent))
    candidates = (path.with_name(f"{path.name}{suffix}{number or ''}") for number in count())
    return next(candidate for candidate in candidates if candidate.name not in names)


def _copy(disk: Disk, path: Path, position: int, end: int, target: Path) -> None:
    fd = disk.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        written = 0
        for chunk in _chunks(disk, path, position, end):
            write_all(disk, fd, chunk, written)
            written += len(chunk)
        disk.sync(fd)
    except OSError:
        disk.remove(target)  # unfinished, it would only take room
        raise
    finally:
        disk.close(fd)
    disk.sync_folder(target.parent)


def _is_same(disk: Disk, path: Path, position: int, end: int, other: Path) -> bool:
    fd = disk.open(other, os.O_RDONLY)
    try:
        if disk.size(fd) != end - position:
            return False
    finally:
        disk.close(fd)
    pairs = zip(_chunks(disk, path, position, end), _chunks(disk, other, 0, end - position), strict=True)
    return all(mine == theirs for mine, theirs in pairs)


def _chunks(disk: Disk, path: Path, position: int, end: int) -> Iterator[bytes]:
    fd = disk.open(path, os.O_RDONLY)
    try:
        for at in range(position, end, _CHUNK_BYTES):
            yield read_at(disk, fd, min(_CHUNK_BYTES, end - at), at)
    finally:
        disk.close(fd)
