"""Reads the files of the audit trail, the newest line first, a page at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..disk.disk import Disk, read_at
from .audit_file import FILE_NAME

CHUNK_BYTES: Final = 65_536
PAGE_BYTES_MAX: Final = 1_000_000
"""A page ends after so many bytes of lines, also if it has fewer lines than were asked for."""

_NAME: Final = re.compile(re.escape(FILE_NAME) + r"(?:\.([0-9]{1,9}))?")


class Place(NamedTuple):
    """The beginning of a line. ``first_id``: the id of the first line of its file, which no other file has."""

    first_id: str
    position: int


class AuditPage(NamedTuple):
    """Lines, the newest first. ``after``: the place of the last one if there are older ones."""

    lines: tuple[Mapping[str, Any], ...]
    after: Place | None


class PlaceGone(Exception):
    """The file of a place is not there any more."""


def read_audit(disk: Disk, folder: Path, limit: int, after: Place | None = None) -> AuditPage:
    """The lines before a place, or the newest ones. Blocks. Raises PlaceGone, and OSError."""
    lines: list[Mapping[str, Any]] = []
    last, read_bytes = None, 0
    for place, data in _older_lines(disk, folder, after):
        if len(lines) == limit or (lines and read_bytes + len(data) > PAGE_BYTES_MAX):
            return AuditPage(tuple(lines), last)
        line = _parse(data)
        if line is not None:
            lines.append(line)
            last, read_bytes = place, read_bytes + len(data)
    return AuditPage(tuple(lines), None)


def _older_lines(disk: Disk, folder: Path, after: Place | None) -> Iterator[tuple[Place, bytes]]:
    is_found = after is None
    seen: set[str] = set()
    with ExitStack() as stack:
        for path in _paths(disk, folder):
            try:
                fd = disk.open(path, os.O_RDONLY)
            except FileNotFoundError:  # it was rotated meanwhile
                continue
            stack.callback(disk.close, fd)
            first_id = _first_id(disk, fd)
            if first_id in seen:
                continue
            seen.add(first_id)
            end = disk.size(fd)
            if after is not None and first_id == after.first_id:
                is_found, end = True, min(after.position, end)
            if is_found:
                yield from ((Place(first_id, start), line) for start, line in _lines_before(disk, fd, end))
    if not is_found:
        raise PlaceGone


def _paths(disk: Disk, folder: Path) -> list[Path]:
    """The newest file first."""
    found = {int(match[1] or 0): name for name in disk.names(folder) if (match := _NAME.fullmatch(name))}
    return [folder / found[number] for number in sorted(found)]


def _first_id(disk: Disk, fd: int) -> str:
    line = _parse(read_at(disk, fd, 1024, 0).partition(b', "kind"')[0] + b"}")
    return str(line.get("id", "")) if line else ""


def _lines_before(disk: Disk, fd: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The position and the content of each line, the last one first."""
    rest = b""
    while end:
        start = max(0, end - CHUNK_BYTES)
        lines = (read_at(disk, fd, end - start, start) + rest).split(b"\n")
        end, rest = start, lines[0]
        position = start + sum(len(line) + 1 for line in lines)
        for line in reversed(lines[1:]):
            position -= len(line) + 1
            yield position, line
    yield 0, rest


def _parse(data: bytes) -> Mapping[str, Any] | None:
    """None for what is no line, such as the beginning of one that is being written."""
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
