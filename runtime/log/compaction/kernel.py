"""What compaction does to the bytes: the files of one partition, read from the newest to the oldest, in chunks.

So one pass is enough, each record that stays is written as soon as it is met, and memory holds the live keys and one
chunk. What stays of a chunk is spilled to a file beside the log, since the log must be written the other way round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ...disk.disk import Disk, file_size, read_at, write_all
from ..format.batch import CODEC_BITS, CONTROL_BIT, PREFIX_BYTES, inflate_buffer, offsets_of, read_batch
from ..format.errors import DamagedBatch
from ..manifest import LogFile
from ..reading.columns import RecordSpans
from ..reading.segment import CHUNK_BYTES, scan
from ..reading.spans import read_spans, whole_batches
from .rewrite import DELETE_HORIZON_BIT, empty_batch, filter_batch, set_delete_horizon
from .survivors import Memory, Survivors, as_lists, select

Progress = Callable[[int], None]
"""Hears of the bytes that were read since it was called last."""

_LENGTH = Struct(">i")
_CODEC_AT = 22  # in a batch: the lower byte of its attributes


class Rules(NamedTuple):
    """``now_ms``: ms since 1970. ``delete_retention_ms``: how long a tombstone stays after it was met first.

    ``fast``: with numpy or without; None takes it where it is installed.
    """

    now_ms: int
    delete_retention_ms: int
    fast: bool | None = None
    chunk_bytes: int = CHUNK_BYTES


class Chunk(NamedTuple):
    """Whole batches of a file. ``is_last``: the file ends with them, and its last batch stays, if only its header."""

    data: bytes
    source: str
    position: int
    is_last: bool


class Kept(NamedTuple):
    """What stays of a chunk. ``horizon_ms``: the first delete horizon of a tombstone in it; None without one.

    ``end_offset``: the offset behind the chunk's last batch.
    """

    data: bytes
    records_before: int
    records: int
    horizon_ms: int | None
    end_offset: int


def clean(memory: Memory, chunk: Chunk, rules: Rules) -> Kept:
    """What stays of a chunk when all that is newer was cleaned before. DamagedBatch names the file and the byte.

    What was compressed is not any more. UnsupportedCompression as in ``inflate``; OpenTransaction as in ``select``.
    """
    starts, good = whole_batches(chunk.data)
    if good < len(chunk.data):
        read_batch(memoryview(chunk.data), good, chunk.position + good, chunk.source)  # which says what is wrong
    if any(chunk.data[at + _CODEC_AT] & CODEC_BITS for at in starts):
        data, starts = inflate_buffer(chunk.data, starts, chunk.source, chunk.position)
        chunk = chunk._replace(data=data)
    spans = read_spans(chunk.data, starts, fast=rules.fast, source=chunk.source, position=chunk.position)
    survivors = select(memory, chunk.data, spans, rules.now_ms)
    rewriter = _Rewriter(chunk, spans, survivors, rules)
    end_offset = offsets_of(memoryview(chunk.data)[starts[-1] :])[1] + 1
    return Kept(rewriter.run(), len(spans), len(survivors.batch), rewriter.horizon_ms, end_offset)


class _Rewriter:
    """Puts what stays together: batches of which all stays are not touched, neighbours among them copied as one."""

    def __init__(self, chunk: Chunk, spans: RecordSpans, survivors: Survivors, rules: Rules) -> None:
        self.horizon_ms: int | None = None
        self._chunk = chunk
        self._data = chunk.data
        self._headers = as_lists(spans.headers)
        self._survivors = survivors
        self._rules = rules
        self._parts: list[bytes] = []
        self._copy_from = self._copy_to = 0

    def run(self) -> bytes:
        first = 0
        of = self._survivors.batch
        total = len(of)
        while first < total:
            behind = first + 1
            while behind < total and of[behind] == of[first]:
                behind += 1
            self._batch(int(of[first]), first, behind)
            first = behind
        self._keep_the_end()
        self._flush()
        return b"".join(self._parts)

    def _batch(self, index: int, first: int, behind: int) -> None:
        has_tombstones = True in self._survivors.is_tombstone[first:behind]
        has_horizon = bool(self._headers.attributes[index] & DELETE_HORIZON_BIT)
        if has_tombstones and not self._is_control(index):
            horizon = self._rules.now_ms + self._rules.delete_retention_ms
            self._note(self._headers.base_timestamp_ms[index] if has_horizon else horizon)
            if not has_horizon:
                self._put(self._rewritten(index, first, behind, horizon))
                return
        if behind - first == self._headers.record_count[index]:
            self._copy(self._headers.at[index], self._headers.end[index])
        else:
            self._put(self._rewritten(index, first, behind, None))

    def _rewritten(self, index: int, first: int, behind: int, horizon: int | None) -> bytes:
        _, start, end, _, timestamp_ms = self._survivors
        at = self._headers.at[index]
        spans = list(zip(start[first:behind], end[first:behind], strict=True))
        if horizon is not None:
            return set_delete_horizon(self._data, at, spans, timestamp_ms[first:behind], horizon)
        data = self._data
        records = b"".join([data[one:other] for one, other in spans])
        return filter_batch(data, at, records, len(spans), max(timestamp_ms[first:behind]))

    def _keep_the_end(self) -> None:
        """The last batch of a file says which offset comes next, even when nothing of it is left."""
        last = len(self._headers.at) - 1
        if not self._chunk.is_last or last < 0 or self._survivors.batch[-1:] == [last]:
            return
        if self._headers.record_count[last]:
            self._put(empty_batch(self._data, self._headers.at[last]))
        else:
            self._copy(self._headers.at[last], self._headers.end[last])

    def _is_control(self, index: int) -> bool:
        return bool(self._headers.attributes[index] & CONTROL_BIT)

    def _note(self, horizon_ms: int) -> None:
        self.horizon_ms = horizon_ms if self.horizon_ms is None else min(self.horizon_ms, horizon_ms)

    def _copy(self, at: int, end: int) -> None:
        if at != self._copy_to:
            self._flush()
            self._copy_from = at
        self._copy_to = end

    def _put(self, batch: bytes) -> None:
        self._flush()
        self._parts.append(batch)

    def _flush(self) -> None:
        if self._copy_from < self._copy_to:
            self._parts.append(self._data[self._copy_from : self._copy_to])
        self._copy_from = self._copy_to = -1


class Spilled(NamedTuple):
    """What stays of one file: where its pieces lie in the spill, oldest first."""

    base: int
    pieces: list[tuple[int, int]]
    records: int
    horizon_ms: int | None

    @property
    def size(self) -> int:
        return sum(size for _, size in self.pieces)


class Spill(NamedTuple):
    """What stays of all files, in their order, and what was counted on the way."""

    sources: list[Spilled]
    records_before: int
    bytes_before: int


def clean_files(
    disk: Disk,
    files: Sequence[LogFile],
    spill_fd: int,
    memory: Memory,
    rules: Rules,
    progress: Progress,
    end: int | None = None,
) -> Spill:
    """Clean the files, given in the order of the log, into the spill. Errors as in ``clean``, and OSError.

    ``end``: where the next file begins, if that is known. DamagedBatch for a file that is missing between two others.
    """
    position = before = read = 0
    sources: list[Spilled] = []
    for file in reversed(files):
        pieces: list[tuple[int, int]] = []
        horizons: list[int] = []
        records = file_before = 0
        file_end = file.base
        for chunk, kept in _clean_file(disk, file.path, memory, rules):
            if kept.data:
                write_all(disk, spill_fd, kept.data, position)
                pieces.append((position, len(kept.data)))
            position += len(kept.data)
            records += kept.records
            file_before += kept.records_before
            file_end = max(file_end, kept.end_offset)
            read += len(chunk.data)
            horizons += [] if kept.horizon_ms is None else [kept.horizon_ms]
            progress(len(chunk.data))
        _refuse_hole(disk, file, file_before, file_end, end)
        before, end = before + file_before, file.base
        sources.append(Spilled(file.base, pieces[::-1], records, min(horizons, default=None)))
    return Spill(sources[::-1], before, read)


def _refuse_hole(disk: Disk, file: LogFile, records: int, end_offset: int, next_base: int | None) -> None:
    """DamagedBatch where a plain file that has a record for each offset ends before the next one begins.

    One with fewer records was compacted by a Kafka: then offsets may be missing at its end, too.
    """
    is_dense = records == end_offset - file.base
    if not file.is_clean and next_base is not None and is_dense and end_offset < next_base:
        reason = f"it ends at offset {end_offset}, the next segment begins at {next_base}"
        raise DamagedBatch(file_size(disk, file.path), reason, str(file.path))


def _clean_file(disk: Disk, path: Path, memory: Memory, rules: Rules) -> Iterator[tuple[Chunk, Kept]]:
    try:
        for chunk in chunks_backwards(disk, path, rules.chunk_bytes):
            yield chunk, clean(memory, chunk, rules)
    except DamagedBatch:
        for _ in scan(disk, path):  # from the front, and so up to the first that is damaged, which it names
            pass
        raise


def chunks_backwards(disk: Disk, path: Path, chunk_bytes: int) -> Iterator[Chunk]:
    """A file in chunks of whole batches, the last one first. Damage is in one of them, for whoever checks it to see."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        bounds = list(_bounds(disk, fd, str(path), chunk_bytes))
        for start, end in reversed(list(pairwise(bounds))):
            yield Chunk(read_at(disk, fd, end - start, start), str(path), start, end == bounds[-1])
    finally:
        disk.close(fd)


def _bounds(disk: Disk, fd: int, source: str, chunk_bytes: int) -> Iterator[int]:
    """Where chunks of whole batches begin, by what their headers claim, and the end of the file."""
    position, want, size = 0, chunk_bytes, disk.size(fd)
    while position < size:
        data = read_at(disk, fd, min(want, size - position), position)
        step, claimed = _whole(data)
        if step:
            yield position
        elif not len(data) < claimed <= size - position:
            read_batch(memoryview(data), 0, position, source)  # which says what is wrong
        position, want = position + step, chunk_bytes if step else claimed
    yield size


def _whole(data: bytes) -> tuple[int, int]:
    """How many bytes of whole batches there are by what their headers claim, and the size that the next one claims."""
    at, size, unpack = 0, len(data), _LENGTH.unpack_from
    claimed = 0
    while at + PREFIX_BYTES <= size:
        claimed = PREFIX_BYTES + int(unpack(data, at + 8)[0])
        if claimed <= PREFIX_BYTES or at + claimed > size:
            break
        at += claimed
    return at, claimed
