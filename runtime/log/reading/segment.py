"""Segment files: adjacent batches in a file that is named after its first offset, as in Kafka.

Files are read in chunks, so memory is bounded, and with plain reads instead of mmap, so a disk error is an exception
and not a signal. ``scan`` stops at damage; ``scan_past_damage`` continues after it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ...disk.disk import Disk, read_at
from ..format.batch import LOG_OFFSET_MAX, Batch, read_batch, read_size

CHUNK_BYTES = 8 * 1024 * 1024  # decoding is fastest with chunks of this size; a larger batch gets a larger one

_NAME = re.compile(r"([0-9]{20})\.log")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_base(name: str) -> int | None:
    """The base offset in the name of a segment; None if it is not the name of a segment.

    A name with an offset above ``LOG_OFFSET_MAX`` is not one, since no record may have such an offset.
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= LOG_OFFSET_MAX else None


def scan(disk: Disk, path: Path, size: int | None = None, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batch]:
    """The batches of a segment in order, checked. Raises DamagedBatch at the first invalid one.

    ``size`` in bytes: stop there, for a file that grows during the scan.
    """
    fd = disk.open(path, os.O_RDONLY)
    try:
        end = disk.size(fd) if size is None else size
        yield from _scan(disk, fd, str(path), end, chunk_bytes)
    finally:
        disk.close(fd)


def _scan(disk: Disk, fd: int, source: str, end: int, chunk_bytes: int) -> Iterator[Batch]:
    position, chunk_size = 0, chunk_bytes
    while position < end:
        read_bytes = min(chunk_size, end - position)
        view = memoryview(read_at(disk, fd, read_bytes, position))
        at = 0
        while (size := read_size(view, at)) is not None and at + size <= len(view):
            yield read_batch(view, at, position + at, source)
            at += size
        if at == 0:
            chunk_size = min(end - position, size or 0)  # a batch larger than the chunk
            if chunk_size <= len(view) or len(view) < read_bytes:
                read_batch(view, 0, position, source)  # raises: the file ends within the batch
        position += at
