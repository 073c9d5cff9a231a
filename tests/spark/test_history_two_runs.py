"""Two commands on one history at the same time: none undoes what the other has done."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from history_helpers import START_MS, WrittenLog, commit, records_in_log, records_in_table
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, write_all
from callboard.runtime.log.compaction.history import (
    HistoryMark,
    read_history_mark,
    remove_history_mark,
    write_history_mark,
)
from callboard.spark.history import HistoryTable, changes, keep
from callboard.spark.history.table import TableInfo

INFO = TableInfo("first", "cluster", "parquet", START_MS)
OTHER_MARK = HistoryMark("/other/table", "other", {})


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    log = WrittenLog(tmp_path / "data", partitions=1, segment_bytes=300)
    log.write(*((START_MS + number, [Entry(0, (commit("g", "t", 0, number),))]) for number in range(20)))
    return log


@pytest.fixture
def change() -> changes.Change:
    return changes.Change("abc", changes.RESTORE, "g", "g", "then", "now", "me", "", "server", "", ())


def test_two_processes_cannot_create_the_same_table(tmp_path: Path) -> None:
    """The second one gave it another id, and the history that had begun was refused from then on."""
    table = HistoryTable.create(tmp_path / "table", INFO, Disk())
    with pytest.raises(StartError, match="another process has just created a table there; run it again"):
        HistoryTable.create(table.path, INFO._replace(table_id="second"), Disk())
    with table.exclusive_writer(), pytest.raises(StartError, match="another callboard history process"):
        HistoryTable.create(table.path, INFO._replace(table_id="second"), Disk())
    assert HistoryTable.open(table.path).info == INFO


def test_history_that_is_turned_off_during_a_run_stays_off(spark: SparkSession, log: WrittenLog) -> None:
    """Compaction would wait for a history that nobody keeps."""
    messages: list[str] = []

    def turn_off(message: str) -> None:
        messages.append(message)
        if message.startswith("writing"):
            remove_history_mark(Disk(), log.data)

    table = log.data.parent / "table"
    keep(spark, log.data, table, report_progress=turn_off)
    assert read_history_mark(Disk(), log.data) is None
    assert messages[-1] == "history was turned off meanwhile, and stays off"
    assert records_in_table(HistoryTable.open(table).rows(spark)) == records_in_log(log.data)


def test_run_does_not_take_over_the_history_that_another_one_has_begun(spark: SparkSession, log: WrittenLog) -> None:
    """In another table. Compaction would have removed records that this one does not have yet."""

    def begin_other(message: str) -> None:
        if message.startswith("writing"):
            write_history_mark(Disk(), log.data, OTHER_MARK)

    with pytest.raises(StartError, match="its history is in /other/table"):
        keep(spark, log.data, log.data.parent / "table", report_progress=begin_other)
    assert read_history_mark(Disk(), log.data) == OTHER_MARK


def test_restores_at_once_are_all_recorded(
    tmp_path: Path, change: changes.Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wrote over the line of the other, and then no restore could be undone."""
    table, disk = HistoryTable.create(tmp_path / "table", INFO, Disk()), Disk()
    changes.record_start(table, change)
    other = changes.changes_path(table)
    fd = disk.open(other, os.O_RDWR)
    disk.lock(fd)

    def end_other(_: float) -> None:
        """The other process appends its line, and closes the file."""
        write_all(disk, fd, other.read_bytes().replace(b"abc", b"xyz"), disk.size(fd))
        disk.close(fd)

    monkeypatch.setattr(time, "sleep", end_other)
    monkeypatch.setattr(changes, "verify_checksum", lambda fields, version: None)
    changes.record_end(table, "abc", "done")
    assert changes.read_changes(table) == {
        "abc": change._replace(ended="done"),
        "xyz": change._replace(change_id="xyz"),
    }
