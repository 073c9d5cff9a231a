"""Reads a segment past damage: yields all valid batches in order, and a ``Damage`` for every other range.

``segment.scan`` stops at the first invalid byte; this continues. Loading reads a log this way, so one bad sector costs
only the records in it.

The next batch after a damaged one is found as follows:

* The length of the damaged batch may be right. If a valid batch begins at its end, or the file ends there, reading
  continues there.
* If the file ends inside one of its records, nothing follows it (``torn_batch``).
* Otherwise a valid batch is searched byte by byte (``search``). A record may contain bytes that form a valid batch; one
  that contradicts the offsets around it is skipped.

The checksum does not cover the base offset, so it is checked against the neighbours. Offsets must increase. A batch
whose base offset jumps ahead is held back until the next one is read: a compacted log continues above the jump, after a
damaged base offset it does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

from ...disk.disk import Disk
from ..format.batch import HEADER_BYTES, PREFIX_BYTES, Batch, read_batch, read_size
from ..format.errors import Damage, DamagedBatch, OffsetTooLarge
from .search import OpenFile, SearchAborted, find_good_batch
from .segment import CHUNK_BYTES
from .torn_batch import is_cut_off


class BatchRun(NamedTuple):
    """Adjacent valid batches: ``data`` is exactly their bytes, ``position`` its position in the file."""

    position: int
    data: memoryview
    batches: list[Batch]


def scan_past_damage(
    disk: Disk,
    path: Path,
    base_offset: int = 0,
    next_base: int | None = None,
    *,
    size: int | None = None,
    position: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Batch | Damage]:
    """All valid batches of a segment in order, with each damaged range at its place between them.

    ``base_offset``: the minimum base offset of the first batch, from the file's name. ``next_base``: the base offset of
    the next segment; if given, offsets missing before it are a Damage too, unless this segment was compacted. ``size``
    in bytes: stop there, for a file that grows during the scan. ``position``: begin at this batch boundary, with
    ``base_offset`` as the next offset.

    Memory: a chunk, or the largest batch. OSError names the file and the unreadable position.
    """
    for piece in scan_runs_past_damage(
        disk, path, base_offset, next_base, size=size, position=position, chunk_bytes=chunk_bytes
    ):
        if isinstance(piece, BatchRun):
            yield from piece.batches
        else:
            yield piece


def scan_runs_past_damage(
    disk: Disk,
    path: Path,
    base_offset: int = 0,
    next_base: int | None = None,
    *,
    size: int | None = None,
    position: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[BatchRun | Damage]:
    """As ``scan_past_damage``, but adjacent batches of a chunk are yielded as one buffer, for decoding in bulk."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        end = disk.size(fd) if size is None else size
        order = _OffsetOrder(path, base_offset, next_base)
        yield from _build_runs(order, _FileScan(OpenFile(disk, fd, path, end), position, chunk_bytes, order))
    finally:
        disk.close(fd)


class _BadRange(NamedTuple):
    position: int
    size: int
    reason: str
    is_certain: bool = True


