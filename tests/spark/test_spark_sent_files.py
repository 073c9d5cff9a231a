"""The option files=driver: the driver reads the log and sends it to tasks that cannot open it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from log_helpers import offset
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType
from spark_helpers import rows_of

from callboard.actors.ports import Entry
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.manifest import newest_manifest, segments_folder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.spark import sent_files
from callboard.spark.columns import ALL_COLUMNS
from callboard.spark.options import parse_options
from callboard.spark.source import BatchReader, CallboardSource


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

    def compact_once(disk: Disk, path: Path) -> bytes:
        if folder in path.parents and next(compactions, None) is not None:
            assert compact(Disk(), folder, CompactionSettings(5, "test", -1.0)) is not None
        return read_file(disk, path)

    expected = {row["log_offset"] for row in rows(data, mode="live")}
    monkeypatch.setattr(sent_files, "read_file", compact_once)
    assert {row["log_offset"] for row in rows(data, data.with_name("moved"), mode="live", files="driver")} == expected


def test_log_that_is_too_large_to_send_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_files, "SENT_BYTES_MAX", 1000)
    with pytest.raises(ValueError, match=r"files=driver would send [\d,]+ bytes of .*, expected at most 1,000"):
        rows(data, files="driver")


def test_stream_cannot_send_files(data: Path) -> None:
    source = CallboardSource({"path": str(data), "files": "driver"})
    with pytest.raises(ValueError, match="files=driver is for batch queries"):
        source.streamReader(StructType([StructField(name, StringType()) for name in ALL_COLUMNS]))


def test_spark_counts_sent_files(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write_log(root, LogShape(2000, 3, groups=20, segment_bytes=20_000))
    DataFolder(root, 3).close()
    sent = spark.read.format("callboard").option("files", "driver").load(str(root))
    assert sent.count() == spark.read.format("callboard").load(str(root)).count() > 1000
