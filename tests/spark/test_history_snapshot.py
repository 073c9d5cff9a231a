"""Snapshots of a history: which files a state is read from, when one is made, and when one is given up.

``test_history_states.py`` compares the states.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from history_helpers import DAY_MS, START_MS, WrittenLog, commit
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.manifest import log_files
from callboard.spark.history import HistoryTable, as_of, keep, take_snapshot
from callboard.spark.history.keep import days_written, without_changed_snapshots
from callboard.spark.history.progress import HistoryProgress, ReplacedFolder, Snapshot
from callboard.spark.history.ranges import KeepRange, ValidRange
from callboard.spark.history.snapshot import first_time_not_kept_ms
from callboard.spark.history.table import TableInfo

SNAPSHOTS = (Snapshot("2025-11-21", 2, 10), Snapshot("2025-11-23", 4, 20))


def day(number: int) -> int:
    """The time of some ms after the start of the log, which is at 04:40 of the first day."""
    return START_MS + number * DAY_MS


def write(written: WrittenLog, time_ms: int, count: int = 12) -> None:
    written.write(*((time_ms + number, [Entry(0, (commit("g", "t", 0, number),))]) for number in range(count)))


@pytest.fixture
def table(tmp_path: Path) -> HistoryTable:
    return HistoryTable.create(tmp_path / "table", TableInfo("id", "cluster", "parquet", 0), Disk())


def make_row_folder(table: HistoryTable, name: str, log_partition: int, from_offset: int) -> None:
    folder = ReplacedFolder(name, log_partition, from_offset, 0)
    (table.path / folder.relative_path).mkdir(parents=True)


def test_as_of_reads_snapshot_and_later_days_only(spark: SparkSession, tmp_path: Path) -> None:
    """A snapshot is not made of the present day, nor of few records, and a second one only of as many as it has."""
    written, path = WrittenLog(tmp_path / "data", 1), tmp_path / "table"
    for number in range(3):
        write(written, day(number))
        keep(spark, written.data, path)

    def snapshot(today: int, records_min: int) -> Snapshot | None:
        return take_snapshot(spark, path, clock_ms=lambda: day(today), records_min=records_min)

    assert snapshot(0, 1) is None, "its only day has not ended"
    assert snapshot(2, 100) is None, "there are only 24 records"
    assert snapshot(2, 24) == Snapshot("2025-11-22", 4, 1), "one key, one record"
    assert snapshot(2, 1) is None, "there is one of that day"

    assert (
        first_time_not_kept_ms(written.data, HistoryTable.open(path).progress(), day(9)) // DAY_MS == day(2) // DAY_MS
    )

    def folders_read(today: int) -> set[str]:
        files = as_of(spark, path, day(today) + 1000).inputFiles()
        names = (str(Path(file.removeprefix("file://")).parent.relative_to(path)) for file in files)
        return {name.partition("/log_partition=")[0] for name in names}

    assert folders_read(2) == {"_callboard/snapshots/2025-11-22-4", "day=2025-11-23"}
    assert folders_read(1) == {"day=2025-11-21", "day=2025-11-22", "day=2025-11-23"}, "no snapshot of an earlier day"
    write(written, day(1) + 5000)
    keep(spark, written.data, path)
    assert HistoryTable.open(path).progress().snapshots == (), "the clock went back to the snapshot's day"
    assert snapshot(2, 1) is None, "records of that day stand behind those of the next one"


@pytest.mark.parametrize(
    ("day_of_run", "expected"),
    [("2025-11-24", SNAPSHOTS), ("2025-11-23", SNAPSHOTS[:1]), ("2025-11-22", SNAPSHOTS[:1]), ("2025-11-21", ())],
)
def test_records_of_a_day_give_up_its_snapshot_and_later_ones(
    table: HistoryTable, day_of_run: str, expected: tuple[Snapshot, ...]
) -> None:
    make_row_folder(table, "2025-11-20", 0, 0)
    make_row_folder(table, day_of_run, 0, 7)
    valid = [ValidRange(KeepRange(0, Path("p"), 7, 9, 1), 2)]
    progress = HistoryProgress(5, {0: 9}, 0, 0, snapshots=SNAPSHOTS)
    assert without_changed_snapshots(progress, days_written(table, valid)).snapshots == expected


def test_records_without_a_day_give_up_all_snapshots(table: HistoryTable) -> None:
    """They count as older than all others, so no snapshot would have them."""
    make_row_folder(table, "__HIVE_DEFAULT_PARTITION__", 0, 7)
    valid = [ValidRange(KeepRange(0, Path("p"), 7, 9, 1), 2)]
    progress = HistoryProgress(5, {0: 9}, 0, 0, snapshots=SNAPSHOTS)
    assert without_changed_snapshots(progress, days_written(table, valid)).snapshots == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("2025-11-21", None), ("2025-11-22", SNAPSHOTS[0]), ("2025-11-23", SNAPSHOTS[0]), ("2025-11-24", SNAPSHOTS[1])],
)
def test_state_is_read_from_the_last_snapshot_before_its_day(name: str, expected: Snapshot | None) -> None:
    progress = HistoryProgress(5, {}, 0, 0, snapshots=SNAPSHOTS)
    assert progress.snapshot_before(date.fromisoformat(name)) == expected


def test_first_time_not_kept_is_that_of_the_record_after_the_history(tmp_path: Path) -> None:
    written = WrittenLog(tmp_path / "data", 1)
    assert first_time_not_kept_ms(written.data, HistoryProgress(0, {}, 0, 0), day(9)) == day(9), "no records"
    write(written, day(1))
    assert first_time_not_kept_ms(written.data, HistoryProgress(0, {}, 0, 0), day(9)) == day(1)
    files = log_files(Disk(), written.folder(0)).files
    progress = HistoryProgress(1, {0: files[-1].base}, 0, 0)
    assert first_time_not_kept_ms(written.data, progress, day(9)) == day(1) + files[-1].base > day(1)


def test_commit_names_snapshots_and_the_next_writer_removes_others(table: HistoryTable) -> None:
    """Those that were written and not committed. One that was given up stays for its readers."""
    table.commit(HistoryProgress(4, {}, 0, 0, snapshots=SNAPSHOTS), [])
    assert table.progress().snapshots == SNAPSHOTS
    given_up, killed = Snapshot("2025-11-22", 3, 1), Snapshot("2025-11-24", 5, 1)
    for snapshot in (*SNAPSHOTS, given_up, killed):
        table.snapshot_path(snapshot).mkdir(parents=True)
    table.remove_leftovers(table.progress())
    assert [table.snapshot_path(snapshot).exists() for snapshot in (*SNAPSHOTS, given_up, killed)] == [
        True,
        True,
        True,
        False,
    ]
