"""Filters that are pushed down: the same rows from fewer partitions, files and records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from spark_helpers import Row, rows_of

from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.reading.partition_reader import partition_of
from callboard.spark.options import parse_options
from callboard.spark.pushdown import SETTING
from callboard.spark.source import PushingReader

PARTITIONS = 4


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many small segments in each partition."""
    root = tmp_path_factory.mktemp("log")
    write_log(root, LogShape(6000, PARTITIONS, groups=20, segment_bytes=20_000))
    DataFolder(root, PARTITIONS).close()
    return root


class CountingDisk:
    """The bytes and the files that are read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.files: set[Path] = set()
        open_file, read = Disk.open, Disk.read

        def count_open(disk: Disk, path: Path, flags: int) -> int:
            self.files.add(path)
            return open_file(disk, path, flags)

        def count_read(disk: Disk, fd: int, size: int, position: int) -> bytes:
            data = read(disk, fd, size, position)
            self.bytes += len(data)
            return data

        patch.setattr(Disk, "open", count_open)
        patch.setattr(Disk, "read", count_read)


class ReadResult:
    """``positions``: of the rows that a reader gives Spark."""

    def __init__(self, log: Path, *filters: Filter, **options: str) -> None:
        reader = PushingReader(parse_options({"path": str(log), "filters": "pushed", **options}))
        assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates all of them again"
        with pytest.MonkeyPatch.context() as patch:
            tasks = reader.partitions()
            disk = CountingDisk(patch)
            self.rows: list[Row] = [row for task in tasks for batch in reader.read(task) for row in rows_of(batch)]
        self.bytes, self.files = disk.bytes, len(disk.files)

    def where(self, **values: object) -> list[Row]:
        return [row for row in self.rows if all(row[name] == value for name, value in values.items())]


@pytest.fixture(scope="module")
def everything(log: Path) -> ReadResult:
    return ReadResult(log)


def group_of(everything: ReadResult) -> str:
    return str(next(row["group"] for row in everything.rows if row["group"]))


def test_filter_by_group_reads_one_partition(log: Path, everything: ReadResult) -> None:
    group = group_of(everything)
    for each in (EqualTo(("group",), group), EqualNullSafe(("group",), group), In(("group",), (group, None))):
        found = ReadResult(log, IsNotNull(("group",)), each)
        assert found.where(group=group) == everything.where(group=group) != []
        assert found.bytes < everything.bytes / 2 and found.files < everything.files / 2
        assert len(found.rows) < len(everything.where(log_partition=partition_of(group, PARTITIONS)))


def test_filter_by_log_partition_reads_only_these(log: Path, everything: ReadResult) -> None:
    found = ReadResult(log, In(("log_partition",), (1, 99)))
    assert found.rows == everything.where(log_partition=1) and found.bytes < everything.bytes / 2
    assert ReadResult(log, EqualTo(("log_partition",), 99)).rows == []
    assert ReadResult(log, EqualTo(("log_partition",), 1), partitions="2-3").rows == []


def test_filter_by_log_offset_reads_only_segments_with_these(log: Path, everything: ReadResult) -> None:
    ranges: list[tuple[list[Filter], range]] = [
        ([GreaterThan(("log_offset",), 99), LessThan(("log_offset",), 120)], range(100, 120)),
        ([GreaterThanOrEqual(("log_offset",), 100), LessThanOrEqual(("log_offset",), 119)], range(100, 120)),
        ([EqualTo(("log_offset",), 100)], range(100, 101)),
        ([In(("log_offset",), (100, 103))], range(100, 104)),
    ]
    last = max(row["log_offset"] for row in everything.rows)
    ranges.append(([GreaterThan(("log_offset",), last - 20)], range(last - 19, last + 1)))
    for filters, offsets in ranges:
        found = ReadResult(log, *filters)
        assert found.rows == [row for row in everything.rows if row["log_offset"] in offsets] != []
        assert found.files < everything.files / 2


def test_filter_by_kind_decodes_only_these(log: Path, everything: ReadResult) -> None:
    found = ReadResult(log, EqualTo(("kind",), "group"))
    assert found.rows == everything.where(kind="group") != []


def test_other_filters_change_nothing(log: Path, everything: ReadResult) -> None:
    others = (
        *(EqualTo(("topic",), "t"), GreaterThan(("offset",), 5), GreaterThan(("log_partition",), 1)),
        *(Not(EqualTo(("group",), "g")), EqualNullSafe(("group",), None), EqualTo(("consumer", "group"), "g")),
    )
    assert ReadResult(log, *others).rows == everything.rows


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


def test_spark_pushes_filters_where_the_session_allows_it(
    pushing: SparkSession, log: Path, everything: ReadResult
) -> None:
    """With the option a query has one task for the one partition that it needs. Without it nothing is pushed down."""
    group = group_of(everything)
    expected = sorted(row["log_offset"] for row in everything.where(group=group))
    reader = pushing.read.format("callboard").option("columns", "group,log_partition,log_offset")
    pushed = reader.option("filters", "pushed").load(str(log)).where(f"`group` = '{group}' and log_offset >= 0")
    assert sorted(row["log_offset"] for row in pushed.collect()) == expected
    frame = reader.option("filters", "spark").load(str(log))
    assert frame.where(f"`group` = '{group}'").count() == len(expected)
    assert frame.count() == len(everything.rows), "not only what the query before has asked for"


def test_session_that_does_not_allow_it_is_named(spark: SparkSession, log: Path) -> None:
    spark.conf.unset(SETTING)
    frame = spark.read.format("callboard").option("filters", "pushed").load(str(log))
    with pytest.raises(AnalysisException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        frame.where("log_partition = 1").count()
