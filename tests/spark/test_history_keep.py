"""History copies each record of closed segments exactly once, also after kills, and compaction waits for it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from history_helpers import (
    DAY_MS,
    START_MS,
    Killed,
    KillingDisk,
    WrittenLog,
    commit,
    end,
    generation,
    records_in_log,
    records_in_table,
)
from log_helpers import LazyDisk
from peers.waiting import wait_until
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction import history
from callboard.runtime.log.compaction.job import CompactionJob, run
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.publish import try_lock
from callboard.runtime.log.compaction.swap import CompactionSettings, commit_draft, compact, write_draft
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.manifest import ManifestError, log_files
from callboard.runtime.log.reading.partition_reader import partition_folders
from callboard.spark.commands import history as commands
from callboard.spark.history import HistoryTable, keep
from callboard.spark.history.metadata import FILES_VERSION, VERSION
from callboard.spark.history.progress import FROM_OFFSET, PARTITION_COLUMNS
from callboard.spark.history.ranges import HISTORY_KINDS
from callboard.spark.options import Options
from callboard.spark.scan import PartitionScan

SPARK_DEADLINE_S = 600.0  # Spark starts and plans, on a busy machine
LATE_MS = START_MS + 400 * DAY_MS
ALWAYS = CompactionSettings(LATE_MS, "a test", min_ratio=-1.0, delete_retention_ms=0)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    log = WrittenLog(tmp_path / "data")
    log.write(*rounds(random.Random(1), 40))
    return log


def rounds(chance: random.Random, count: int, first: int = 0) -> list[tuple[int, list[Entry]]]:
    """Commits, deletions, generations and transactions over four days."""
    batches: list[tuple[int, list[Entry]]] = []
    for number in range(first, first + count):
        time_ms = START_MS + number * DAY_MS // 10
        log_partition = chance.randrange(2)
        alive = chance.random() < 0.8
        records: list[Any] = [commit("g", "t", chance.randrange(3), number if alive else None, time_ms)]
        if chance.random() < 0.2:
            records = [generation("g", number, time_ms, one=[("t", 0)])]
        elif chance.random() < 0.2:
            records = [commit("g", "u", 0, number, time_ms, producer=7)]
            batches.append((time_ms, [Entry(log_partition, tuple(records))]))
            records = [end(7, chance.random() < 0.5)]
        batches.append((time_ms, [Entry(log_partition, tuple(records))]))
    return batches


def test_keep_copies_each_record_of_closed_segments_once(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """In two runs over a growing log, which is compacted between them; a third run finds nothing new."""
    table = tmp_path / "table"
    first = keep(spark, log.data, table)
    all_records = records_in_log(log.data)
    assert first.missing == 0
    assert records_in_table(HistoryTable.open(table).rows(spark)) == all_records
    assert (first.records, first.partitions, first.problems) == (len(all_records), 2, ())
    assert len({value[0] // DAY_MS for value in all_records.values()}) == len(list(table.glob("day=*"))) > 2

    for folder in partition_folders(log.data).values():
        assert compact(Disk(), folder, ALWAYS) is not None
    assert len(records_in_log(log.data)) < len(all_records)
    log.write(*rounds(random.Random(2), 40, first=40))
    second = keep(spark, log.data, table)
    expected = all_records | records_in_log(log.data)
    assert records_in_table(HistoryTable.open(table).rows(spark)) == expected
    assert HistoryTable.open(table).progress().complete_since_ms == 0
    assert first.records + second.records == len(expected)
    assert keep(spark, log.data, table)[:3] == (0, 0, second.commit)


@pytest.mark.parametrize("format", ["nonsense", "csv"])
def test_keep_with_unwritable_format_is_refused_before_compaction_waits(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    code, out, err = callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table", "--format", format)
    assert (code, out) == (2, "") and err.startswith(f"bad --format '{format}': ") and err.count("\n") == 1
    assert format in err.lower().partition("with it: ")[2] and "at org." not in err
    assert history.read_history_mark(Disk(), log.data) is None
    assert [path.name for path in tmp_path.iterdir()] == [log.data.name]


@pytest.mark.parametrize("format", ["orc", "json"])
def test_keep_with_other_formats(spark: SparkSession, log: WrittenLog, tmp_path: Path, format: str) -> None:
    keep(spark, log.data, tmp_path / "table", format)
    assert records_in_table(HistoryTable.open(tmp_path / "table").rows(spark)) == records_in_log(log.data)


# Kills ---------------------------------------------------------------------------------------------------------------


class Local:
    """Does the work of Spark for ``keep`` in this process, so that a kill at every step takes seconds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.disk = KillingDisk()
        module = sys.modules["callboard.spark.history.keep"]
        patch.setattr(module, "_check_ranges", lambda _spark, ranges, _report: list(map(module.check_range, ranges)))
        patch.setattr(module, "write_rows", self._write)
        patch.setattr(HistoryTable, "count_rows", lambda table, spark, firsts: self._written(table, firsts))

    def _write(self, spark: Any, table: HistoryTable, takes: Sequence[Any]) -> None:
        """As Spark: write all files of a folder, and replace existing ones."""
        for take in takes:
            scan = PartitionScan(
                Disk(), take.folder, take.log_partition, Options("", kinds=HISTORY_KINDS, is_permissive=True)
            )
            rows = pa.Table.from_batches(scan.between(take.first, take.end, None)).to_pylist()
            for row in rows:
                row["day"] = f"{row['timestamp']:%Y-%m-%d}"
            for day in sorted({row["day"] for row in rows}):
                self.disk.step()
                rows_of_day = [row for row in rows if row["day"] == day]
                folder = table.path / f"day={day}" / f"log_partition={take[0]}" / f"from_offset={take.first}"
                shutil.rmtree(folder, ignore_errors=True)
                self.disk.step()
                folder.mkdir(parents=True)
                positions = [[row["log_partition"], row["log_offset"]] for row in rows_of_day]
                (folder / f"part-{self.disk.changes}.json").write_text(json.dumps(positions))

    def _written(self, table: HistoryTable, firsts: dict[int, int]) -> dict[int, tuple[int, int]]:
        positions_by_log = {number: places_in(table, number, first) for number, first in firsts.items()}
        return {number: (len(positions), len(set(positions))) for number, positions in positions_by_log.items()}

    def keep(self, data: Path, table: Path, changes: int | None = None) -> None:
        self.disk = KillingDisk(changes)
        nobody: Any = None
        keep(nobody, data, table, disk=self.disk, clock_ms=lambda: START_MS)


