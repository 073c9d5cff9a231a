"""The option files=driver: the driver reads the log and sends it to tasks that cannot open it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from log_helpers import LazyDisk, append, offset
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark_helpers import rows_of

from callboard.actors.ports import Entry
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.manifest import log_files, newest_manifest, segments_folder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.spark import sent_files
from callboard.spark.options import parse_options
from callboard.spark.sent_files import SentDisk, SentFile
from callboard.spark.source import BatchReader
from callboard.spark.stream import EndOffsets, StreamReader, StreamTask


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions; the first one is compacted up to some point."""
    root = tmp_path / "data"
    DataFolder(root, 2).close()
    log = OffsetsLog(root, 2, threads=InlineThreads(), segment_bytes=300, checkpoint_bytes=600)
    log.open()
    for number in range(30):
        for partition in (0, 1):
            log.append([Entry(partition, (offset(f"g{number % 5}", number),))], 5, lambda _: None)
        if number == 12:
            assert compact(Disk(), root / folder_name(0), CompactionSettings(5, "test", -1.0)) is not None
    log.close()
    return root


def rows(data: Path, moved_to: Path | None = None, **options: str) -> list[dict[str, Any]]:
    """The rows that tasks read. ``moved_to``: the folder is renamed after Spark has planned."""
    reader = BatchReader(parse_options({"path": str(data), **options}))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    if moved_to is not None:
        data.rename(moved_to)
    return [row for task in tasks for batch in reader.read(task) for row in rows_of(batch)]


@pytest.mark.parametrize("mode", ["records", "live"])
def test_tasks_read_what_the_driver_has_sent(data: Path, mode: str) -> None:
    expected = rows(data, mode=mode)
    assert len(expected) > 5
    assert rows(data, data.with_name("moved"), mode=mode, files="driver") == expected


def test_tasks_without_sent_files_need_the_folder(data: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows(data, data.with_name("moved"))


def test_missing_segment_is_damage_in_the_copy_too(data: Path) -> None:
    first = newest_manifest(Disk(), data / folder_name(0)).segments[0]
    (segments_folder(data / folder_name(0)) / first.file).unlink()
    with pytest.raises(DamagedBatch, match="it is missing, but listed in manifest"):
        rows(data, files="driver")


def test_manifest_that_changes_while_it_is_copied_is_read_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, compactions = data / folder_name(1), iter(range(1))
    read = sent_files._read_if_there

    def compact_once(disk: Disk, path: Path, start: int = 0) -> SentFile | None:
        if folder in path.parents and next(compactions, None) is not None:
            before = {file.path for file in log_files(Disk(), folder).files}
            assert compact(Disk(), folder, CompactionSettings(5, "test", -1.0)) is not None
            for replaced in before - {file.path for file in log_files(Disk(), folder).files}:
                replaced.unlink()
        return read(disk, path, start)

    moved, all_rows = data.with_name("moved"), len(rows(data))
    monkeypatch.setattr(sent_files, "_read_if_there", compact_once)
    sent, compacted = (
        sorted((row["log_partition"], row["log_offset"]) for row in each)
        for each in (rows(data, moved, files="driver"), rows(moved))
    )
    assert sent == compacted and len(sent) < all_rows


def test_log_that_is_too_large_to_send_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_files, "SENT_BYTES_MAX", 1000)
    with pytest.raises(ValueError, match=r"files=driver would send [\d,]+ bytes of .*, expected at most 1,000"):
        rows(data, files="driver")


def stream_batch(reader: StreamReader, start: EndOffsets, end: EndOffsets) -> list[StreamTask]:
    """The tasks of a batch, as they arrive at the workers."""
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    assert all(isinstance(task, StreamTask) for task in tasks)
    return list(tasks)


def rows_of_tasks(reader: StreamReader, tasks: list[StreamTask]) -> list[dict[str, Any]]:
    return [row for task in tasks for batch in reader.read(task) for row in rows_of(batch)]


def sent_bytes(tasks: list[StreamTask]) -> int:
    disks = [task.sent.disk for task in tasks if task.sent]
    return sum(len(file.data) for disk in disks if isinstance(disk, SentDisk) for file in disk._contents.values())


def test_tasks_of_a_stream_read_what_the_driver_has_sent(data: Path) -> None:
    """In batches that begin and end within files. Only the files of a batch are sent."""
    opening, sending = (
        StreamReader(parse_options({"path": str(data), "files": files})) for files in ("shared", "driver")
    )
    end = opening.latestOffset({}, ReadAllAvailable())
    middle = {number: offset * 2 // 3 for number, offset in end.items()}
    ranges: tuple[tuple[EndOffsets, EndOffsets], ...] = (({}, middle), (middle, end), ({}, end))
    expected = [rows_of_tasks(opening, stream_batch(opening, *each)) for each in ranges]
    batches = [stream_batch(sending, *each) for each in ranges]
    data.rename(data.with_name("moved"))
    assert [rows_of_tasks(sending, tasks) for tasks in batches] == expected and all(expected)
    assert sent_bytes(batches[1]) < sent_bytes(batches[2]) / 2


def test_stream_sends_only_what_is_new_in_the_newest_file(tmp_path: Path) -> None:
    DataFolder(tmp_path, 1).close()
    log = OffsetsLog(tmp_path, 1, disk=LazyDisk())
    log.open()
    reader = StreamReader(parse_options({"path": str(tmp_path), "files": "driver"}))
    ends: list[EndOffsets] = [{}]
    sizes: list[int] = []
    for numbers in (range(300), range(300, 303)):
        for number in numbers:
            append(log, [Entry(0, (offset("g", number),))])
        log.read(0)
        ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
        tasks = stream_batch(reader, ends[-2], ends[-1])
        sizes.append(sent_bytes(tasks))
        assert [row["offset"] for row in rows_of_tasks(reader, tasks)] == list(numbers)
    log.close()
    assert sizes[1] < sizes[0] / 50


def test_batch_of_a_stream_that_is_too_large_to_send_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_files, "SENT_BYTES_MAX", 1000)
    reader = StreamReader(parse_options({"path": str(data), "files": "driver"}))
    end = reader.latestOffset({}, ReadAllAvailable())
    with pytest.raises(ValueError, match="give a stream rowsPerTrigger"):
        reader.partitions({}, end)


def test_spark_counts_sent_files(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write_log(root, LogShape(2000, 3, groups=20, segment_bytes=20_000))
    DataFolder(root, 3).close()
    sent = spark.read.format("callboard").option("files", "driver").load(str(root))
    assert sent.count() == spark.read.format("callboard").load(str(root)).count() > 1000