class _OffsetOrder:
    """Checks the offsets of batches against each other. Batches that cannot be checked yet are held back."""

    def __init__(self, path: Path, base_offset: int, next_base: int | None) -> None:
        self.expected = base_offset
        self.next_base = next_base
        self._path = path
        self._waiting: list[_BadRange | Batch] = []
        self._held: Batch | None = None  # the only batch in ``_waiting``
        self._is_dense = True

    def add(self, piece: Batch | _BadRange) -> Iterator[Batch | Damage]:
        """Add a piece; yields the pieces whose fate it decides."""
        bad = piece if isinstance(piece, _BadRange) else self._misplacement(piece)
        if bad is not None:
            self._waiting.append(bad)
            return
        assert isinstance(piece, Batch)
        if self._held is not None and piece.base_offset <= self._held.last_offset:
            self._reject_held(self._held, piece)
        yield from self._accept_held()
        if piece.base_offset > self.expected:
            self._held = piece
            self._waiting.append(piece)
        else:
            yield from self._report_waiting(piece.base_offset)
            yield self._accept(piece)

    def finish(self, position: int) -> Iterator[Batch | Damage]:
        """Yield the remaining pieces at the end of the file."""
        yield from self._accept_held()
        ends_in_damage = bool(self._waiting)
        yield from self._report_waiting(self.next_base)
        if self.next_base is not None and self.expected < self.next_base and self._is_dense and not ends_in_damage:
            reason = f"it ends at offset {self.expected}, the next segment begins at {self.next_base}"
            yield Damage(self._path, position, 0, reason, self.expected, self.next_base)

    def _misplacement(self, batch: Batch) -> _BadRange | None:
        base, last = batch.base_offset, batch.last_offset
        if base < self.expected:
            return _BadRange(batch.position, batch.size, f"offset {base}, expected {self.expected} or more")
        if self.next_base is not None and last >= self.next_base:
            reason = f"offsets {base} to {last}, expected below {self.next_base}, where the next segment begins"
            return _BadRange(batch.position, batch.size, reason)
        return None

    def _reject_held(self, held: Batch, follower: Batch) -> None:
        reason = f"offsets {held.base_offset} to {held.last_offset}, but {follower.base_offset} follows"
        self._waiting[self._waiting.index(held)] = _BadRange(held.position, held.size, reason)
        self._held = None

    def _accept_held(self) -> Iterator[Batch | Damage]:
        """Accept the batch that was held back, if any, and yield it after the damage before it."""
        held = self._held
        if held is not None:
            at = self._waiting.index(held)
            self._is_dense = self._is_dense and at > 0  # a jump without damage: this log was compacted
            following = self._waiting[at + 1 :]
            del self._waiting[at:]
            yield from self._report_waiting(held.base_offset)
            self._waiting, self._held = following, None
            yield self._accept(held)

    def _report_waiting(self, offset_after: int | None) -> Iterator[Damage]:
        """Yield all waiting pieces as damage."""
        for bad in self._waiting:
            assert isinstance(bad, _BadRange)
            at, size, reason, is_certain = bad
            yield Damage(self._path, at, size, reason, self.expected, offset_after, is_certain)
        self._waiting = []

    def _accept(self, batch: Batch) -> Batch:
        self.expected = batch.last_offset + 1
        if batch.record_count != batch.last_offset - batch.base_offset + 1:
            self._is_dense = False
        return batch


