"""The journal: one write and one sync make a round durable for all partitions together.

Fifty partition files would be fifty syncs; one file is one (ten times the commits a second). A file is frames::

    each frame   length uint32, CRC-32C uint32, then its content
    the first    "CBJ1", then for each partition with records: partition int32, its end offset int64
    every other  a round, for each batch: partition int32, size uint32, the batch with its final offset

The first says from which offsets on this file holds everything, and it is synced before the file is used. So recovery
knows what the partition files may have lost and get back, even when rounds were lost with them.

The files are ``journal/%020d.journal``. A file is filled with zeros ahead of the frames, because a sync after
overwriting costs a third to a half less than one after growing (ext4: 105 against 160 us), and because a length of
zero marks the end. What a torn write leaves there does not check out, and that is the end as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from .crc import crc32c
from .disk import Disk, write_all

FOLDER = "journal"
MARK = b"CBJ1"  # also keeps the first frame of an empty log from being empty
ZEROS = bytes(1024 * 1024)  # as good as larger steps, and a millisecond is all that a round ever waits for one

_FRAME = Struct(">II")
_START = Struct(">iq")
_BATCH = Struct(">iI")
_NAME = re.compile(r"(\d{20})\.journal")


def journal_name(number: int) -> str:
    return f"{number:020d}.journal"


def journal_number(name: str) -> int | None:
    """The number in a file name; None when it is not the name of a journal."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_frame(batches: Sequence[tuple[int, bytes]]) -> bytes:
    """The frame of one round's (partition, batch) pairs; not empty."""
    parts: list[bytes] = []
    for partition, batch in batches:
        parts.append(_BATCH.pack(partition, len(batch)))
        parts.append(batch)
    return _frame(b"".join(parts))


class Extent(NamedTuple):
    """What a journal file holds.

    ``starts``: from which offset on, by partition, 0 for one that is not named; None when the file was never used,
    because its first frame is not good. Rounds lie between ``rounds_at`` and ``good_bytes``; behind them are
    ``torn_bytes`` of something else.
    """

    starts: dict[int, int] | None
    rounds_at: int
    good_bytes: int
    torn_bytes: int


def measure(data: bytes) -> Extent:
    """Find the end of the good frames: the first that does not check out."""
    view = memoryview(data)
    is_journal = view[_FRAME.size : _FRAME.size + len(MARK)] == MARK
    rounds_at = at = (_frame_end(view, 0) or 0) if is_journal else 0
    while at and (end := _frame_end(view, at)) is not None:
        at = end
    starts = dict(_START.iter_unpack(view[_FRAME.size + len(MARK) : rounds_at])) if rounds_at else None
    return Extent(starts, rounds_at, at, len(data[at:].rstrip(b"\0")))


def read_rounds(data: bytes, extent: Extent) -> Iterator[list[tuple[int, memoryview]]]:
    """The (partition, batch) pairs of each round, in order, as far as ``measure`` found them good."""
    view = memoryview(data)
    at = extent.rounds_at
    while at < extent.good_bytes:
        end = at + _FRAME.size + int(_FRAME.unpack_from(view, at)[0])
        yield list(_batches(view[at + _FRAME.size : end]))
        at = end


def _frame(content: bytes) -> bytes:
    return _FRAME.pack(len(content), crc32c(content)) + content


def _frame_end(view: memoryview, at: int) -> int | None:
    if at + _FRAME.size > len(view):
        return None
    length, crc = _FRAME.unpack_from(view, at)
    start = at + _FRAME.size
    end = start + int(length)
    if length == 0 or end > len(view) or crc32c(view[start:end]) != crc:
        return None
    return end


def _batches(payload: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(payload):
        partition, size = _BATCH.unpack_from(payload, at)
        at += _BATCH.size
        yield partition, payload[at : at + size]
        at += size


class Journal:
    """A journal file that is being written, by one thread."""

    def __init__(self, disk: Disk, folder: Path, number: int, starts: dict[int, int]) -> None:
        """Create the file, which must not exist, with its first frame, durable. OSError when that fails."""
        self.path = folder / journal_name(number)
        self.number = number
        self.position = 0
        self._disk = disk
        self._allocated = 0
        self._fd = disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            self.write(_frame(MARK + b"".join(_START.pack(*start) for start in starts.items())))
            self.sync()
            disk.sync_folder(folder)
        except OSError:
            self.close()
            raise

    def write(self, frame: bytes) -> None:
        """Append a frame, not synced. After an OSError nothing may be written any more: the end is unknown."""
        end = self.position + len(frame)
        while end > self._allocated:
            write_all(self._disk, self._fd, ZEROS, self._allocated)
            self._allocated += len(ZEROS)
        write_all(self._disk, self._fd, frame, self.position)
        self.position = end

    def sync(self) -> None:
        """Make what was written durable. After an OSError nothing is known about any of it."""
        self._disk.sync(self._fd)

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
