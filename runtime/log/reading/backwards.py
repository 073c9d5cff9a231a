"""A log in chunks, the newest first, each as large as memory is to be used for it.

Where batches begin can only be found from a file's beginning. So each file is read twice: forwards, which checks it and
notes where it may be cut, and backwards, chunk by chunk. The second time it comes from the system's memory.
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

_OFFSETS = Struct(">q15xi")  # of a batch: its base offset, and how far behind it the last one is


class BatchChunk(NamedTuple):
    """Whole, checked batches that lie side by side in the file ``path``; ``starts``: where each begins in ``data``."""

    data: bytes
    starts: Sequence[int]
    path: Path
    position: int


class _Cut(NamedTuple):
    position: int
    size: int
    starts: Sequence[int]


def chunks_newest_first(
    disk: Disk, files: Sequence[LogFile], on_damage: OnDamage, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[BatchChunk]:
    """All good batches of a log's files, which are in its order. ``on_damage`` hears of what lies between them.

    OSError names the file and the place that cannot be read; FileNotFoundError: compaction took it, list them again.
    """
    next_base: int | None = None
    for file in reversed(files):
        fd = disk.open(file.path, os.O_RDONLY)
        try:
            open_file = OpenFile(disk, fd, file.path, disk.size(fd))
            yield from _File(open_file, file, next_base, chunk_bytes).chunks(on_damage)
        finally:
            disk.close(fd)
        next_base = file.base


class _File:
    def __init__(self, open_file: OpenFile, file: LogFile, next_base: int | None, chunk_bytes: int) -> None:
        self._open_file = open_file
        self._file = file
        self._next_base = next_base
        self._chunk_bytes = chunk_bytes
        self._last: tuple[int, bytes] = (-1, b"")  # what was read last is what is needed first

    def chunks(self, on_damage: OnDamage) -> Iterator[BatchChunk]:
        cuts = self._cuts()
        if cuts is None:
            cuts = self._survey(on_damage)
        for position, size, starts in reversed(cuts):
            yield BatchChunk(self._read(position, size), starts, self._file.path, position)

    def _cuts(self) -> list[_Cut] | None:
        """Where the chunks are; None when something is wrong with the file, however little."""
        cuts: list[_Cut] = []
        position, expected, want, end = 0, self._file.base, self._chunk_bytes, self._open_file.end
        while position < end:
            data = self._open_file.read(min(want, end - position), position)
            starts, good = whole_batches(data)
            if not starts:
                size = read_size(data, 0)
                if size is None or not max(HEADER_BYTES, len(data) + 1) <= size <= end - position:
                    return None
                want = size  # a batch larger than the chunk
                continue
            for base, last_delta in [_OFFSETS.unpack_from(data, at) for at in starts]:
                if base < expected:
                    return None
                expected = base + last_delta + 1
            cuts.append(_Cut(position, good, array("q", starts)))
            self._last = position, data
            position, want = position + good, self._chunk_bytes
        fits = self._next_base is None or self._next_base == expected
        return cuts if fits or (self._file.is_clean and expected < (self._next_base or 0)) else None

    def _survey(self, on_damage: OnDamage) -> list[_Cut]:
        cuts: list[_Cut] = []
        disk, path = self._open_file.disk, self._file.path
        for piece in scan_runs_past_damage(disk, path, self._file.base, self._next_base, chunk_bytes=self._chunk_bytes):
            if isinstance(piece, BatchRun):
                starts = array("q", (batch.position - piece.position for batch in piece.batches))
                cuts.append(_Cut(piece.position, len(piece.data), starts))
            else:
                on_damage(piece)
        if not disk.is_named(self._open_file.fd, path):
            raise FileNotFoundError(f"{path}: it was compacted while it was read")  # what was seen is another file
        return cuts

    def _read(self, position: int, size: int) -> bytes:
        at, data = self._last
        if at != position:
            return self._open_file.read(size, position)
        self._last = -1, b""
        return data if len(data) == size else data[:size]
