"""The files of the flight recorder: segments of JSON lines in the folder ``events`` of a data folder.

A segment is named by the time when it was begun, in milliseconds since 1970. Nothing is synced: a crash of the machine
may lose the last lines, and leave a last line cut off.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ...actors.recorder.record import RebalanceRecord, as_json, from_json
from ..disk.disk import Disk, NotAFile, read_file
from ..disk.line_files import append_lines
from ..disk.named_files import named_files

FOLDER: Final = "events"
NAME = re.compile(r"([0-9]{20})\.jsonl")

SEGMENTS: Final = 16
"""A segment is full at this part of the limit, in bytes or in time, so that deletion is gradual."""


class EventLimits(Protocol):
    """The settings of the files."""

    @property
    def events_retention_bytes(self) -> int: ...

    @property
    def events_retention_ms(self) -> int: ...


class Segment(NamedTuple):
    """``begun_ms``: its name."""

    begun_ms: int
    size: int

    @property
    def file_name(self) -> str:
        return f"{self.begun_ms:020}.jsonl"


class EventFiles:
    """Appends records, and deletes the oldest segments. All methods block, and raise OSError."""

    def __init__(self, disk: Disk, data: Path, limits: EventLimits) -> None:
        """``data``: the data folder."""
        self._disk = disk
        self._folder = data / FOLDER
        self._limits = limits

    def append(self, records: Sequence[RebalanceRecord], now_ms: int) -> None:
        """``now_ms``: since 1970."""
        self._disk.make_folder(self._folder)
        segments = self._segments()
        lines = b"".join(json.dumps(as_json(record), separators=(",", ":")).encode() + b"\n" for record in records)
        last = segments.pop() if segments else Segment(now_ms, 0)
        if last.size and self._is_full(last, len(lines), now_ms):
            segments.append(last)
            last = Segment(max(now_ms, last.begun_ms + 1), 0)
        self._delete_oldest(segments, last, len(lines), now_ms)
        self._write(self._folder / last.file_name, lines)

    def _segments(self) -> list[Segment]:
        """Oldest first."""
        return [Segment(int(match[1]), size) for match, size in named_files(self._disk, self._folder, NAME)]

    def _is_full(self, segment: Segment, new_bytes: int, now_ms: int) -> bool:
        limits = self._limits
        is_large = segment.size + new_bytes > limits.events_retention_bytes // SEGMENTS
        return is_large or now_ms - segment.begun_ms > limits.events_retention_ms // SEGMENTS

    def _delete_oldest(self, segments: list[Segment], last: Segment, new_bytes: int, now_ms: int) -> None:
        """A segment ends when the next one begins."""
        size = sum(segment.size for segment in segments) + last.size + new_bytes
        for segment, following in pairwise([*segments, last]):
            is_old = now_ms - following.begun_ms > self._limits.events_retention_ms
            if not is_old and size <= self._limits.events_retention_bytes:
                return
            self._disk.remove(self._folder / segment.file_name)
            size -= segment.size

    def _write(self, path: Path, lines: bytes) -> None:
        fd = self._disk.open(path, os.O_RDWR | os.O_CREAT)
        try:
            append_lines(self._disk, fd, self._disk.size(fd), lines)
        finally:
            self._disk.close(fd)


def read_records(data: Path, group_id: str, on_skipped: Callable[[Path, str], None]) -> Iterator[RebalanceRecord]:
    """The records of a group in the files of a data folder, the newest first. Damaged lines are skipped.

    ``on_skipped`` gets the path of what has the name of a file and is none, and what it is. A server may write and
    delete files meanwhile. Raises OSError.
    """
    disk, folder = Disk(follows_links=True), data / FOLDER
    for name in filter(NAME.fullmatch, reversed(disk.names(folder))):
        try:
            lines = read_file(disk, folder / name).split(b"\n")
        except FileNotFoundError:  # deleted meanwhile
            continue
        except NotAFile as error:
            on_skipped(folder / name, error.found)
            continue
        yield from filter(None, (_read_line(line, group_id) for line in reversed(lines)))


def _read_line(line: bytes, group_id: str) -> RebalanceRecord | None:
    try:
        fields: Any = json.loads(line)
        if isinstance(fields, dict) and fields.get("group_id") == group_id:
            return from_json(fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None
