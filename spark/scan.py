"""Reads one partition of a log for Spark: all records in log order, or the newest record of each key.

Compaction may replace a file after it was listed and before it is opened. Then the files are listed again, and reading
continues at the same offset: the replacement contains every record that is still live.
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
from ..runtime.log.format.records import RECORD_TYPES, decode, encode_key
from ..runtime.log.format.transaction_records import decode_record
from ..runtime.log.manifest import LogFile, log_files
from ..runtime.log.reading.backwards import chunks_newest_first
from ..runtime.log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ..runtime.log.reading.partition_reader import MarkerRecord, is_unfinished_tail
from ..runtime.log.reading.segment import CHUNK_BYTES
from ..runtime.log.reading.spans import read_spans
from ..runtime.log.recovery.missing import missing_files
from .decode import Array, Decoder, RecordChunk, split_plain_offsets
from .options import Options
from .rows import damage_row, gap_row

MAX_ATTEMPTS = 10  # of opening the files; compaction seldom removes one after it was listed

log = logging.getLogger("callboard.spark")


class FilePosition(NamedTuple):
    """The byte position in an open segment where the batch with the offset ``offset`` begins, or will begin."""

    name: str
    position: int
    offset: int


class PartitionScan:
    """Reads one partition's folder as the options say."""

    def __init__(self, disk: Disk, folder: Path, number: int, options: Options, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._disk = disk
        self._folder = folder
        self._number = number
        self._options = options
        self._chunk_bytes = chunk_bytes
        self._decoder = Decoder(number, options)
        self._pending_notices: list[pa.RecordBatch] = []  # rows about damage found since the last batch

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows that the options select. Raises DamagedBatch with file and byte, and ManifestError,
        UnsupportedCompression and OSError as the log's readers do."""
        first, end = self._options.first_offset, self._options.end_offset
        yield from self._with_notices(self._live() if self._options.live else self._records(first, end, None))

    def since(self, first: int) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``first`` on."""
        yield from self._with_notices(self._records(first, None, None))

    def between(
        self, first: int, end: int, start_hint: FilePosition | None, report_gap: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``first`` up to ``end``. ``start_hint``: a known position at or before them.

        If some of the offsets are missing, ``report_gap`` adds a row of kind ``gap`` and logs a warning.
        """
        progress = _ScanProgress()
        for batch in self._records(first, end, start_hint, progress):
            yield from self._take_notices()
            yield batch
        is_damaged = bool(self._pending_notices)
        yield from self._take_notices()
        missing = end - first - progress.records
        if report_gap and missing > 0 and not (is_damaged or progress.damages):
            yield from self._report_gap(first, end, missing)

    def _report_gap(self, first: int, end: int, missing: int) -> Iterator[pa.RecordBatch]:
        notice = (
            f"{missing} of the offsets {first} to {end - 1} are no longer in the log: compaction, which keeps only the"
            " newest record of each key, removed them"
        )
        log.warning("%s: %s", self._folder, notice)
        if "gap" in self._options.kinds:
            yield self._decoder.batch([gap_row(self._number, first, notice)])

    # In log order ----------------------------------------------------------------------------------------------------

    def _records(
        self, first: int, end: int | None, start_hint: FilePosition | None, progress: _ScanProgress | None = None
    ) -> Iterator[pa.RecordBatch]:
        progress = progress or _ScanProgress()
        for chunk in self._chunks(first, end, start_hint, progress):
            indexes = np.arange(len(chunk))
            if progress.next_offset > int(chunk.offset[0] if len(chunk) else 0) or end is not None:
                is_inside = chunk.offset >= progress.next_offset
                if end is not None:
                    is_inside &= chunk.offset < end
                indexes = indexes[is_inside]
            progress.records += len(indexes)
            yield from self._decoder.decode(chunk, indexes)

    def _chunks(
        self, first: int, end: int | None, start_hint: FilePosition | None, progress: _ScanProgress
    ) -> Iterator[RecordChunk]:
        """Sets ``progress.next_offset`` to the first new offset of each chunk."""
        expected = progress.next_offset = first
        for damage in missing_files(self._disk, self._folder)[1]:
            if (end is None or damage.offset_before < end) and (damage.offset_after or first) > first:
                progress.damages += self._report_damage(damage)
        for attempt in range(MAX_ATTEMPTS):
            try:
                for run, source in self._runs(expected, end, start_hint if not attempt else None, progress):
                    if run.batches[-1].last_offset >= expected:
                        progress.next_offset = expected
                        starts = [batch.position - run.position for batch in run.batches]
                        yield from self._read(run.data, starts, source)
                        expected = run.batches[-1].last_offset + 1
                return
            except FileNotFoundError:
                if attempt == MAX_ATTEMPTS - 1:
                    raise

    def _runs(
        self, first: int, end: int | None, start_hint: FilePosition | None, progress: _ScanProgress
    ) -> Iterator[tuple[BatchRun, Any]]:
        files = log_files(self._disk, self._folder).files
        for file, next_file in zip(files, [*files[1:], None], strict=False):
            is_before = next_file is not None and next_file.base <= first
            if is_before or (end is not None and file.base >= end):
                continue
            if start_hint is not None and start_hint.name == file.path.name and not file.is_closed:
                base, position = start_hint.offset, start_hint.position
            else:
                base, position = file.base, 0
            next_base = None if next_file is None or file.is_compacted else next_file.base
            pieces = scan_runs_past_damage(
                self._disk, file.path, base, next_base, position=position, chunk_bytes=self._chunk_bytes
            )
            for piece in pieces:
                if isinstance(piece, Damage):
                    progress.damages += self._on_damage(piece, file)
                elif end is not None and piece.batches[0].base_offset >= end:
                    return
                else:
                    yield piece, (str(file.path), piece.position)

    # The newest record of each key -----------------------------------------------------------------------------------

    def _live(self) -> Iterator[pa.RecordBatch]:
        live_records = _LiveRecords()
        below: int | None = None
        for damage in missing_files(self._disk, self._folder)[1]:
            self._report_damage(damage)
        for attempt in range(MAX_ATTEMPTS):
            files = [file for file in log_files(self._disk, self._folder).files if below is None or file.base < below]
            try:
                for piece in chunks_newest_first(self._disk, files, self._damage_callback(files), self._chunk_bytes):
                    for chunk in self._read(piece.data, piece.starts, (str(piece.path), piece.position)):
                        yield from self._decoder.decode(chunk, live_records.indexes(chunk, below))
                    below = offsets_of(memoryview(piece.data)[piece.starts[0] :])[0]
                return
            except FileNotFoundError:
                if attempt == MAX_ATTEMPTS - 1:
                    raise

    # For both --------------------------------------------------------------------------------------------------------

    def _read(self, data: Any, starts: Sequence[int], source: tuple[str, int]) -> Iterator[RecordChunk]:
        """All batches as one chunk. If one is damaged, each batch as its own chunk, in reading order."""
        try:
            yield _make_chunk(bytes(data), starts, *source)
            return
        except DamagedBatch as damage:
            if not self._options.is_permissive:
                raise
            if len(starts) == 1:
                self._add_notice(offsets_of(memoryview(data)[starts[0] :])[0], str(damage))
                return
        for start in reversed(starts) if self._options.live else starts:
            yield from self._read(data, [start], source)

    def _damage_callback(self, files: Sequence[LogFile]) -> Any:
        by_path = {file.path: file for file in files}
        return lambda damage: self._on_damage(damage, by_path[damage.path])

    def _on_damage(self, damage: Damage, file: LogFile) -> int:
        """Returns 1 for damage, 0 for a torn end of the last file and for offsets removed by compaction."""
        if not damage.size or (not file.is_closed and is_unfinished_tail(self._disk, damage)):
            return 0
        return self._report_damage(damage)

    def _report_damage(self, damage: Damage) -> int:
        """Add a notice if the options permit damage, else raise DamagedBatch. Returns 1, the number of damages."""
        advice = "start a server on its folder, which repairs what its journal holds, or restore a copy of this file"
        if not self._options.is_permissive:
            raise DamagedBatch(
                damage.position,
                f"{damage.reason}; {advice}, or read the undamaged records with option damage=permissive",
                str(damage.path),
            )
        self._add_notice(damage.offset_before, f"{damage}; {advice}")
        return 1

    def _add_notice(self, offset: int, notice: str) -> None:
        log.warning("%s", notice)
        if "damage" in self._options.kinds:
            self._pending_notices.append(self._decoder.batch([damage_row(self._number, offset, notice)]))

    def _with_notices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, each after the notices about damage found before it."""
        for batch in batches:
            yield from self._take_notices()
            yield batch
        yield from self._take_notices()

    def _take_notices(self) -> Iterator[pa.RecordBatch]:
        notices, self._pending_notices = self._pending_notices, []
        yield from notices


class _ScanProgress:
    """Counts records and damages. ``next_offset``: the first offset that was not delivered before."""

    def __init__(self) -> None:
        self.records = self.damages = self.next_offset = 0


class _LiveRecords:
    """Selects the newest record of each key from chunks that are read newest first."""

    def __init__(self) -> None:
        self._seen_keys: set[bytes] = set()
        self._is_committed: dict[int, bool] = {}  # by producer: whether its transaction before here was committed

    def indexes(self, chunk: RecordChunk, below: int | None) -> Array:
        """Indexes of the records with a value and without a newer record of the same key."""
        is_effective = self._effective(chunk)
        if below is not None:
            is_effective &= chunk.offset < below
        indexes = np.flatnonzero(is_effective)
        newest = dict(zip(_keys(chunk, indexes), indexes.tolist(), strict=True))
        new_keys = newest.keys() - self._seen_keys
        self._seen_keys |= new_keys
        live = np.asarray(sorted(map(newest.__getitem__, new_keys)), dtype=np.int64)
        return live[chunk.value_size[live] >= 0]

    def _effective(self, chunk: RecordChunk) -> Array:
        """A mask of the records with a key, except markers and records of aborted or open transactions."""
        is_effective = chunk.key_size >= 0
        if not np.any(chunk.attributes & TRANSACTIONAL_BIT):
            return is_effective
        firsts = np.flatnonzero(np.diff(chunk.batch, prepend=-1))
        ends = [*firsts[1:].tolist(), len(chunk)]
        for first, end in reversed(list(zip(firsts.tolist(), ends, strict=True))):
            attributes = int(chunk.attributes[first])
            if attributes & CONTROL_BIT:
                self._apply_marker(chunk, first)
                is_effective[first:end] = False
            elif attributes & TRANSACTIONAL_BIT:
                producer_id = chunk.read_batch(first).producer_id
                is_effective[first:end] &= self._is_committed.get(producer_id, False)
        return is_effective

    def _apply_marker(self, chunk: RecordChunk, index: int) -> None:
        record = decode_record(chunk.read_batch(index), chunk.key(index), chunk.value(index))
        if isinstance(record, MarkerRecord):
            self._is_committed[record.producer_id] = record.committed


def _keys(chunk: RecordChunk, indexes: Array) -> Iterator[bytes]:
    """Keys in canonical form: an offset's key has two encodings."""
    offsets, _ = split_plain_offsets(chunk, indexes)
    is_simple_size = offsets.group_size + offsets.topic_size + 10 == chunk.key_size[offsets.indexes]
    is_simple = np.zeros(len(chunk), dtype=bool)
    is_simple[offsets.indexes[is_simple_size]] = True
    data = chunk.data
    columns = chunk.key_at[indexes], chunk.key_size[indexes], is_simple[indexes]
    for at, size, simple in zip(*(column.tolist() for column in columns), strict=True):
        key = data[at : at + size]
        yield b"\0\1" + key[2:] if simple else _canonical_key(key)


def _canonical_key(key: bytes) -> bytes:
    """A key of unknown type is returned unchanged."""
    if int.from_bytes(key[:2], "big") not in RECORD_TYPES:
        return key
    try:
        return encode_key(decode(key, None))
    except ValueError:
        return key


def _make_chunk(data: bytes, starts: Sequence[int], source: str, position: int) -> RecordChunk:
    """Raises UnsupportedCompression, or DamagedBatch if records do not fit their batch."""
    if any(data[at + 22] & CODEC_BITS for at in starts):
        data, starts = inflate_buffer(data, starts, source, position)
    return RecordChunk(data, read_spans(data, starts, fast=True, source=source, position=position), source, position)