def places_in(table: HistoryTable, number: int | None = None, first: int | None = None) -> list[tuple[int, int]]:
    """The committed records in the files that ``Local`` writes."""
    names = [f"log_partition={'*' if number is None else number}", f"from_offset={'*' if first is None else first}"]
    files = table.path.glob("/".join(["day=*", *names, "part-*.json"]))
    return [tuple(position) for file in files for position in json.loads(file.read_text())]


def counting(table: Path) -> list[tuple[int, int]]:
    history_table = HistoryTable.open(table)
    taken_to = history_table.progress().taken_to
    return [position for position in places_in(history_table) if position[1] < taken_to.get(position[0], 0)]


def compact_all(data: Path) -> None:
    for folder in partition_folders(data).values():
        compact(LazyDisk(), folder, ALWAYS)


def test_keep_killed_at_any_step_and_rerun_has_each_record_once(
    tmp_path: Path, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an existing history. After each kill the log is compacted and grows, and keep runs again."""
    local = Local(monkeypatch)
    local.keep(log.data, tmp_path / "table")
    log.write(*rounds(random.Random(5), 30, first=40))
    all_records, step, is_killed = records_in_log(log.data), 0, True
    while is_killed:
        copy = tmp_path / f"killed-{step}"
        shutil.copytree(log.data, copy / "data")
        shutil.copytree(tmp_path / "table", copy / "table")
        try:
            local.keep(copy / "data", copy / "table", step)
            is_killed = False
        except Killed:
            step += 1
        compact_all(copy / "data")
        assert set(counting(copy / "table")) <= all_records.keys()
        reopened = WrittenLog.__new__(WrittenLog)
        reopened.__dict__ |= {**log.__dict__, "data": copy / "data"}
        reopened.write(*rounds(random.Random(6), 20, first=70))
        later = records_in_log(copy / "data")
        local.keep(copy / "data", copy / "table")
        counts = counting(copy / "table")
        assert sorted(counts) == sorted(all_records.keys() | later.keys()), f"killed at step {step}"
    assert step > 20


def test_first_keep_killed_at_any_step_and_rerun_has_each_record_once(
    tmp_path: Path, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run creates the table and the mark; compaction after the mark loses nothing."""
    local, step, is_killed = Local(monkeypatch), 0, True
    all_records = records_in_log(log.data)
    while is_killed:
        copy = tmp_path / f"killed-{step}"
        shutil.copytree(log.data, copy / "data")
        try:
            local.keep(copy / "data", copy / "table", step)
            is_killed = False
        except Killed:
            step += 1
        is_marked = history.read_history_mark(Disk(), copy / "data") is not None
        compact_all(copy / "data")
        expected = all_records if is_marked else records_in_log(copy / "data")
        local.keep(copy / "data", copy / "table")
        counts = counting(copy / "table")
        assert sorted(counts) == sorted(expected), f"killed at step {step}"
    assert step > 20


def test_keep_killed_during_spark_commit_and_rerun_has_each_record_once(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files exist, others do not. They are not committed, and the next run overwrites them."""
    table, module = tmp_path / "table", sys.modules["callboard.spark.history.keep"]
    write: Callable[..., None] = module.write_rows

    def die(session: SparkSession, history_table: HistoryTable, takes: Sequence[Any]) -> None:
        write(session, history_table, takes)
        folders = sorted(history_table.path.glob("day=*/log_partition=*/from_offset=*"))
        for folder in folders[::2]:
            shutil.rmtree(folder)
        (history_table.path / ".spark-staging-1" / "day=2025-11-21").mkdir(parents=True)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_rows", die)
        with pytest.raises(Killed):
            keep(spark, log.data, table)
    assert records_in_table(HistoryTable.open(table).rows(spark)) == {}
    compact_all(log.data)
    log.write(*rounds(random.Random(4), 20, first=40))
    keep(spark, log.data, table)
    expected = records_in_log(log.data)
    assert records_in_table(HistoryTable.open(table).rows(spark)) == expected
    raw = spark.read.parquet(str(table))
    assert raw.count() == len(expected)
    assert {*PARTITION_COLUMNS} <= {*raw.columns} and raw.where(f"{FROM_OFFSET} != 0").count() == 0
    assert not list(table.glob(".spark*"))


def test_leftovers_of_killed_keep_are_removed_when_next_run_finds_fewer_records(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History was off and compaction continued, so days that the killed run wrote have no records any more."""
    table, module = tmp_path / "table", sys.modules["callboard.spark.history.keep"]
    keep(spark, log.data, table)
    records_before = records_in_log(log.data)
    log.write(*rounds(random.Random(5), 30, first=40))

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.HistoryTable, "make_durable", die)
        with pytest.raises(Killed):
            keep(spark, log.data, table)
    remaining_folders = {path.name for path in table.glob("day=*/*/from_offset=*")} - {"from_offset=0"}
    assert remaining_folders
    history.remove_history_mark(Disk(), log.data)
    compact_all(log.data)
    keep(spark, log.data, table)
    assert records_in_table(HistoryTable.open(table).rows(spark)) == records_before | records_in_log(log.data)
    raw = spark.read.parquet(str(table))
    assert raw.count() == raw.select("log_partition", "log_offset").distinct().count()


def test_keep_after_kill_9_has_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """The command is killed while Spark writes; afterwards the next run has each record once."""
    data, table = tmp_path / "data", tmp_path / "table"
    DataFolder(data, 4).close()
    write_log(data, LogShape(12_000, 4, groups=40, segment_bytes=40_000, transaction_rate=0.05, tick_ms=60_000))
    command = [sys.executable, "-m", "callboard", "history", "keep", "--data", str(data), "--table", str(table)]
    process = subprocess.Popen([*command, "--master", "local[2]"], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: [process.poll(), *table.glob(".spark-staging*"), *table.glob("day=*")],
            lambda found: found != [None],
            "Spark to write rows",
            SPARK_DEADLINE_S,
        )
        assert process.poll() is None, "the command has ended"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    keep(spark, data, table)
    assert records_in_table(HistoryTable.open(table).rows(spark)) == records_in_log(data)


# Compaction ----------------------------------------------------------------------------------------------------------


def mark(data: Path, **taken_to: int) -> history.HistoryMark:
    return history.HistoryMark(
        "table", "id", {int(name.removeprefix("p")): offset for name, offset in taken_to.items()}
    )


def test_compaction_stops_at_end_of_history(log: WrittenLog) -> None:
    folder, disk = log.folder(0), Disk()
    bases = [file.base for file in log_files(disk, folder).files]
    assert len(bases) > 4
    history.write_history_mark(disk, log.data, mark(log.data, p0=bases[2] + 0))
    draft = compact(disk, folder, ALWAYS)
    assert draft is not None and draft.manifest.clean_end == bases[2]
    assert run(CompactionJob(folder, ALWAYS)).status == "compacted"  # expired tombstones
    report = run(CompactionJob(folder, ALWAYS))
    assert report.status == "waiting" and f"up to offset {bases[2]}; run callboard history keep" in report.reason
    assert history.remove_history_mark(disk, log.data) and not history.remove_history_mark(disk, log.data)
    draft = compact(disk, folder, ALWAYS)
    assert draft is not None and draft.manifest.clean_end == bases[-1]


def test_compaction_of_partition_without_history_waits(log: WrittenLog) -> None:
    history.write_history_mark(Disk(), log.data, mark(log.data, p0=100))
    plan = make_plan(Disk(), log.folder(1))
    assert plan.files == () and not plan.is_due(LATE_MS, -1.0)
    assert compact(Disk(), log.folder(1), ALWAYS) is None


def test_compaction_before_first_keep_stays_valid(log: WrittenLog) -> None:
    """The history has no records of these segments yet, so no compaction is planned, even of expired tombstones."""
    folder = log.folder(0)
    assert compact(Disk(), folder, ALWAYS._replace(delete_retention_ms=DAY_MS)) is not None
    history.write_history_mark(Disk(), log.data, mark(log.data, p0=1))
    later = ALWAYS._replace(now_ms=LATE_MS + 2 * DAY_MS)
    assert make_plan(Disk(), folder).has_expired(later.now_ms)
    assert compact(Disk(), folder, later) is None


def test_compaction_planned_before_first_keep_is_discarded(log: WrittenLog) -> None:
    disk, folder = Disk(), log.folder(0)
    draft = write_draft(disk, folder, make_plan(disk, folder), ALWAYS)
    assert draft is not None
    history.write_history_mark(disk, log.data, mark(log.data))
    history.wait_for_compactions(disk, [folder])
    assert not commit_draft(disk, folder, draft, LATE_MS, "abcdef01")
    assert log_files(disk, folder).manifest.generation == 0


def test_keep_waits_for_running_compaction_swap(log: WrittenLog) -> None:
    disk, folder = Disk(), log.folder(0)
    waited: list[float] = []
    assert compact(disk, folder, ALWAYS) is not None
    with try_lock(disk, folder), pytest.raises(TimeoutError, match="locked for"):
        history.wait_for_compactions(disk, [folder], waited.append)
    assert len(waited) > 10
    history.wait_for_compactions(disk, [folder], waited.append)


def test_keep_after_compaction_reports_missing_records(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compact(Disk(), log.folder(0), ALWAYS, clock=lambda: LATE_MS) is not None
    _, out, err = callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table")
    table = HistoryTable.open(tmp_path / "table")
    record_count, rows = sum(table.progress().taken_to.values()), table.rows(spark).count()
    assert (
        f"{record_count - rows:,} older records had already been removed by compaction" in out and record_count > rows
    )
    assert err == ""
    assert table.progress().complete_since_ms == LATE_MS
    assert records_in_table(table.rows(spark)) == records_in_log(log.data)
    assert (
        "the history is complete from 2026-12-26"
        in callboard(capsys, "as-of", "--table", table.path, "--at", "2025-11-22")[2]
    )


def test_unreadable_mark_stops_compaction(log: WrittenLog) -> None:
    path = log.data / history.FILE_NAME
    path.write_text('{"version": 3}')
    with pytest.raises(ManifestError, match="found version 3, expected 2"):
        make_plan(Disk(), log.folder(0))
    path.write_text("[]")
    report = run(CompactionJob(log.folder(0), ALWAYS))
    assert report.status == "damaged" and "found no mark of a history" in report.reason


# The command ---------------------------------------------------------------------------------------------------------


def callboard(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    try:
        code: Any = commands.main([str(argument) for argument in arguments])
    except StartError as error:
        return 2, capsys.readouterr().out, f"{error}\n"
    except SystemExit as exit:
        code = exit.code
    return int(code or 0), *capsys.readouterr()


def test_keep_with_damage_stops_only_that_partition(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and copied up to the damaged file; with a restored file the next run continues."""
    files = log_files(Disk(), log.folder(1)).files
    valid_content = files[2].path.read_bytes()
    files[2].path.write_bytes(valid_content[:40] + b"\xff" + valid_content[41:])
    code, out, err = callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table", "--json")
    assert code == 3 and f"{files[2].path}: " in err and "damaged bytes at byte 0" in err
    table = HistoryTable.open(tmp_path / "table")
    assert table.progress().taken_to[1] == files[2].base
    assert json.loads(out)["records"] == len(records_in_table(table.rows(spark)))
    files[2].path.write_bytes(valid_content)
    assert callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table")[0] == 0
    assert records_in_table(table.rows(spark)) == records_in_log(log.data)


def test_keep_off_and_status_commands(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callboard(capsys, "status", "--data", log.data)[1].splitlines()[0].split() == ["history", "off"]
    code, out, _ = callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table")
    assert code == 0 and f"of 2 log partitions copied to {tmp_path / 'table'} in " in out
    assert "nothing new" in callboard(capsys, "keep", "--data", log.data, "--table", tmp_path / "table")[1]
    status = json.loads(callboard(capsys, "status", "--data", log.data, "--json")[1])
    assert status["table"] == str(tmp_path / "table")
    assert all(partition["taken_to"] == partition["closed_to"] > 0 for partition in status["partitions"])
    assert "history is off; compaction no longer waits" in callboard(capsys, "off", "--data", log.data)[1]
    assert "there was no history" in callboard(capsys, "off", "--data", log.data)[1]
    assert history.read_history_mark(Disk(), log.data) is None


def test_history_commands_with_invalid_arguments_are_refused(
    spark: SparkSession, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str | Path) -> str:
        code, out, err = callboard(capsys, *arguments)
        assert (code, out) == (2, "")
        return err

    data, table = log.data, tmp_path / "table"
    assert "found no callboard.json" in refused("keep", "--data", tmp_path, "--table", table)
    assert f"found {data.name} and no _callboard/table.json" in refused("keep", "--data", data, "--table", tmp_path)
    assert "found no history" in refused("as-of", "--table", table, "--at", "1h")
    assert not table.exists() and history.read_history_mark(Disk(), data) is None
    keep(spark, data, table)
    assert "bad --at 'noon'" in refused("as-of", "--table", table, "--at", "noon")
    assert "at most one of --json" in refused("as-of", "--table", table, "--at", "1h", "--json", "--csv")
    assert "ends in .csv or .parquet" in refused("as-of", "--table", table, "--at", "1h", "-o", "x.txt")
    assert f"its history is in {table}" in refused("keep", "--data", data, "--table", tmp_path / "other")
    other_log = WrittenLog(tmp_path / "other-data")
    other_log.write(*rounds(random.Random(1), 10))
    assert "found the history of cluster" in refused("keep", "--data", other_log.data, "--table", table)
    assert "found the data of cluster" in refused("as-of", "--table", table, "--at", "1h", "--data", other_log.data)
    with HistoryTable.open(table).exclusive_writer():
        assert "another callboard history process is writing to it" in refused("keep", "--data", data, "--table", table)
    file = table / "_callboard" / "table.json"
    file.write_text(file.read_text().replace(f'"version": {VERSION}', '"version": 9'))
    assert f"found version 9, expected at most {FILES_VERSION}" in refused("keep", "--data", data, "--table", table)