class _FileScan:
    """The file from ``position`` to ``end``, as valid batches and the bad ranges between them.

    ``view``: the chunk of the last batch, which begins at ``view_at`` in the file.
    """

    def __init__(self, file: OpenFile, position: int, chunk_bytes: int, order: _OffsetOrder) -> None:
        self.position = self.view_at = position
        self.end = file.end
        self.view = memoryview(b"")
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._order = order

    def __iter__(self) -> Iterator[Batch | _BadRange]:
        while self.position < self.end:
            try:
                yield from self._valid_batches()
            except OffsetTooLarge as damage:
                yield self._skip_too_large(damage.reason)
            except DamagedBatch as damage:
                yield self._skip_bad(damage.reason)

    def _valid_batches(self) -> Iterator[Batch]:
        """Batches up to the end. DamagedBatch leaves ``position`` at the bad batch."""
        chunk_size, source = self._chunk_bytes, str(self._file.path)
        while self.position < self.end:
            start = self.position
            self._read(min(chunk_size, self.end - start))
            view, at = self.view, 0
            while (size := read_size(view, at)) is not None and HEADER_BYTES <= size <= len(view) - at:
                batch = read_batch(view, at, start + at, source)
                at += size
                self.position = start + at
                yield batch
            if at:
                chunk_size = self._chunk_bytes
            elif size is None:
                raise DamagedBatch(start, "cut off in its head", source)
            elif size < HEADER_BYTES or size > self.end - start:
                raise DamagedBatch(start, f"it is cut off, or its length is wrong: {size} bytes", source)
            else:
                chunk_size = size  # a batch larger than the chunk

    def _read(self, size: int) -> None:
        self.view = memoryview(self._file.read(size, self.position))
        self.view_at = self.position

    def _skip_too_large(self, reason: str) -> _BadRange:
        """Skip a batch with a valid checksum and impossible offsets. Its length is right, so it is not searched."""
        start = self.position
        size = read_size(self.view, start - self.view_at)
        assert size is not None
        self.position = start + size
        return _BadRange(start, size, reason, is_certain=False)

    def _skip_bad(self, reason: str) -> _BadRange:
        """Move ``position`` from a bad batch to the next valid one; returns the range between them."""
        start, is_certain = self.position, True
        try:
            next_position = self._find_claimed_end()
            if next_position is None and not is_cut_off(self._file, start, *self._bounds()):
                next_position = find_good_batch(self._file, start + 1, *self._bounds())
        except SearchAborted as error:
            next_position, is_certain, reason = None, False, f"{reason}; {error}"
        self.position = self.end if next_position is None else next_position
        return _BadRange(start, self.position - start, reason, is_certain)

    def _bounds(self) -> tuple[int, int | None]:
        """The smallest offset of the next batch, and the offset that it must not reach."""
        return self._order.expected, self._order.next_base

    def _find_claimed_end(self) -> int | None:
        """The end of the bad batch by its own length, if a valid batch begins there or the file ends there.

        Then the batch is not searched: its records may contain bytes that look like a batch.
        """
        size = read_size(memoryview(self._file.read(min(PREFIX_BYTES, self.end - self.position), self.position)), 0)
        if size is None or not HEADER_BYTES <= size <= self.end - self.position:
            return None
        position = self.position + size
        if position == self.end:
            return position
        head, order = self._file.head(position), self._order
        if head is None or head.base_offset <= order.expected:
            return None
        is_beyond = order.next_base is not None and head.last_offset >= order.next_base
        return None if is_beyond or self._file.batch(position, head.size) is None else position


class _RunBuilder:
    """Joins adjacent batches of one chunk."""

    def __init__(self, pieces: _FileScan) -> None:
        self._pieces = pieces
        self._batches: list[Batch] = []
        self._chunk_at: int | None = None

    def add(self, piece: Batch | Damage) -> Iterator[BatchRun | Damage]:
        if isinstance(piece, Damage):
            yield from self.finish()
            yield piece
        elif self._batches and self._adjoins(piece):
            self._batches.append(piece)
        else:
            yield from self.finish()
            self._batches = [piece]
            is_current = _buffer(piece) is self._pieces.view.obj
            self._chunk_at = (
                self._pieces.view_at if is_current else None
            )  # a batch that was held back may be of an older chunk

    def finish(self) -> Iterator[BatchRun]:
        if self._batches:
            batches, self._batches = self._batches, []
            yield BatchRun(batches[0].position, self._data(batches), batches)

    def _adjoins(self, batch: Batch) -> bool:
        last = self._batches[-1]
        return last.position + last.size == batch.position and _buffer(last) is _buffer(batch)

    def _data(self, batches: list[Batch]) -> memoryview:
        if self._chunk_at is None:
            return memoryview(b"".join(batch.data for batch in batches))
        start, stop = batches[0].position - self._chunk_at, batches[-1].position + batches[-1].size - self._chunk_at
        return memoryview(_buffer(batches[0]))[start:stop]


def _buffer(batch: Batch) -> bytes:
    assert isinstance(batch.data, memoryview)
    return cast(bytes, batch.data.obj)


def _build_runs(order: _OffsetOrder, pieces: _FileScan) -> Iterator[BatchRun | Damage]:
    runs = _RunBuilder(pieces)
    for piece in pieces:
        for checked in order.add(piece):
            yield from runs.add(checked)
    for checked in order.finish(pieces.end):
        yield from runs.add(checked)
    yield from runs.finish()
