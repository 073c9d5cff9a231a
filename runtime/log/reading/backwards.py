"""Reads a log backwards in chunks of bounded size.

Batch boundaries can only be found from the beginning of a file, so each file is read twice: forwards, to check it and
to note the chunk boundaries, and then backwards, chunk by chunk. The second read is served by the page cache.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ...disk.disk import Disk
from ..format.batch import HEADER_BYTES, read_size
from ..format.errors import Damage
from ..manifest import LogFile
from .damage_scan import BatchRun, scan_runs_past_damage
from .search import OpenFile
from .segment import CHUNK_BYTES
from .spans import whole_batches

OnDamage = Callable[[Damage], None]

_BASE_AND_LAST_DELTA = Struct(">q15xi")  # the two fields of a batch header


class BatchChunk(NamedTuple):
    """Adjacent, checked batches of the file ``path``, from the byte ``position`` on.

    ``starts``: the positions of the batches in ``data``.
    """

    data: bytes
    starts: Sequence[int]
    path: Path
    position: int


class _ChunkBounds(NamedTuple):
    position: int
    size: int
    starts: Sequence[int]


def chunks_newest_first(
    disk: Disk, files: Sequence[LogFile], on_damage: OnDamage, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[BatchChunk]:
    """All valid batches of a log, newest chunk first. ``files`` are in log order.

    ``on_damage`` is called with each damaged range between the batches. OSError names the file and the position that
    cannot be read. FileNotFoundError: compaction removed a file; list the files again.
    """
    next_base: int | None = None
    for file in reversed(files):
        fd = disk.open(file.path, os.O_RDONLY)
        try:
            open_file = OpenFile(disk, fd, file.path, disk.size(fd))
            yield from _BackwardsReader(open_file, file, next_base, chunk_bytes).chunks(on_damage)
        finally:
            disk.close(fd)
        next_base = file.base


class _BackwardsReader:
    def __init__(self, open_file: OpenFile, file: LogFile, next_base: int | None, chunk_bytes: int) -> None:
        self._open_file = open_file
        self._file = file
        self._next_base = next_base
        self._chunk_bytes = chunk_bytes
        self._cached_read: tuple[int, bytes] = (-1, b"")  # the chunk read last is yielded first

    def chunks(self, on_damage: OnDamage) -> Iterator[BatchChunk]:
        bounds = self._find_chunks()
        if bounds is None:
            bounds = self._find_chunks_past_damage(on_damage)
        for position, size, starts in reversed(bounds):
            yield BatchChunk(self._read(position, size), starts, self._file.path, position)

    def _find_chunks(self) -> list[_ChunkBounds] | None:
        """The chunks of the file; None if anything is wrong with it."""
        bounds: list[_ChunkBounds] = []
        position, expected, read_bytes, end = 0, self._file.base, self._chunk_bytes, self._open_file.end
        while position < end:
            data = self._open_file.read(min(read_bytes, end - position), position)
            starts, whole_bytes = whole_batches(data)
            if not starts:
                size = read_size(data, 0)
                if size is None or not max(HEADER_BYTES, len(data) + 1) <= size <= end - position:
                    return None
                read_bytes = size  # a batch larger than the chunk
                continue
            for base, last_delta in [_BASE_AND_LAST_DELTA.unpack_from(data, at) for at in starts]:
                if base < expected:
                    return None
                expected = base + last_delta + 1
            bounds.append(_ChunkBounds(position, whole_bytes, array("q", starts)))
            self._cached_read = position, data
            position, read_bytes = position + whole_bytes, self._chunk_bytes
        follows_on = self._next_base is None or self._next_base == expected
        return bounds if follows_on or (self._file.is_compacted and expected < (self._next_base or 0)) else None

    def _find_chunks_past_damage(self, on_damage: OnDamage) -> list[_ChunkBounds]:
        bounds: list[_ChunkBounds] = []
        disk, path = self._open_file.disk, self._file.path
        for piece in scan_runs_past_damage(disk, path, self._file.base, self._next_base, chunk_bytes=self._chunk_bytes):
            if isinstance(piece, BatchRun):
                starts = array("q", (batch.position - piece.position for batch in piece.batches))
                bounds.append(_ChunkBounds(piece.position, len(piece.data), starts))
            else:
                on_damage(piece)
        if not disk.is_named(self._open_file.fd, path):
            raise FileNotFoundError(f"{path}: it was compacted while it was read")  # the name is another file now
        return bounds

    def _read(self, position: int, size: int) -> bytes:
        at, data = self._cached_read
        if at != position:
            return self._open_file.read(size, position)
        self._cached_read = -1, b""
        return data if len(data) == size else data[:size]
