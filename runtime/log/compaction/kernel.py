"""Cleans the files of one partition: reads them from the newest to the oldest, in chunks, and drops superseded records.

In this order one pass is enough: the first record of a key is the one to keep. Memory holds the keys and one chunk.
Kept records are spilled to a temporary file, because the log must be written in the opposite order.
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
from .survivors import CleaningState, Survivors, as_lists, select_survivors

OnBytesRead = Callable[[int], None]
"""Called with the number of bytes read since the last call."""

_LENGTH = Struct(">i")
_CODEC_AT = 22  # in a batch: the lower byte of its attributes


class CleaningRules(NamedTuple):
    """``now_ms``: ms since 1970. ``delete_retention_ms``: how long a tombstone stays after the first run that reads it.

    ``fast``: whether to use numpy; None: if it is installed.
    """

    now_ms: int
    delete_retention_ms: int
    fast: bool | None = None
    chunk_bytes: int = CHUNK_BYTES


class FileChunk(NamedTuple):
    """Whole batches of a file. ``is_last``: the end of the file; its last batch is kept, if need be without records."""

    data: bytes
    source: str
    position: int
    is_last: bool


class CleanedChunk(NamedTuple):
    """The kept part of a chunk. ``horizon_ms``: its first delete horizon of a tombstone; None without one.

    ``end_offset``: the offset after the chunk's last batch.
    """

    data: bytes
    records_before: int
    records: int
    horizon_ms: int | None
    end_offset: int


def clean_chunk(state: CleaningState, chunk: FileChunk, rules: CleaningRules) -> CleanedChunk:
    """Clean a chunk, after all newer chunks. The result is uncompressed.

    Raises DamagedBatch with the file and the position, UnsupportedCompression as ``inflate`` does, and OpenTransaction
    as ``select_survivors`` does.
    """
    starts, valid_bytes = whole_batches(chunk.data)
    if valid_bytes < len(chunk.data):
        read_batch(memoryview(chunk.data), valid_bytes, chunk.position + valid_bytes, chunk.source)  # raises
    if any(chunk.data[at + _CODEC_AT] & CODEC_BITS for at in starts):
        data, starts = inflate_buffer(chunk.data, starts, chunk.source, chunk.position)
        chunk = chunk._replace(data=data)
    spans = read_spans(chunk.data, starts, fast=rules.fast, source=chunk.source, position=chunk.position)
    survivors = select_survivors(state, chunk.data, spans, rules.now_ms)
    rewriter = _ChunkRewriter(chunk, spans, survivors, rules)
    end_offset = offsets_of(memoryview(chunk.data)[starts[-1] :])[1] + 1
    return CleanedChunk(rewriter.rewrite(), len(spans), len(survivors.batch), rewriter.horizon_ms, end_offset)


class _ChunkRewriter:
    """Builds the kept part of a chunk. Batches that keep all records are copied unchanged, adjacent ones at once."""

    def __init__(self, chunk: FileChunk, spans: RecordSpans, survivors: Survivors, rules: CleaningRules) -> None:
        self.horizon_ms: int | None = None
        self._chunk = chunk
        self._data = chunk.data
        self._headers = as_lists(spans.headers)
        self._survivors = survivors
        self._rules = rules
        self._parts: list[bytes] = []
        self._copy_from = self._copy_to = 0

    def rewrite(self) -> bytes:
        first = 0
        batches = self._survivors.batch
        total = len(batches)
        while first < total:
            stop = first + 1
            while stop < total and batches[stop] == batches[first]:
                stop += 1
            self._add_batch(int(batches[first]), first, stop)
            first = stop
        self._keep_last_batch()
        self._flush()
        return b"".join(self._parts)

    def _add_batch(self, index: int, first: int, stop: int) -> None:
        has_tombstones = True in self._survivors.is_tombstone[first:stop]
        has_horizon = bool(self._headers.attributes[index] & DELETE_HORIZON_BIT)
        if has_tombstones and not self._is_control(index):
            horizon = self._rules.now_ms + self._rules.delete_retention_ms
            self._note_horizon(self._headers.base_timestamp_ms[index] if has_horizon else horizon)
            if not has_horizon:
                self._append(self._rewritten(index, first, stop, horizon))
                return
        if stop - first == self._headers.record_count[index]:
            self._copy_unchanged(self._headers.at[index], self._headers.end[index])
        else:
            self._append(self._rewritten(index, first, stop, None))

    def _rewritten(self, index: int, first: int, stop: int, horizon: int | None) -> bytes:
        _, start, end, _, timestamp_ms = self._survivors
        at = self._headers.at[index]
        spans = list(zip(start[first:stop], end[first:stop], strict=True))
        if horizon is not None:
            return set_delete_horizon(self._data, at, spans, timestamp_ms[first:stop], horizon)
        data = self._data
        records = b"".join([data[record_start:record_end] for record_start, record_end in spans])
        return filter_batch(data, at, records, len(spans), max(timestamp_ms[first:stop]))

    def _keep_last_batch(self) -> None:
        """Keep the last batch of a file, without records if need be: it determines the next offset."""
        last = len(self._headers.at) - 1
        if not self._chunk.is_last or last < 0 or self._survivors.batch[-1:] == [last]:
            return
        if self._headers.record_count[last]:
            self._append(empty_batch(self._data, self._headers.at[last]))
        else:
            self._copy_unchanged(self._headers.at[last], self._headers.end[last])

    def _is_control(self, index: int) -> bool:
        return bool(self._headers.attributes[index] & CONTROL_BIT)

    def _note_horizon(self, horizon_ms: int) -> None:
        self.horizon_ms = horizon_ms if self.horizon_ms is None else min(self.horizon_ms, horizon_ms)

    def _copy_unchanged(self, at: int, end: int) -> None:
        if at != self._copy_to:
            self._flush()
            self._copy_from = at
        self._copy_to = end

    def _append(self, batch: bytes) -> None:
        self._flush()
        self._parts.append(batch)

    def _flush(self) -> None:
        if self._copy_from < self._copy_to:
            self._parts.append(self._data[self._copy_from : self._copy_to])
        self._copy_from = self._copy_to = -1


class SpilledFile(NamedTuple):
    """The kept part of one file. ``pieces``: position and size of each part in the spill file, oldest first."""

    base: int
    pieces: list[tuple[int, int]]
    records: int
    horizon_ms: int | None

    @property
    def size(self) -> int:
        return sum(size for _, size in self.pieces)


class SpillResult(NamedTuple):
    """The kept parts of all files, in log order, and the totals before."""

    sources: list[SpilledFile]
    records_before: int
    bytes_before: int


def clean_files(
    disk: Disk,
    files: Sequence[LogFile],
    spill_fd: int,
    state: CleaningState,
    rules: CleaningRules,
    on_bytes_read: OnBytesRead,
    end: int | None = None,
) -> SpillResult:
    """Clean the files, given in log order, into the spill file. Errors as in ``clean_chunk``, and OSError.

    ``end``: the base offset of the next file, if it is known. Raises DamagedBatch if offsets are missing between files.
    """
    position = records_before = bytes_read = 0
    sources: list[SpilledFile] = []
    for file in reversed(files):
        pieces: list[tuple[int, int]] = []
        horizons: list[int] = []
        records = file_records_before = 0
        file_end = file.base
        for chunk, cleaned in _clean_file(disk, file.path, state, rules):
            if cleaned.data:
                write_all(disk, spill_fd, cleaned.data, position)
                pieces.append((position, len(cleaned.data)))
            position += len(cleaned.data)
            records += cleaned.records
            file_records_before += cleaned.records_before
            file_end = max(file_end, cleaned.end_offset)
            bytes_read += len(chunk.data)
            horizons += [] if cleaned.horizon_ms is None else [cleaned.horizon_ms]
            on_bytes_read(len(chunk.data))
        _refuse_gap(disk, file, file_records_before, file_end, end)
        records_before, end = records_before + file_records_before, file.base
        sources.append(SpilledFile(file.base, pieces[::-1], records, min(horizons, default=None)))
    return SpillResult(sources[::-1], records_before, bytes_read)


def _refuse_gap(disk: Disk, file: LogFile, records: int, end_offset: int, next_base: int | None) -> None:
    """Raise DamagedBatch if a plain file with a record for each offset ends before the next file begins.

    A plain file with fewer records was compacted by Kafka; then offsets may also be missing at its end.
    """
    is_dense = records == end_offset - file.base
    if not file.is_compacted and next_base is not None and is_dense and end_offset < next_base:
        reason = f"it ends at offset {end_offset}, the next segment begins at {next_base}"
        raise DamagedBatch(file_size(disk, file.path), reason, str(file.path))


def _clean_file(
    disk: Disk, path: Path, state: CleaningState, rules: CleaningRules
) -> Iterator[tuple[FileChunk, CleanedChunk]]:
    try:
        for chunk in chunks_backwards(disk, path, rules.chunk_bytes):
            yield chunk, clean_chunk(state, chunk, rules)
    except DamagedBatch:
        for _ in scan(disk, path):  # forwards: raises for the first damaged batch
            pass
        raise


def chunks_backwards(disk: Disk, path: Path, chunk_bytes: int) -> Iterator[FileChunk]:
    """The chunks of a file, last one first. They are not checked: a chunk may contain damage."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        bounds = list(_chunk_bounds(disk, fd, str(path), chunk_bytes))
        for start, end in reversed(list(pairwise(bounds))):
            yield FileChunk(read_at(disk, fd, end - start, start), str(path), start, end == bounds[-1])
    finally:
        disk.close(fd)


def _chunk_bounds(disk: Disk, fd: int, source: str, chunk_bytes: int) -> Iterator[int]:
    """The starts of the chunks, by the lengths in the batch headers, and the end of the file."""
    position, read_bytes, size = 0, chunk_bytes, disk.size(fd)
    while position < size:
        data = read_at(disk, fd, min(read_bytes, size - position), position)
        whole_bytes, claimed = _whole_batches_size(data)
        if whole_bytes:
            yield position
        elif not len(data) < claimed <= size - position:
            read_batch(memoryview(data), 0, position, source)  # raises
        position, read_bytes = position + whole_bytes, chunk_bytes if whole_bytes else claimed
    yield size


def _whole_batches_size(data: bytes) -> tuple[int, int]:
    """The size of the whole batches at the start of ``data``, and the size of the next batch, by their headers."""
    at, size, unpack = 0, len(data), _LENGTH.unpack_from
    claimed = 0
    while at + PREFIX_BYTES <= size:
        claimed = PREFIX_BYTES + int(unpack(data, at + 8)[0])
        if claimed <= PREFIX_BYTES or at + claimed > size:
            break
        at += claimed
    return at, claimed
