"""Structured streaming: ``spark.readStream.format("callboard")`` delivers every record of a growing log once.

An offset of the stream is the next log offset of each log partition. Compaction removes records but never changes
their offsets, so a checkpoint stays valid after any restart. If compaction removes records before the stream has read
them, the stream delivers the remaining ones and a row of kind ``gap`` with the number of missing offsets.

For each batch the driver finds the end of each log. At the start it reads only the tail of the newest file. It
remembers how far it has read that file, and then reads only what is new. A torn batch at the end is delivered once it
is complete.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..runtime.disk.disk import Disk
from ..runtime.log.format.batch import HEADER_BYTES, Batch
from ..runtime.log.manifest import LogFile, log_files
from ..runtime.log.reading.damage_scan import scan_past_damage
from ..runtime.log.reading.search import RECORD_BYTES_MAX, OpenFile, SearchAborted, find_good_batch, head_of
from .cluster_log import ClusterLog
from .files import LogLocation, find_log
from .options import Options
from .scan import MAX_ATTEMPTS, FilePosition, PartitionScan
from .sent_files import OffsetRange, SentLimit, copy_ranges
from .tasks import distribute, freeze_gc_once, selected_numbers, selected_partitions

TASK_ROWS = 200_000
"""About 0.1 s of decoding."""

TAIL_BYTES = 4 * RECORD_BYTES_MAX
"""The end of a newest file is searched in so many bytes before the file is read from its beginning."""

EndOffsets = dict[str, int]
"""The next offset of each log partition, by its number as a string (a JSON key)."""

log = logging.getLogger("callboard.spark")


class StreamTask(InputPartition):
    """The offset ranges that one task reads. ``sent``: what it needs of their files, if the driver has read it."""

    def __init__(self, ranges: Sequence[OffsetRange], sent: LogLocation | None = None) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.sent = sent


class LogEndTracker:
    """Tracks the end of one partition's log, and the positions of some offsets in its newest file."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._known_positions: list[FilePosition] = []

    def end(self) -> int:
        """The offset after the last complete batch."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._end()
            except FileNotFoundError:  # compacted after the files were listed
                continue
        return self._end()

    def nearest_position(self, offset: int) -> FilePosition | None:
        """The last known position at or before an offset. Forgets the positions before it."""
        earlier_positions = [position for position in self._known_positions if position.offset <= offset]
        self._known_positions = earlier_positions[-1:] + self._known_positions[len(earlier_positions) :]
        return earlier_positions[-1] if earlier_positions else None

    def _end(self) -> int:
        manifest, files = log_files(self._disk, self._folder)
        if not files or files[-1].is_closed:
            return manifest.clean_end
        file = files[-1]
        if not self._known_positions or self._known_positions[-1].name != file.path.name:
            self._known_positions = [self._start_position(file)]
        last = self._known_positions[-1]
        for batch in scan_past_damage(self._disk, file.path, last.offset, position=last.position):
            if isinstance(batch, Batch):
                last = FilePosition(last.name, batch.position + batch.size, batch.last_offset + 1)
        if last != self._known_positions[-1]:
            self._known_positions.append(last)
        return last.offset

    def _start_position(self, file: LogFile) -> FilePosition:
        """A position in the tail of a long file from which all batches are valid; the beginning if there is none.

        A record may contain bytes that look like batches. So at least half of the tail must be valid batches up to the
        end of the file: no record is that long.
        """
        beginning, disk, path = FilePosition(file.path.name, 0, file.base), self._disk, file.path
        fd = disk.open(path, os.O_RDONLY)
        try:
            size = disk.size(fd)
            tail = max(0, size - TAIL_BYTES)
            open_file = OpenFile(disk, fd, path, size)
            position = find_good_batch(open_file, tail, file.base, None) if tail > TAIL_BYTES else None
            if position is None or position > tail + TAIL_BYTES // 2:
                return beginning
            offset = head_of(open_file.read(HEADER_BYTES, position), 0).base_offset
        except SearchAborted:
            return beginning
        finally:
            disk.close(fd)
        pieces = scan_past_damage(disk, path, offset, size=size, position=position)
        is_valid = all(isinstance(piece, Batch) for piece in pieces)
        return FilePosition(file.path.name, position, offset) if is_valid else beginning


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, where one instance exists for the lifetime of the query, and reads in the tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._end_trackers: dict[int, LogEndTracker] = {}
        self._target: EndOffsets | None = None

    def initialOffset(self) -> EndOffsets:
        """Where a query without a checkpoint starts."""
        return self._ends() if self._options.from_latest else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def latestOffset(self, start: EndOffsets, limit: ReadLimit) -> EndOffsets:
        """Where the next batch ends. Never before ``start``: a shorter log has lost its end, or is a different log."""
        ends = self._ends() if self._target is None else self._target
        for number, offset in start.items():
            if (end := ends.get(number, 0)) < offset:
                log.warning(
                    "%s: the log of partition %s ends at offset %d, but the stream has read up to %d; the stream waits."
                    " If this is a different log, use a new checkpoint",
                    *(self._options.shown_path, number, end, offset),
                )
        ends = {number: max(end, start.get(number, 0)) for number, end in (start | ends).items()}
        return limit_end_offsets(start, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> EndOffsets:
        return self._ends()

    def partitions(self, start: EndOffsets, end: EndOffsets) -> list[InputPartition]:
        if not self._end_trackers:  # a restarted query first repeats the batch that it did not finish
            self._ends()
        ranges = []
        for number, end_offset in end.items():
            if (first := start.get(number, 0)) < end_offset:
                tracker = self._end_trackers.get(int(number))
                nearest = tracker.nearest_position(first) if tracker else None
                ranges.append(OffsetRange(int(number), first, end_offset, nearest))
        sizes = {offset_range: offset_range.end - offset_range.first for offset_range in ranges}
        tasks = [task for task in distribute(sizes, -(-sum(sizes.values()) // TASK_ROWS)) if task]
        if not self._options.sends_files:
            return [StreamTask(task) for task in tasks]
        location, limit = find_log(self._options.path), SentLimit(self._options.shown_path)
        return [StreamTask(task, copy_ranges(location, task, limit)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        if isinstance(partition, StreamTask):
            location = partition.sent or find_log(self._options.path)
            for offset_range in partition.ranges:
                yield from self._read(location, offset_range)

    def _read(self, location: LogLocation, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
        folder = location.folder(offset_range.number)
        if folder is None:
            raise FileNotFoundError(
                f"{self._options.shown_path}: partition {offset_range.number}, which the stream has read before, is"
                " missing; restore it, or use a new checkpoint"
            )
        scan = PartitionScan(location.disk, folder, offset_range.number, self._options)
        yield from scan.between(offset_range.first, offset_range.end, offset_range.start_hint)

    def _ends(self) -> EndOffsets:
        location = find_log(self._options.path)
        ends: EndOffsets = {}
        for number in selected_partitions(location, self._options):
            if (folder := location.folder(number)) is not None:
                tracker = self._end_trackers.setdefault(number, LogEndTracker(location.disk, folder))
                ends[str(number)] = tracker.end()
        return ends


class ClusterStreamReader(StreamReader):
    """Reads the store of a cluster. The driver asks for the manifests, the tasks for the segments."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        if isinstance(partition, StreamTask):
            for number, first, end, _ in partition.ranges:
                disk, folders, _ = ClusterLog(self._options.cluster).partition(number, first)
                yield from PartitionScan(disk, folders[number], number, self._options).between(first, end, None)

    def _ends(self) -> EndOffsets:
        ends = ClusterLog(self._options.cluster).ends()
        return {str(number): ends[number] for number in selected_numbers(ends, len(ends), self._options)}


def limit_end_offsets(start: Mapping[str, int], ends: EndOffsets, max_rows: int) -> EndOffsets:
    """End offsets with about ``max_rows`` offsets after ``start``, divided in proportion to each partition's backlog.

    Every partition with a backlog advances by at least one offset, so that none starves.
    """
    backlogs = {number: end - start.get(number, 0) for number, end in ends.items()}
    total = sum(backlogs.values())
    if total <= max_rows:
        return ends
    return {
        number: start.get(number, 0) + (max(1, count * max_rows // total) if count else 0)
        for number, count in backlogs.items()
    }
