"""``spark.readStream.format("callboard")``: a log as it grows, every record once.

An offset of the stream says for each log partition which log offset comes next. Those never change meaning: compaction
takes records away and moves none. So a checkpoint holds after any restart, and where compaction was faster than the
stream it delivers what is left, and a row of kind ``gap`` that says how much is not.

The driver looks at the ends of the logs for each batch. It remembers how far it has read the newest file, so that it
reads what is new and not the file; what is torn at the end comes when it is whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..runtime.disk.disk import Disk
from ..runtime.log.format.batch import Batch
from ..runtime.log.manifest import log_files
from ..runtime.log.reading.damage_scan import scan_past_damage
from .files import Log, find_log
from .options import Options
from .scan import TRIES, Mark, Scan
from .tasks import freeze_once, numbers_of, spread

TASK_ROWS = 200_000
"""About a tenth of a second of decoding."""

Ends = dict[str, int]
"""The next offset of each log partition, by its number as JSON's keys are."""

log = logging.getLogger("callboard.spark")


class Piece(NamedTuple):
    """Offsets of one log partition, from ``first`` up to ``end``; where they begin, if the driver knows it."""

    number: int
    first: int
    end: int
    mark: Mark | None


class Pieces(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


class Follower:
    """Knows how far one partition's log goes, and where in its newest file some offsets begin."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._marks: list[Mark] = []

    def end(self) -> int:
        """The offset behind the last whole batch."""
        for _ in range(TRIES):
            try:
                return self._end()
            except FileNotFoundError:  # compacted since it was listed
                continue
        return self._end()

    def mark_for(self, offset: int) -> Mark | None:
        """The nearest place that is known at or before an offset; those before it are not needed any more."""
        before = [mark for mark in self._marks if mark.offset <= offset]
        self._marks = before[-1:] + self._marks[len(before) :]
        return before[-1] if before else None

    def _end(self) -> int:
        manifest, files = log_files(self._disk, self._folder)
        if not files or files[-1].is_closed:
            return manifest.clean_end
        file = files[-1]
        if not self._marks or self._marks[-1].name != file.path.name:
            self._marks = [Mark(file.path.name, 0, file.base)]
        last = self._marks[-1]
        for piece in scan_past_damage(self._disk, file.path, last.offset, position=last.position):
            if isinstance(piece, Batch):
                last = Mark(last.name, piece.position + piece.size, piece.last_offset + 1)
        if last != self._marks[-1]:
            self._marks.append(last)
        return last.offset


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, where one of these lives as long as the query; reads in the tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._followers: dict[int, Follower] = {}
        self._target: Ends | None = None

    def initialOffset(self) -> Ends:
        """Where a query without a checkpoint begins."""
        return self._ends() if self._options.from_latest else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def latestOffset(self, start: Ends, limit: ReadLimit) -> Ends:
        """Where the next batch ends. Never before ``start``: a log that is shorter has lost its end, or is another."""
        ends = self._ends() if self._target is None else self._target
        for number, offset in start.items():
            if (end := ends.get(number, 0)) < offset:
                log.warning(
                    "%s: the log of partition %s ends at offset %d, and the stream has read up to %d: it waits. If this"
                    " is another log, begin with a new checkpoint",
                    *(self._options.path, number, end, offset),
                )
        ends = {number: max(end, start.get(number, 0)) for number, end in (start | ends).items()}
        return within(start, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Ends:
        return self._ends()

    def partitions(self, start: Ends, end: Ends) -> list[InputPartition]:
        pieces = []
        for number, behind in end.items():
            if (first := start.get(number, 0)) < behind:
                follower = self._followers.get(int(number))
                pieces.append(Piece(int(number), first, behind, follower.mark_for(first) if follower else None))
        sizes = {piece: piece.end - piece.first for piece in pieces}
        return [Pieces(share) for share in spread(sizes, -(-sum(sizes.values()) // TASK_ROWS)) if share]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_once()
        if isinstance(partition, Pieces):
            found = find_log(self._options.path)
            for piece in partition.pieces:
                yield from self._read(found, piece)

    def _read(self, found: Log, piece: Piece) -> Iterator[pa.RecordBatch]:
        folder = found.folder(piece.number)
        if folder is None:
            raise FileNotFoundError(
                f"{self._options.path}: partition {piece.number} is gone, of which the stream has read before;"
                " put it back, or begin with a new checkpoint"
            )
        yield from Scan(found.disk, folder, piece.number, self._options).between(piece.first, piece.end, piece.mark)

    def _ends(self) -> Ends:
        found = find_log(self._options.path)
        ends: Ends = {}
        for number in numbers_of(found, self._options):
            if (folder := found.folder(number)) is not None:
                follower = self._followers.setdefault(number, Follower(found.disk, folder))
                ends[str(number)] = follower.end()
        return ends


def within(start: Mapping[str, int], ends: Ends, rows: int) -> Ends:
    """Ends that are at most so many offsets behind the start, each partition's share as large as what it has to read.

    Every partition that has something goes on by one at least, so that none waits for ever.
    """
    waiting = {number: end - start.get(number, 0) for number, end in ends.items()}
    total = sum(waiting.values())
    if total <= rows:
        return ends
    return {
        number: start.get(number, 0) + (max(1, count * rows // total) if count else 0)
        for number, count in waiting.items()
    }
