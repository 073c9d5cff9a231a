"""A log as a stream: every record once, across restarts, with torn ends, and with faster compaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import BatchSpec, RecordSpec, encoded, write_files
from log_helpers import LazyDisk, append, entry, offset
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.job import CompactionJob, run
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading.search import SearchAborted
from callboard.runtime.log.reading.segment import segment_name
from callboard.spark import stream
from callboard.spark.options import parse_options
from callboard.spark.stream import LogEndTracker, StreamReader, StreamTask, limit_end_offsets

PARTITIONS = 3
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OffsetsLog]:
    """A log that is written while it is read."""
    DataFolder(tmp_path / "data", PARTITIONS).close()
    log = OffsetsLog(tmp_path / "data", PARTITIONS, disk=LazyDisk(), segment_bytes=3000)
    log.open()
    yield log
    log.close()


def write(log: OffsetsLog, numbers: range) -> None:
    """Commit each number in every partition; the files contain all records afterwards."""
    for number in numbers:
        append(log, [entry(partition, number) for partition in range(PARTITIONS)])
    for partition in range(PARTITIONS):
        log.read(partition)


def drain(spark: SparkSession, root: Path, name: str, **options: str) -> list[Any]:
    """Run the stream up to the current end, with its checkpoint and its table in the root folder."""
    table, checkpoint = str(root.parent / f"{name}.parquet"), str(root.parent / f"{name}.checkpoint")
    frame = spark.readStream.format("callboard").options(**options).load(str(root))
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    assert query.exception() is None
    return sorted(
        (row["log_partition"], row["log_offset"], row["kind"], row["offset"])
        for row in spark.read.schema(frame.schema).parquet(table).collect()
    )


def rows(numbers: range) -> list[Any]:
    return sorted((partition, number, "offset", number) for partition in range(PARTITIONS) for number in numbers)


def test_stream_delivers_every_record_once_across_restarts(
    spark: SparkSession, tmp_path: Path, log: OffsetsLog
) -> None:
    """Three runs from one checkpoint while the log grows, each in several batches, over many segments."""
    root = tmp_path / "data"
    for end in (30, 31, 80):
        write(log, range({30: 0, 31: 30, 80: 31}[end], end))
        assert drain(spark, root, "all", rowsPerTrigger="40") == rows(range(end))
    assert drain(spark, root, "all") == rows(range(80)), "no new records, no new rows"
    assert len(list(root.rglob("__consumer_offsets-0/*.log"))) > 2


def test_stream_with_starting_offsets_latest_delivers_only_new_records(
    spark: SparkSession, tmp_path: Path, log: OffsetsLog
) -> None:
    root = tmp_path / "data"
    write(log, range(5))
    assert drain(spark, root, "late", startingOffsets="latest") == []
    write(log, range(5, 8))
    assert drain(spark, root, "late", startingOffsets="latest") == rows(range(5, 8))


def test_stream_slower_than_compaction_delivers_rest_and_gap_row(
    spark: SparkSession, tmp_path: Path, log: OffsetsLog
) -> None:
    root = tmp_path / "data"
    write(log, range(10))
    assert drain(spark, root, "slow") == rows(range(10))
    write(log, range(10, 200))
    for _ in range(2):
        for partition in range(PARTITIONS):
            folder = root / f"__consumer_offsets-{partition}"
            assert run(CompactionJob(folder, CompactionSettings(START_MS, "test", -1.0), grace_ms=0)).reason == ""
    rows_by_log = drain(spark, root, "slow")
    new = [row for row in rows_by_log if row[1] >= 10 and row[2] == "offset"]
    assert {row for row in rows(range(200)) if row[1] == 199} <= set(new), "the newest record of each key is delivered"
    assert len(new) < PARTITIONS * 190 and len(set(rows_by_log)) == len(rows_by_log)
    gaps = [row for row in rows_by_log if row[2] == "gap"]
    assert [row[0] for row in gaps] == list(range(PARTITIONS))
    table = spark.read.parquet(str(tmp_path / "slow.parquet")).where("kind = 'gap' and log_partition = 0")
    (notice,) = [row["notice"] for row in table.collect()]
    missing = 190 - sum(row[0] == 0 for row in new)
    assert notice.startswith(f"{missing} of the offsets 10 to 199 are no longer in the log")


# The driver's part, without Spark ------------------------------------------------------------------------------------


def batch(number: int, time_ms: int = START_MS) -> bytes:
    return encoded(BatchSpec((RecordSpec(*encode(offset("g", number))),)), number, time_ms)


def offsets(reader: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    tables = [batch for part in reader.partitions(start, end) for batch in StreamReader.read(reader, part)]
    return [offset for table in tables for offset in table.column("log_offset").to_pylist()]


def test_stream_delivers_torn_batch_once_complete(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    path = folder / segment_name(0)
    reader = StreamReader(parse_options({"path": str(tmp_path)}))
    all_batches = b"".join(map(batch, range(3)))
    path.write_bytes(all_batches[:-5])
    first = reader.latestOffset({}, ReadAllAvailable())
    assert (first, offsets(reader, {}, first)) == ({"0": 2}, [0, 1])
    path.write_bytes(all_batches + batch(3)[:20])
    second = reader.latestOffset(first, ReadAllAvailable())
    assert (second, offsets(reader, first, second)) == ({"0": 3}, [2])
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    assert offsets(reader, second, second) == []


def test_end_offset_does_not_reread_newest_file(tmp_path: Path) -> None:
    """A task's start position is where the new records begin."""
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    path = folder / segment_name(0)
    tracker = LogEndTracker(Disk(), folder)
    path.write_bytes(batch(0) + batch(1))
    assert tracker.end() == 2
    path.write_bytes(batch(0) + batch(1) + batch(2))
    assert tracker.end() == 3
    mark = tracker.nearest_position(2)
    assert mark is not None and (mark.name, mark.position, mark.offset) == (path.name, len(batch(0) * 2), 2)
    (folder / segment_name(3)).write_bytes(batch(3))
    assert tracker.end() == 4
    assert tracker.nearest_position(3) is not None and tracker.nearest_position(2) is None


