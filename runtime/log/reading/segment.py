"""One segment file: batches back to back, named by the offset of its first record, as Kafka names it.

Files are read in chunks, so that memory does not grow with them, and with plain reads, so that a bad disk is an error
and not a signal. ``scan`` stops at damage; what reads on behind it is ``scan_past_damage``, in a file of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ...disk.disk import Disk, read_at
from ..format.batch import LOG_OFFSET_MAX, Batch, read_batch, read_size

CHUNK_BYTES = 8 * 1024 * 1024  # decoding is fastest with chunks of this size; a larger batch gets a larger one

_NAME = re.compile(r"(\d{20})\.log")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_base(name: str) -> int | None:
    """The base offset that a file name stands for; None when it is not the name of a segment.

    A name beyond ``LOG_OFFSET_MAX`` is none: no record may follow it.
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= LOG_OFFSET_MAX else None


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
        asked = min(want, end - position)
        view = memoryview(read_at(disk, fd, asked, position))
        at = 0
        while (size := read_size(view, at)) is not None and at + size <= len(view):
            yield read_batch(view, at, position + at, source)
            at += size
        if at == 0:
            want = min(end - position, size or 0)  # a batch larger than the chunk
            if want <= len(view) or len(view) < asked:
                read_batch(view, 0, position, source)  # the file ends inside it: this says how much is missing
        position += at
