"""Registers the damage found in an open log, and copies bytes that are cut into quarantine files.

Damage is never cut and always reported: it stays where it is, readers skip it, and it is registered here. Only the torn
end of a file, without a valid batch in it, is cut. Its bytes are copied to a file beside it, in case a person can use
them. These files are small (the incomplete writes of one crash). They are never overwritten or removed; when they take
much room, a start logs a warning.
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

CONSEQUENCE = "later records are used; groups with records in the damage are as they were before these records"
ADVICE = "keep a copy of this file; replace it by an undamaged one while the server is stopped, or leave it"
TORN = ".torn-"
DAMAGED = ".damaged"
QUARANTINE_REPORTED_BYTES = 64 * 1024 * 1024  # a start warns about larger totals

_CHUNK_BYTES = 1024 * 1024

log = get_logger("callboard.log")


class DamageRegistry:
    """The damage of one open log, each logged once. Any thread may add to it."""

    def __init__(self) -> None:
        self._damages: dict[tuple[Path, int], Damage] = {}
        self._lock = threading.Lock()

    def add(self, damage: Damage, consequence: str = CONSEQUENCE, advice: str = ADVICE) -> None:
        """Register a damage, and log it if it is new."""
        key = damage.path, damage.position
        with self._lock:
            is_known = key in self._damages
            self._damages[key] = damage
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
        """All damage, by file and position."""
        with self._lock:
            return sorted(self._damages.values(), key=lambda damage: (damage.path, damage.position))


def quarantine_bytes(disk: Disk, path: Path, position: int, end: int, offset: int) -> Path | None:
    """Copy a file's bytes from ``position`` to ``end`` to ``<file>.torn-<offset>``, durably; None when all are zero.

    An existing file is never overwritten: if it has the same bytes it is returned, else the name gets a number.
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
    """An unused path beside ``path``: its name with the suffix, and a number if that name is used."""
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
        disk.remove(target)  # an incomplete copy has no use
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
    return all(chunk == other_chunk for chunk, other_chunk in pairs)


def _chunks(disk: Disk, path: Path, position: int, end: int) -> Iterator[bytes]:
    fd = disk.open(path, os.O_RDONLY)
    try:
        for at in range(position, end, _CHUNK_BYTES):
            yield read_at(disk, fd, min(_CHUNK_BYTES, end - at), at)
    finally:
        disk.close(fd)
