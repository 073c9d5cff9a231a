"""Small logs for tests of history; the records of a log and of a table."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from log_helpers import LazyDisk, append
from pyspark.sql import DataFrame

from callboard.actors.ports import Entry
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
)
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading.partition_reader import partition_folders, read_partition

START_MS = 1_763_700_000_000  # 2025-11-21T04:40:00Z
DAY_MS = 86_400_000
NO_PROGRESS: tuple[str, ...] = ()

LogPosition = tuple[int, int]
"""A log partition and a log offset."""

RecordFields = tuple[Any, ...]


class WrittenLog:
    """A data folder with a log, written by the coordinator's log code."""

    def __init__(self, data: Path, partitions: int = 2, segment_bytes: int = 400) -> None:
        self.data = data
        DataFolder(data, partitions).close()
        self._partitions = partitions
        self._segment_bytes = segment_bytes

    def write(self, *rounds: tuple[int, Iterable[Entry]]) -> None:
        """Write rounds with their times; opens the log and closes it cleanly."""
        log = OffsetsLog(self.data, self._partitions, disk=LazyDisk(), segment_bytes=self._segment_bytes)
        log.open()
        for time_ms, entries in rounds:
            append(log, list(entries), time_ms)
        log.close()

    def folder(self, number: int) -> Path:
        return partition_folders(self.data)[number]


def commit(
    group: str, topic: str, partition: int, offset: int | None, time_ms: int = START_MS, producer: int | None = None
) -> OffsetRecord | PendingOffsetRecord:
    value = None if offset is None else OffsetValue(offset, 3, f"at {offset}", time_ms)
    if producer is None:
        return OffsetRecord(group, topic, partition, value)
    return PendingOffsetRecord(group, topic, partition, value, producer, 0)


def end(producer: int, committed: bool) -> MarkerRecord:
    return MarkerRecord(producer, 0, committed)


def generation(group: str, number: int, time_ms: int = START_MS, **members: list[tuple[str, int]]) -> GroupRecord:
    """A group record. ``members``: the assigned partitions by member name."""
    values = tuple(
        MemberValue(name, None, f"client-{name}", f"/10.0.0.{index}", 60_000, 10_000, b"", assignment(partitions))
        for index, (name, partitions) in enumerate(members.items(), start=1)
    )
    leader = values[0].member_id if values else None
    return GroupRecord(group, GroupValue("consumer", number, "range" if values else None, leader, time_ms, values))


def assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    topics = [struct.pack(f">h{len(topic)}sii", len(topic), topic.encode(), 1, number) for topic, number in partitions]
    return struct.pack(">hi", 0, len(topics)) + b"".join(topics) + struct.pack(">i", -1)


def records_in_log(data: Path, closed_only: bool = True) -> dict[LogPosition, RecordFields]:
    """Every record of a log by its position, in the format of ``records_in_table``."""
    records: dict[LogPosition, RecordFields] = {}
    for number, folder in partition_folders(data).items():
        files = log_files(Disk(), folder).files
        limit = files[-1].base if closed_only and not files[-1].is_closed else 2**63
        for offset, time_ms, record in read_partition(folder):
            if offset < limit:
                records[number, offset] = (time_ms, *_record_fields(record))
    return records


def _record_fields(record: Record) -> RecordFields:
    if isinstance(record, MarkerRecord):
        return "marker", None, None, None, None, record.producer_id, record.committed, None
    if isinstance(record, GroupRecord):
        members = None if record.value is None else tuple(member.member_id for member in record.value.members)
        return "group", record.group_id, None, None, None, None, None, members
    assert isinstance(record, OffsetRecord | PendingOffsetRecord)
    producer = record.producer_id if isinstance(record, PendingOffsetRecord) else None
    offset = record.value.offset if record.value else None
    return "offset", record.group_id, record.topic, record.partition, offset, producer, None, None


def records_in_table(rows: DataFrame) -> dict[LogPosition, RecordFields]:
    """The records of a table by their positions. Fails if a position occurs twice."""
    names = ("log_partition", "log_offset", "unix_millis(timestamp)", "kind", "group", "topic", "partition", "offset")
    frame = rows.selectExpr(*names, "producer_id", "committed", "members.member_id as members")
    lines = [tuple(row) for row in frame.collect()]
    duplicates = [position for position, count in Counter(line[:2] for line in lines).items() if count > 1]
    assert duplicates == []
    return {line[:2]: (*line[2:-1], None if line[-1] is None else tuple(line[-1])) for line in lines}


class Killed(BaseException):
    """Simulates a kill; a BaseException, so that error handlers do not catch it."""


class KillingDisk(Disk):
    """The real disk; raises ``Killed`` after a number of changes."""

    def __init__(self, changes: int | None = None) -> None:
        self.changes = 0
        self._limit = changes

    def step(self) -> None:
        if self.changes == self._limit:
            raise Killed
        self.changes += 1

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self.step()
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self.step()
        return super().write(fd, data, position)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def make_folder(self, path: Path) -> None:
        self.step()
        super().make_folder(path)

    def sync(self, fd: int) -> None:
        self.step()

    def sync_folder(self, path: Path) -> None:
        self.step()
