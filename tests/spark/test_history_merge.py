"""Merging the files of a history: the same rows before and after, once each, also for queries and kills in between."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from history_helpers import DAY_MS, START_MS, WrittenLog, commit, records_in_log, records_in_table
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.spark.history import HistoryTable, keep, merge
from callboard.spark.history.merge import GRACE_MS
from callboard.spark.history.row_folders import parse_row_folder
from callboard.spark.history.table import TableInfo

RUNS, DAYS = 3, 2
LATER_MS = START_MS + 30 * DAY_MS


class Kept(NamedTuple):
    """A log, and the table of its history."""

    log: WrittenLog
    table: HistoryTable


def kept_in_several_runs(spark: SparkSession, folder: Path) -> Kept:
    """Each run adds a file for each day and log partition."""
    log = WrittenLog(folder / "data")
    for run in range(RUNS):
        log.write(
            *(
                (START_MS + day * DAY_MS + run, [Entry(partition, (commit("g", "t", day, run * 10 + number),))])
                for day in range(DAYS)
                for partition in range(2)
                for number in range(6)
            )
        )
        keep(spark, log.data, folder / "table", clock_ms=lambda: LATER_MS)
    return Kept(log, HistoryTable.open(folder / "table"))


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return kept_in_several_runs(spark, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def table(kept: Kept, tmp_path: Path) -> HistoryTable:
    """A copy, for changes."""
    shutil.copytree(kept.table.path, tmp_path / "table")
    return HistoryTable.open(tmp_path / "table")


def later(ms: int = 0) -> int:
    return LATER_MS + ms


def folders(table: HistoryTable) -> Counter[tuple[str, int]]:
    """The number of folders of each day and log partition."""
    return Counter((day, number) for day, number, _ in map(parse_row_folder, table.row_paths()))


def test_merged_table_has_same_rows_in_one_folder_for_each_day_and_partition(
    spark: SparkSession, table: HistoryTable
) -> None:
    expected, before = records_in_table(table.rows(spark)), folders(table)
    assert max(before.values()) >= 2 and len(expected) > 20
    running_query = table.rows(spark)
    result = merge(spark, table.path, clock_ms=later)
    slices = sum(count >= 2 for count in before.values())
    assert (result.replaced, result.merged) == (sum(count for count in before.values() if count >= 2), slices)
    assert records_in_table(table.rows(spark)) == expected, "each once"
    assert records_in_table(running_query) == expected, "a query that was planned before reads the old folders"
    assert merge(spark, table.path, clock_ms=later) == (0, 0, 0, 0), "nothing is merged twice"
    removed = merge(spark, table.path, clock_ms=lambda: later(GRACE_MS))
    assert (removed.removed, removed.merged) == (result.replaced, 0)
    assert max(folders(table).values()) == 1
    assert records_in_table(table.rows(spark)) == expected
    assert table.progress().replaced == ()


def test_today_is_not_merged(spark: SparkSession, table: HistoryTable) -> None:
    merge(spark, table.path, clock_ms=lambda: START_MS + DAY_MS)
    counts = folders(table)
    first, *others = sorted({day for day, _ in counts})
    replaced = {(folder.day, folder.log_partition) for folder in table.progress().replaced}
    assert {day for day, _ in replaced} == {first} and others


def test_merge_killed_before_its_commit_changes_nothing(
    spark: SparkSession, table: HistoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, before = records_in_table(table.rows(spark)), folders(table)

    def fail(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HistoryTable, "commit", fail)
        with pytest.raises(KeyboardInterrupt):
            merge(spark, table.path, clock_ms=later)
    assert sum(folders(table).values()) > sum(before.values()), "the new folders are there"
    assert records_in_table(table.rows(spark)) == expected, "and nobody reads them"
    assert merge(spark, table.path, clock_ms=later).merged > 0
    assert records_in_table(table.rows(spark)) == expected


def test_merge_that_loses_a_row_is_not_committed(
    spark: SparkSession, table: HistoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = table.progress().number
    counts = HistoryTable.count_rows
    monkeypatch.setattr(
        HistoryTable, "count_rows", lambda *arguments: {key: (n - 1, d) for key, (n, d) in counts(*arguments).items()}
    )
    with pytest.raises(OSError, match="nothing was committed and nothing is lost"):
        merge(spark, table.path, clock_ms=later)
    assert table.progress().number == number


def test_table_that_is_being_written_to_or_missing_is_refused(
    spark: SparkSession, table: HistoryTable, tmp_path: Path
) -> None:
    with table.exclusive_writer(), pytest.raises(StartError, match="another callboard history process"):
        merge(spark, table.path)
    with pytest.raises(StartError, match="found no history"):
        merge(spark, tmp_path / "nothing")


def test_table_of_another_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    HistoryTable.create(tmp_path / "table", TableInfo("id", "cluster", "delta", 0), Disk())
    with pytest.raises(StartError, match="its format is delta, expected one of parquet, orc, json"):
        merge(spark, tmp_path / "table")


def test_history_goes_on_after_a_merge(spark: SparkSession, kept: Kept) -> None:
    """Runs last: it changes the table that the others copy."""
    log, table = kept
    merge(spark, table.path, clock_ms=later)
    log.write(*((START_MS + 9, [Entry(0, (commit("g", "late", 0, number),))]) for number in range(12)))
    keep(spark, log.data, table.path, clock_ms=later)
    assert records_in_table(table.rows(spark)) == records_in_log(log.data)
    assert merge(spark, table.path, clock_ms=later).merged >= 1, "records of an old day that came later"
    assert records_in_table(table.rows(spark)) == records_in_log(log.data)
