"""``callboard history keep`` starts Spark only if there are records to copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from history_helpers import START_MS, WrittenLog, commit

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.history import HistoryMark, write_history_mark
from callboard.runtime.log.folder import INFO_NAME, parse_info
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.reading.partition_reader import partition_folders
from callboard.spark.commands import history as commands
from callboard.spark.history.progress import HistoryProgress
from callboard.spark.history.table import HistoryTable, TableInfo


class SparkStarted(Exception):
    pass


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_spark(*_arguments: object) -> None:
        raise SparkStarted

    monkeypatch.setattr(commands, "session", start_spark)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    log = WrittenLog(tmp_path / "data")
    write_commits(log, range(30))
    return log


def write_commits(log: WrittenLog, numbers: range) -> None:
    log.write(*((START_MS, [Entry(number % 2, (commit("g", "t", 0, number, START_MS),))]) for number in numbers))


def closed_ends(data: Path) -> dict[int, int]:
    ends = {}
    for number, folder in partition_folders(data).items():
        files = log_files(Disk(), folder).files
        assert len(files) > 1 and not files[-1].is_closed
        ends[number] = files[-1].base
    return ends


def make_table(data: Path, path: Path, taken_to: dict[int, int]) -> HistoryTable:
    """A table with one commit, without rows, as a run of ``keep`` leaves it."""
    cluster_id = parse_info(data / INFO_NAME, (data / INFO_NAME).read_bytes()).cluster_id
    table = HistoryTable.create(path, TableInfo("id", cluster_id, "parquet", START_MS), Disk())
    table.commit(HistoryProgress(1, taken_to, 0, START_MS), [])
    return table


def mark(log: WrittenLog, table: HistoryTable, taken_to: dict[int, int]) -> None:
    write_history_mark(Disk(), log.data, HistoryMark(str(table.path), "id", taken_to))


def keep(log: WrittenLog, *options: str) -> int:
    table = log.data.parent / "table"
    try:
        commands.app(["keep", "--data", str(log.data), "--table", str(table), *options])
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0


def test_keep_without_new_records_does_not_start_spark(log: WrittenLog, capsys: pytest.CaptureFixture[str]) -> None:
    ends = closed_ends(log.data)
    mark(log, make_table(log.data, log.data.parent / "table", ends), ends)
    assert keep(log) == 0
    assert capsys.readouterr() == ("nothing new in closed segments\n", "")
    assert keep(log, "--json") == 0
    assert json.loads(capsys.readouterr().out)["commit"] == 1


def test_keep_with_new_closed_segment_starts_spark(log: WrittenLog) -> None:
    ends = closed_ends(log.data)
    mark(log, make_table(log.data, log.data.parent / "table", ends), ends)
    write_commits(log, range(30, 60))
    with pytest.raises(SparkStarted):
        keep(log)


def test_first_keep_starts_spark(log: WrittenLog) -> None:
    with pytest.raises(SparkStarted):
        keep(log)


def test_keep_after_run_killed_before_its_mark_starts_spark(log: WrittenLog) -> None:
    """That run copied everything, but compaction still waits at the end of the run before it."""
    ends = closed_ends(log.data)
    table = make_table(log.data, log.data.parent / "table", ends)
    mark(log, table, dict.fromkeys(ends, 0))
    with pytest.raises(SparkStarted):
        keep(log)


def test_keep_of_log_shorter_than_its_history_reports_it_without_spark(
    log: WrittenLog, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {number: end + 1000 for number, end in closed_ends(log.data).items()}
    mark(log, make_table(log.data, log.data.parent / "table", ends), ends)
    assert keep(log) == 3
    assert "keep its history in another table" in capsys.readouterr().err


def test_keep_while_another_process_writes_to_table_is_refused_without_spark(log: WrittenLog) -> None:
    ends = closed_ends(log.data)
    table = make_table(log.data, log.data.parent / "table", ends)
    mark(log, table, ends)
    with table.exclusive_writer(), pytest.raises(StartError, match="another callboard history process is writing"):
        keep(log)
