"""Reading a segment past its damage: all good batches in order, and for every other stretch a ``Damage``.

``scan`` (in ``segment``) stops at the first bad byte; this goes on. Whoever loads a log reads it so: one bad sector
costs the records that lie in it, and not those behind it.

How it goes on behind a damaged batch:

* The damaged batch may say rightly how long it is. If a good batch begins there, or the file ends, that is the place.
* Otherwise, when its length is damaged, a good batch is looked for byte by byte (``search``). A client may have put a
  good batch into a record; what contradicts the offsets round it is passed over.

What a checksum does not cover is judged by the neighbours. Offsets must go up. A batch whose offsets jump is held back
until the next one is seen: a log that was compacted goes on above the jump, a damaged base offset does not.
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


class BatchRun(NamedTuple):
    """Good batches that lie side by side: ``data`` holds them all and nothing else, ``position`` is its place."""

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
    """All good batches of a segment, checked and in order, and each stretch that is none, where it lies.

    ``base_offset``: the least that the first batch may have, from the file's name. ``next_base``: that of the next
    segment of a log; then what is missing in between is a Damage too, unless this segment was compacted; None for the
    last one, or when it is not known. ``size`` in bytes: read no further than that, for a file that grows meanwhile.
    ``position``: begin there, at a batch, with ``base_offset`` as the next offset.

    Memory: a chunk, or the largest batch. OSError names the file and the position where it cannot be read.
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
    """The same with the batches by the chunk, as one buffer, for whoever decodes many at once."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        end = disk.size(fd) if size is None else size
        order = _Order(path, base_offset, next_base)
        yield from _runs(order, _Pieces(OpenFile(disk, fd, path, end), position, chunk_bytes, order))
    finally:
        disk.close(fd)


class _Bad(NamedTuple):
    position: int
    size: int
    reason: str
    is_certain: bool = True


class _Order:
    """Which batches are where they belong. What cannot be judged yet waits until it can."""

    def __init__(self, path: Path, base_offset: int, next_base: int | None) -> None:
        self.expected = base_offset
        self.next_base = next_base
        self._path = path
        self._waiting: list[_Bad | Batch] = []
        self._held: Batch | None = None  # the one of those that is a batch
        self._is_dense = True

    def take(self, piece: Batch | _Bad) -> Iterator[Batch | Damage]:
        """What is known now that this piece came."""
        bad = piece if isinstance(piece, _Bad) else self._misplaced(piece)
        if bad is not None:
            self._waiting.append(bad)
            return
        assert isinstance(piece, Batch)
        if self._held is not None and piece.base_offset <= self._held.last_offset:
            self._condemn(self._held, piece)
        yield from self._confirm()
        if piece.base_offset > self.expected:
            self._held = piece
            self._waiting.append(piece)
        else:
            yield from self._settle(piece.base_offset)
            yield self._accepted(piece)

    def finish(self, position: int) -> Iterator[Batch | Damage]:
        """What is known at the end of the file."""
        yield from self._confirm()
        ends_badly = bool(self._waiting)
        yield from self._settle(self.next_base)
        if self.next_base is not None and self.expected < self.next_base and self._is_dense and not ends_badly:
            reason = f"it ends at offset {self.expected}, the next segment begins at {self.next_base}"
            yield Damage(self._path, position, 0, reason, self.expected, self.next_base)

    def _misplaced(self, batch: Batch) -> _Bad | None:
        base, last = batch.base_offset, batch.last_offset
        if base < self.expected:
            return _Bad(batch.position, batch.size, f"offset {base}, expected {self.expected} or more")
        if self.next_base is not None and last >= self.next_base:
            reason = f"offsets {base} to {last}, expected below {self.next_base}, where the next segment begins"
            return _Bad(batch.position, batch.size, reason)
        return None

    def _condemn(self, held: Batch, follower: Batch) -> None:
        reason = f"offsets {held.base_offset} to {held.last_offset}, but {follower.base_offset} comes behind them"
        self._waiting[self._waiting.index(held)] = _Bad(held.position, held.size, reason)
        self._held = None

    def _confirm(self) -> Iterator[Batch | Damage]:
        """The batch that was held back, if any, was right: it and what waited before it."""
        held = self._held
        if held is not None:
            at = self._waiting.index(held)
            self._is_dense = self._is_dense and at > 0  # a jump without damage: this log was compacted
            behind = self._waiting[at + 1 :]
            del self._waiting[at:]
            yield from self._settle(held.base_offset)
            self._waiting, self._held = behind, None
            yield self._accepted(held)

    def _settle(self, offset_after: int | None) -> Iterator[Damage]:
        """All that waits, none of it a batch."""
        for bad in self._waiting:
            assert isinstance(bad, _Bad)
            at, size, reason, is_certain = bad
            yield Damage(self._path, at, size, reason, self.expected, offset_after, is_certain)
        self._waiting = []

    def _accepted(self, batch: Batch) -> Batch:
        self.expected = batch.last_offset + 1
        if batch.record_count != batch.last_offset - batch.base_offset + 1:
            self._is_dense = False
        return batch


class _Pieces:
    """The file from ``position`` to ``end``: batches that check out, and what lies between them.

    ``view`` holds the file from ``view_at`` on: the chunk that the last batch came from.
    """

    def __init__(self, file: OpenFile, position: int, chunk_bytes: int, order: _Order) -> None:
        self.position = self.view_at = position
        self.end = file.end
        self.view = memoryview(b"")
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._order = order

    def __iter__(self) -> Iterator[Batch | _Bad]:
        while self.position < self.end:
            try:
                yield from self._good()
            except OffsetTooLarge as damage:
                yield self._too_large(damage.reason)
            except DamagedBatch as damage:
                yield self._bad(damage.reason)

    def _good(self) -> Iterator[Batch]:
        """Batches up to the end; DamagedBatch with ``position`` at the one that is bad."""
        want, source = self._chunk_bytes, str(self._file.path)
        while self.position < self.end:
            start = self.position
            self._read(min(want, self.end - start))
            view, at = self.view, 0
            while (size := read_size(view, at)) is not None and HEADER_BYTES <= size <= len(view) - at:
                batch = read_batch(view, at, start + at, source)
                at += size
                self.position = start + at
                yield batch
            if at:
                want = self._chunk_bytes
            elif size is None:
                raise DamagedBatch(start, "cut off in its head", source)
            elif size < HEADER_BYTES or size > self.end - start:
                raise DamagedBatch(start, f"it is cut off, or its length is wrong: {size} bytes", source)
            else:
                want = size  # a batch larger than the chunk

    def _read(self, size: int) -> None:
        self.view = memoryview(self._file.read(size, self.position))
        self.view_at = self.position

    def _too_large(self, reason: str) -> _Bad:
        """A batch whose checksum covers its length, so the next one begins behind it: its records are not searched."""
        start = self.position
        size = read_size(self.view, start - self.view_at)
        assert size is not None
        self.position = start + size
        return _Bad(start, size, reason, is_certain=False)

    def _bad(self, reason: str) -> _Bad:
        """What lies between ``position``, where a batch is bad, and the next good one, which is gone to."""
        start, is_certain = self.position, True
        try:
            follows = self._follower()
            if follows is None:
                follows = find_good_batch(self._file, start + 1, self._order.expected, self._order.next_base)
        except SearchAborted as error:
            follows, is_certain, reason = None, False, f"{reason}; {error}"
        self.position = self.end if follows is None else follows
        return _Bad(start, self.position - start, reason, is_certain)

    def _follower(self) -> int | None:
        """Where the bad batch itself says that it ends, if a good one begins there, or the file ends.

        Then nobody looks within it: the bytes of a client may look like a batch, too.
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


class _Runs:
    """Gathers batches that lie side by side in one chunk."""

    def __init__(self, pieces: _Pieces) -> None:
        self._pieces = pieces
        self._batches: list[Batch] = []
        self._chunk_at: int | None = None

    def take(self, known: Batch | Damage) -> Iterator[BatchRun | Damage]:
        if isinstance(known, Damage):
            yield from self.finish()
            yield known
        elif self._batches and self._adjoins(known):
            self._batches.append(known)
        else:
            yield from self.finish()
            self._batches = [known]
            is_current = _buffer(known) is self._pieces.view.obj
            self._chunk_at = self._pieces.view_at if is_current else None  # one that was held back may be older

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


def _runs(order: _Order, pieces: _Pieces) -> Iterator[BatchRun | Damage]:
    runs = _Runs(pieces)
    for piece in pieces:
        for known in order.take(piece):
            yield from runs.take(known)
    for known in order.finish(pieces.end):
        yield from runs.take(known)
    yield from runs.finish()
