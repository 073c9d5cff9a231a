"""One segment file: batches back to back, named by the offset of its first record, as Kafka names it.

Files are read in chunks, so that memory does not grow with them, and with plain reads, so that a bad disk is an error
and not a signal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import StartError
from .batch import Batch, find_batch, read_batch, read_size
from .disk import Disk, read_at, read_file
from .errors import DamagedBatch

CHUNK_BYTES = 8 * 1024 * 1024  # decoding is fastest with chunks of this size; a larger batch gets a larger one

_NAME = re.compile(r"(\d{20})\.log")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_base(name: str) -> int | None:
    """The base offset that a file name stands for; None when it is not the name of a segment."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def scan(disk: Disk, path: Path, size: int | None = None, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batch]:
    """The batches of a segment in order, checked; DamagedBatch at the first that does not check out.

    ``size`` in bytes: read no further than that, for a file that grows meanwhile.
    """
    fd = disk.open(path, os.O_RDONLY)
    try:
        end = disk.size(fd) if size is None else size
        yield from _scan(disk, fd, str(path), end, chunk_bytes)
    finally:
        disk.close(fd)


def _scan(disk: Disk, fd: int, source: str, end: int, chunk_bytes: int) -> Iterator[Batch]:
    position, want = 0, chunk_bytes
    while position < end:
        view = memoryview(read_at(disk, fd, min(want, end - position), position))
        at = 0
        while (size := read_size(view, at)) is not None and at + size <= len(view):
            yield read_batch(view, at, position + at, source)
            at += size
        if at == 0:
            want = min(end - position, size or 0)  # a batch larger than the chunk
            if want <= len(view):
                read_batch(view, 0, position, source)  # the file ends inside it: this says how much is missing
        position += at


class Tail(NamedTuple):
    """How a partition's last segment ends: the next offset, the bytes that are good, and what is wrong behind them."""

    end_offset: int
    good_bytes: int
    bad_bytes: int
    reason: str


def read_tail(disk: Disk, path: Path, base_offset: int, journal_from: int | None) -> Tail:
    """Check a segment batch by batch and tell a torn tail, which may be cut, from damage, which may not.

    The journal holds what came from offset ``journal_from`` on, as far as it was synced (None: there is no journal). So
    what is damaged there was either never durable or will be laid in anew, and it may be cut even where good batches
    follow: the system writes an unsynced file in any order it likes. Anywhere else that is a StartError.
    """
    end_offset, good_bytes, reason = base_offset, 0, ""
    try:
        for batch in scan(disk, path):
            if batch.base_offset < end_offset:
                raise DamagedBatch(batch.position, f"offset {batch.base_offset}, expected {end_offset} or more")
            end_offset, good_bytes = batch.last_offset + 1, batch.position + batch.size
    except DamagedBatch as damage:
        reason = damage.reason
    if not reason:
        return Tail(end_offset, good_bytes, 0, "")
    data = read_file(disk, path)
    if journal_from is None or end_offset < journal_from:
        _refuse_damage_in_the_middle(path, data, end_offset, good_bytes, reason)
    return Tail(end_offset, good_bytes, len(data) - good_bytes, reason)


def _refuse_damage_in_the_middle(path: Path, data: bytes, end_offset: int, position: int, reason: str) -> None:
    follows = find_batch(data, position, end_offset)
    if follows is not None:
        raise StartError(
            f"{path}: damaged batch at byte {position} ({reason}) and a good one behind it at byte {follows}, expected"
            " good batches up to a torn end; put back a copy of this file, or cut it at the damage to lose what follows"
        )
