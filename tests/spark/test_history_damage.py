"""A table of a history whose metadata is damaged or lost: it is refused, and no row is removed. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from history_helpers import WrittenLog

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.log.compaction.history import HistoryMark, write_history_mark
from callboard.runtime.log.folder import INFO_NAME as DATA_INFO_NAME
from callboard.runtime.log.folder import parse_info
from callboard.spark.history.changes import changes_path, read_changes
from callboard.spark.history.keep import check_table
from callboard.spark.history.progress import NO_PROGRESS, HistoryProgress, ReplacedFolder, Snapshot
from callboard.spark.history.table import FOLDER, INFO_NAME, HistoryTable, TableInfo

PROGRESS = HistoryProgress(
    3, {0: 1200, 1: 33}, 0, 9, (ReplacedFolder("2026-01-01", 0, -2, 5),), (Snapshot("2026-01-01", 2, 10),), {}
)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "data")


@pytest.fixture
def table(log: WrittenLog, tmp_path: Path) -> HistoryTable:
    path = log.data / DATA_INFO_NAME
    cluster_id = parse_info(path, read_file(Disk(), path)).cluster_id
    table = HistoryTable.create(tmp_path / "table", TableInfo("id", cluster_id, "parquet", 5), Disk())
    table.commit(PROGRESS, [])
    return table


def row_folder(table: HistoryTable, first: int) -> Path:
    folder = table.path / "day=2026-01-01" / "log_partition=0" / f"from_offset={first}"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["table.json", "commits/00000000000000000003.json"])
def test_metadata_with_any_flipped_bit_is_refused_or_the_same(table: HistoryTable, name: str) -> None:
    """A changed digit would make `keep` copy records twice, or never."""
    path = table.path / FOLDER / name
    content, expected = path.read_bytes(), (table.info, PROGRESS)
    for at in range(len(content)):
        for bit in (1, 4, 16):
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            try:
                opened = HistoryTable.open(table.path)
                found = (opened.info, opened.progress())
            except StartError as error:
                assert str(path) in str(error)
            else:
                assert found == expected, (at, bit)


def test_metadata_without_a_checksum_is_read(table: HistoryTable) -> None:
    """An older version has written it."""
    for path in (table.path / FOLDER / INFO_NAME, table.commit_file(PROGRESS)):
        fields = json.loads(path.read_bytes())
        del fields["checksum"]
        path.write_text(json.dumps(fields))
    assert HistoryTable.open(table.path).progress() == PROGRESS


@pytest.mark.parametrize("change", [{"number": "3"}, {"snapshots": [["no day", 2, 10]]}, {"replaced": [[]]}])
def test_commit_with_a_wrong_value_is_refused(table: HistoryTable, change: dict[str, object]) -> None:
    path = table.commit_file(PROGRESS)
    fields = {**json.loads(path.read_bytes()), **change}
    del fields["checksum"]
    path.write_text(json.dumps(fields))
    with pytest.raises(StartError, match="found no commit of a history"):
        table.progress()


def test_table_that_has_lost_its_newest_commit_is_refused(log: WrittenLog, table: HistoryTable) -> None:
    """Its rows would be removed as those of a killed run, and compaction may have removed the records."""
    write_history_mark(Disk(), log.data, HistoryMark(table.name, "id", PROGRESS.taken_to))
    check_table(log.data, table.path, Disk())
    table.commit_file(PROGRESS).unlink()
    with pytest.raises(StartError, match=r"partition 0 up to offset 0, expected 1200 by .* run callboard history off"):
        check_table(log.data, table.path, Disk())


@pytest.mark.parametrize("line", ['"text"', "null", "[" * 100_000, "{}", '{"ended": "done"}'])
def test_line_that_is_no_change_is_refused(table: HistoryTable, line: str) -> None:
    changes_path(table).write_text(line + "\n")
    with pytest.raises(StartError, match=r"line 1 is not a change .* restore a copy of this file"):
        read_changes(table)


@pytest.mark.parametrize("name", ["t[1]", "{a,b}", "all*", "a?", "a\\\\b"])
def test_new_table_with_a_pattern_in_its_path_is_refused(table: HistoryTable, tmp_path: Path, name: str) -> None:
    """Spark would write it and not find it again, while compaction waits for it."""
    with pytest.raises(StartError, match=r"expected none of .* choose another"):
        HistoryTable.create(tmp_path / name, table.info, Disk())
    assert not (tmp_path / name).exists()


def test_only_keep_removes_rows_that_no_commit_covers(table: HistoryTable) -> None:
    kept, merged = row_folder(table, 0), row_folder(table, -3)
    table.remove_leftovers(NO_PROGRESS, of_merges=True)
    assert (kept.exists(), merged.exists()) == (True, False)
    table.remove_leftovers(NO_PROGRESS)
    assert not kept.exists()
