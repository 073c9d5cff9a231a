"""Reading one partition of a log for Spark: everything in the order of the log, or the newest of each key.

Compaction may replace a file between the listing and the opening. Then the files are listed again, and reading goes on
at the offset where it was: what replaced the file says the same of everything that still counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..runtime.disk.disk import Disk
from ..runtime.log.format.batch import CODEC_BITS, CONTROL_BIT, TRANSACTIONAL_BIT, inflate_buffer, offsets_of
from ..runtime.log.format.errors import Damage, DamagedBatch
from ..runtime.log.format.records import OFFSET_KEY_TYPES, decode, encode_key
from ..runtime.log.format.transaction_records import decode_record
from ..runtime.log.manifest import LogFile, log_files
from ..runtime.log.reading.backwards import chunks_newest_first
from ..runtime.log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ..runtime.log.reading.partition_reader import MarkerRecord, is_unfinished_tail
from ..runtime.log.reading.segment import CHUNK_BYTES
from ..runtime.log.reading.spans import read_spans
from ..runtime.log.recovery.missing import missing_files
from .decode import Array, Chunk, Decoder, plain_offsets
from .options import Options
from .rows import damage_row, gap_row

TRIES = 10  # a file that is listed and gone was compacted meanwhile, which happens once in a long time

log = logging.getLogger("callboard.spark")


class Mark(NamedTuple):
    """Where in an open file the batch with the offset ``offset`` begins, or will."""

    name: str
    position: int
    offset: int


class Scan:
    """One partition's folder, read by the options."""

    def __init__(self, disk: Disk, folder: Path, number: int, options: Options, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._disk = disk
        self._folder = folder
        self._number = number
        self._options = options
        self._chunk_bytes = chunk_bytes
        self._decoder = Decoder(number, options)
        self._told: list[pa.RecordBatch] = []  # of damage that was met since the last batch

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All that the options ask for. DamagedBatch names the file and the byte; ManifestError, UnsupportedCompression
        and OSError as in the log's readers."""
        for batch in self._live() if self._options.live else self._records(0, None, None):
            yield from self._notices()
            yield batch
        yield from self._notices()

    def since(self, first: int) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``first`` on."""
        for batch in self._records(first, None, None):
            yield from self._notices()
            yield batch
        yield from self._notices()

    def between(self, first: int, end: int, mark: Mark | None, tells_gap: bool = True) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``first`` up to ``end``; and if some of those are gone a row of kind gap, and a
        warning, unless nobody is to be told."""
        counted = _Counted()
        for batch in self._records(first, end, mark, counted):
            yield from self._notices()
            yield batch
        is_damaged = bool(self._told)
        yield from self._notices()
        missing = end - first - counted.records
        if tells_gap and missing > 0 and not (is_damaged or counted.damages):
            yield from self._gap(first, end, missing)

    def _gap(self, first: int, end: int, missing: int) -> Iterator[pa.RecordBatch]:
        notice = (
            f"of the offsets {first} to {end - 1} {missing} are not in the log any more: compaction, which keeps the"
            " newest record of each key, was there first"
        )
        log.warning("%s: %s", self._folder, notice)
        if "gap" in self._options.kinds:
            yield self._decoder.batch([gap_row(self._number, first, notice)])

    # In the order of the log -----------------------------------------------------------------------------------------

    def _records(
        self, first: int, end: int | None, mark: Mark | None, counted: _Counted | None = None
    ) -> Iterator[pa.RecordBatch]:
        counted = counted or _Counted()
        for chunk in self._chunks(first, end, mark, counted):
            which = np.arange(len(chunk))
            if counted.next > int(chunk.offset[0] if len(chunk) else 0) or end is not None:
                is_inside = chunk.offset >= counted.next
                if end is not None:
                    is_inside &= chunk.offset < end
                which = which[is_inside]
            counted.records += len(which)
            yield from self._decoder.decode(chunk, which)

    def _chunks(self, first: int, end: int | None, mark: Mark | None, counted: _Counted) -> Iterator[Chunk]:
        """``counted.next`` is the first offset of a chunk that was not given before."""
        expected = counted.next = first
        for damage in missing_files(self._disk, self._folder)[1]:
            if (end is None or damage.offset_before < end) and (damage.offset_after or first) > first:
                counted.damages += self._harm(damage)
        for attempt in range(TRIES):
            try:
                for run, source in self._runs(expected, end, mark if not attempt else None, counted):
                    if run.batches[-1].last_offset >= expected:
                        counted.next = expected
                        yield from self._read(run.data, [one.position - run.position for one in run.batches], source)
                        expected = run.batches[-1].last_offset + 1
                return
            except FileNotFoundError:
                if attempt == TRIES - 1:
                    raise

    def _runs(
        self, first: int, end: int | None, mark: Mark | None, counted: _Counted
    ) -> Iterator[tuple[BatchRun, Any]]:
        files = log_files(self._disk, self._folder).files
        for file, follower in zip(files, [*files[1:], None], strict=False):
            is_over = follower is not None and follower.base <= first
            if is_over or (end is not None and file.base >= end):
                continue
            is_marked = mark is not None and mark.name == file.path.name and not file.is_closed
            base, position = (mark.offset, mark.position) if is_marked and mark else (file.base, 0)
            next_base = None if follower is None or file.is_clean else follower.base
            pieces = scan_runs_past_damage(
                self._disk, file.path, base, next_base, position=position, chunk_bytes=self._chunk_bytes
            )
            for piece in pieces:
                if isinstance(piece, Damage):
                    counted.damages += self._hear(piece, file)
                elif end is not None and piece.batches[0].base_offset >= end:
                    return
                else:
                    yield piece, (str(file.path), piece.position)

    # The newest of each key ------------------------------------------------------------------------------------------

    def _live(self) -> Iterator[pa.RecordBatch]:
        newest = _Newest()
        below: int | None = None
        for damage in missing_files(self._disk, self._folder)[1]:
            self._harm(damage)
        for attempt in range(TRIES):
            files = [file for file in log_files(self._disk, self._folder).files if below is None or file.base < below]
            try:
                for one in chunks_newest_first(self._disk, files, self._listener(files), self._chunk_bytes):
                    for chunk in self._read(one.data, one.starts, (str(one.path), one.position)):
                        yield from self._decoder.decode(chunk, newest.of(chunk, below))
                    below = offsets_of(memoryview(one.data)[one.starts[0] :])[0]
                return
            except FileNotFoundError:
                if attempt == TRIES - 1:
                    raise

    # Both ------------------------------------------------------------------------------------------------------------

    def _read(self, data: Any, starts: Sequence[int], place: tuple[str, int]) -> Iterator[Chunk]:
        """Batches as a chunk; one by one, the newest first, if they cannot be read together."""
        try:
            yield _chunk(bytes(data), starts, *place)
            return
        except DamagedBatch as damage:
            if not self._options.is_patient:
                raise
            if len(starts) == 1:
                self._tell(offsets_of(memoryview(data)[starts[0] :])[0], str(damage))
                return
        for start in reversed(starts) if self._options.live else starts:
            yield from self._read(data, [start], place)

    def _listener(self, files: Sequence[LogFile]) -> Any:
        by_path = {file.path: file for file in files}
        return lambda damage: self._hear(damage, by_path[damage.path])

    def _hear(self, damage: Damage, file: LogFile) -> int:
        """How many harms this is. A torn end of the last file is none; nor are offsets that compaction has taken."""
        if not damage.size or (not file.is_closed and is_unfinished_tail(self._disk, damage)):
            return 0
        return self._harm(damage)

    def _harm(self, damage: Damage) -> int:
        """Tell of damage, or refuse to go on. Gives 1: a harm."""
        advice = "start a server on its folder, which mends what its journal holds, or put back a copy of this file"
        if not self._options.is_patient:
            raise DamagedBatch(
                damage.position,
                f"{damage.reason}; {advice}, or read what is good with option damage=permissive",
                str(damage.path),
            )
        self._tell(damage.offset_before, f"{damage}; {advice}")
        return 1

    def _tell(self, offset: int, notice: str) -> None:
        log.warning("%s", notice)
        if "damage" in self._options.kinds:
            self._told.append(self._decoder.batch([damage_row(self._number, offset, notice)]))

    def _notices(self) -> Iterator[pa.RecordBatch]:
        told, self._told = self._told, []
        yield from told


class _Counted:
    """How many records and damages there were, and from which offset on the next chunk is new."""

    def __init__(self) -> None:
        self.records = self.damages = self.next = 0


class _Newest:
    """Picks the records that count, from chunks that come newest first."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._ended: dict[int, bool] = {}  # for each producer whether the transaction before here was committed

    def of(self, chunk: Chunk, below: int | None) -> Array:
        """Places of records with a value that nothing newer overrules."""
        counts = self._counts(chunk)
        if below is not None:
            counts &= chunk.offset < below
        places = np.flatnonzero(counts)
        newest = dict(zip(_keys(chunk, places), places.tolist(), strict=True))
        fresh = newest.keys() - self._seen
        self._seen |= fresh
        found = np.asarray(sorted(map(newest.__getitem__, fresh)), dtype=np.int64)
        return found[chunk.value_size[found] >= 0]

    def _counts(self, chunk: Chunk) -> Array:
        """Records with a key, without those of transactions that were aborted or are open, and without markers."""
        counts = chunk.key_size >= 0
        if not np.any(chunk.attributes & TRANSACTIONAL_BIT):
            return counts
        firsts = np.flatnonzero(np.diff(chunk.batch, prepend=-1))
        ends = [*firsts[1:].tolist(), len(chunk)]
        for first, end in reversed(list(zip(firsts.tolist(), ends, strict=True))):
            attributes = int(chunk.attributes[first])
            if attributes & CONTROL_BIT:
                self._mark(chunk, first)
                counts[first:end] = False
            elif attributes & TRANSACTIONAL_BIT and not self._ended.get(chunk.read_batch(first).producer_id, False):
                counts[first:end] = False
        return counts

    def _mark(self, chunk: Chunk, index: int) -> None:
        record = decode_record(chunk.read_batch(index), chunk.key(index), chunk.value(index))
        if isinstance(record, MarkerRecord):
            self._ended[record.producer_id] = record.committed


def _keys(chunk: Chunk, places: Array) -> Iterator[bytes]:
    """Keys so that the same key is the same bytes: of an offset there are two ways to write it."""
    offsets, _ = plain_offsets(chunk, places)
    usual = offsets.group_size + offsets.topic_size + 10 == chunk.key_size[offsets.which]
    is_usual = np.zeros(len(chunk), dtype=bool)
    is_usual[offsets.which[usual]] = True
    data = chunk.data
    columns = chunk.key_at[places], chunk.key_size[places], is_usual[places]
    for at, size, simple in zip(*(column.tolist() for column in columns), strict=True):
        key = data[at : at + size]
        yield b"\0\1" + key[2:] if simple else _canonical(key)


def _canonical(key: bytes) -> bytes:
    """A key that nothing here can read is its own."""
    if int.from_bytes(key[:2], "big") not in (*OFFSET_KEY_TYPES, 2):
        return key
    try:
        return encode_key(decode(key, None))
    except ValueError:
        return key


def _chunk(data: bytes, starts: Sequence[int], source: str, position: int) -> Chunk:
    """UnsupportedCompression, or DamagedBatch where records do not fit their batch."""
    if any(data[at + 22] & CODEC_BITS for at in starts):
        data, starts = inflate_buffer(data, starts, source, position)
    return Chunk(data, read_spans(data, starts, fast=True, source=source, position=position), source, position)