class CountingDisk(Disk):
    bytes_read = 0

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.bytes_read += len(data)
        return data


TAIL_BYTES = 8000


@pytest.fixture
def long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A newest file of 1,000 batches, much longer than the tail that is read at the start."""
    monkeypatch.setattr(stream, "TAIL_BYTES", TAIL_BYTES)
    path = tmp_path / "__consumer_offsets-0" / segment_name(0)
    path.parent.mkdir()
    path.write_bytes(b"".join(map(batch, range(1000))))
    return path


def read_end(path: Path) -> tuple[int, int]:
    """The end offset that a new stream finds, and how many bytes it reads for it."""
    disk = CountingDisk()
    return LogEndTracker(disk, path.parent).end(), disk.bytes_read


def test_first_end_offset_reads_tail_of_newest_file(long_file: Path) -> None:
    end, bytes_read = read_end(long_file)
    assert end == 1000
    assert bytes_read < 5 * TAIL_BYTES < long_file.stat().st_size // 2


def test_batch_that_is_repeated_after_a_restart_starts_in_tail_of_newest_file(long_file: Path) -> None:
    """Spark asks the new reader for this batch before it asks for the end of the log."""
    reader = StreamReader(parse_options({"path": str(long_file.parent.parent)}))
    (planned,) = reader.partitions({"0": 990}, {"0": 995})
    assert isinstance(planned, StreamTask)
    hint = planned.ranges[0].start_hint
    assert hint is not None and hint.position > long_file.stat().st_size - 2 * TAIL_BYTES
    assert [offset for table in reader.read(planned) for offset in table.column("log_offset").to_pylist()] == [
        *range(990, 995)
    ]


def test_first_end_offset_of_file_with_torn_end_is_that_of_last_whole_batch(long_file: Path) -> None:
    long_file.write_bytes(long_file.read_bytes()[:-5])
    assert read_end(long_file)[0] == 999


def test_first_end_offset_of_record_that_contains_batches_is_that_of_log(long_file: Path) -> None:
    contained = b"".join(batch(number) for number in range(5000, 5030))
    last = encoded(BatchSpec((RecordSpec(b"\0\x09", contained),)), 1000, START_MS)
    long_file.write_bytes(long_file.read_bytes() + last)
    assert read_end(long_file)[0] == 1001


def test_first_end_offset_of_long_record_that_contains_batches_is_that_of_log(long_file: Path) -> None:
    """The record is longer than half of the tail, so the file is read from its beginning."""
    contained = b"".join(batch(number) for number in range(5000, 5070))
    assert len(contained) > TAIL_BYTES // 2
    last = encoded(BatchSpec((RecordSpec(b"\0\x09", contained),)), 1000, START_MS)
    long_file.write_bytes(long_file.read_bytes() + last)
    assert read_end(long_file)[0] == 1001


def test_first_end_offset_of_search_that_is_given_up_is_read_from_beginning(
    long_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_arguments: object) -> None:
        raise SearchAborted(0)

    monkeypatch.setattr(stream, "find_good_batch", give_up)
    end, bytes_read = read_end(long_file)
    assert end == 1000 and bytes_read >= long_file.stat().st_size


def test_position_in_closed_file_is_not_used(tmp_path: Path) -> None:
    """Kafka replaces closed files under the same names, so positions are valid only in the open file."""
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (folder / segment_name(0)).write_bytes(batch(0) + batch(1))
    reader = StreamReader(parse_options({"path": str(tmp_path)}))
    first = reader.latestOffset({}, ReadAllAvailable())
    (folder / segment_name(0)).write_bytes(batch(0) + batch(1) + batch(2))
    second = reader.latestOffset(first, ReadAllAvailable())
    (planned,) = reader.partitions(first, second)
    (folder / segment_name(0)).write_bytes(batch(2))  # cleaned
    (folder / segment_name(3)).write_bytes(batch(3))
    assert [table.column("log_offset").to_pylist() for table in reader.read(planned)] == [[2]]


def test_available_now_stops_at_initial_log_end(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_files(Disk(), [[BatchSpec((RecordSpec(b"\0\x09", b"1"),)) for _ in range(5)]], folder)
    reader = StreamReader(parse_options({"path": str(tmp_path), "rowsPerTrigger": "2"}))
    reader.prepareForTriggerAvailableNow()
    write_files(Disk(), [[BatchSpec((RecordSpec(b"\0\x09", b"1"),))]], folder, base=5)
    limit = reader.getDefaultReadLimit()
    ends: list[dict[str, int]] = [{}]
    while (end := reader.latestOffset(ends[-1], limit)) != ends[-1]:
        ends.append(end)
    assert ends == [{}, {"0": 2}, {"0": 4}, {"0": 5}]
    assert reader.reportLatestOffset() == {"0": 6}


def test_log_shorter_than_checkpoint_waits_with_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(Disk(), [[BatchSpec((RecordSpec(b"\0\x09", b"1"),))]], tmp_path / "__consumer_offsets-0")
    reader = StreamReader(parse_options({"path": str(tmp_path)}))
    assert reader.latestOffset({"0": 7}, ReadAllAvailable()) == {"0": 7}
    assert "partition 0 ends at offset 1, but the stream has read up to 7" in caplog.text
    (planned,) = reader.partitions({"5": 0}, {"5": 3})
    with pytest.raises(FileNotFoundError, match="partition 5, which the stream has read before, is missing"):
        list(reader.read(planned))


def test_limit_end_offsets_divides_rows_by_backlog() -> None:
    assert limit_end_offsets({"0": 10}, {"0": 110, "1": 300, "2": 0}, 40) == {"0": 20, "1": 30, "2": 0}
    assert limit_end_offsets({}, {"0": 1, "1": 1000}, 10) == {"0": 1, "1": 9}
    assert limit_end_offsets({}, {"0": 5}, 10) == {"0": 5}


def test_stream_with_row_limit_delivers_all_records_in_batches(tmp_path: Path) -> None:
    """Every offset is read once, with any batch size; markers and transactional offsets count too."""
    write_log(tmp_path, LogShape(3000, 2, groups=20, segment_bytes=30_000, transaction_rate=0.1))
    reader = StreamReader(parse_options({"path": str(tmp_path)}))
    start: dict[str, int] = {}
    offsets_read: list[tuple[int, int]] = []
    while (end := reader.latestOffset(start, ReadMaxRows(700))) != start:
        for part in reader.partitions(start, end):
            for table in reader.read(part):
                columns = table.column("log_partition").to_pylist(), table.column("log_offset").to_pylist()
                offsets_read += zip(*columns, strict=True)
        start = end
    assert sorted(offsets_read) == [(number, offset) for number in (0, 1) for offset in range(start[str(number)])]
    assert len(offsets_read) >= 3000
