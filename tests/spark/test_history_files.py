"""A table of a history with files that are lost, emptied, cut, replaced, copied or renamed: an error names them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from history_helpers import DAY_MS, START_MS, WrittenLog, commit, records_in_log, records_in_table
from log_helpers import LazyDisk
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.log.compaction.history import HistoryMark, remove_history_mark, write_history_mark
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import INFO_NAME as DATA_INFO_NAME
from callboard.runtime.log.folder import parse_info
from callboard.spark.history import HistoryTable, as_of, keep, open_table, remote, states
from callboard.spark.history.file_lists import LIST_NAME
from callboard.spark.history.files_table import FilesTable
from callboard.spark.history.forget import forget_lost
from callboard.spark.history.opening import create_table
from callboard.spark.history.progress import NO_PROGRESS, HistoryProgress, Snapshot
from callboard.spark.history.table import TableInfo

INFO = TableInfo("id", "cluster", "parquet", 5)
PROGRESS = HistoryProgress(1, {0: 30, 1: 40}, 0, 9)


@pytest.fixture
def table(tmp_path: Path) -> HistoryTable:
    """With a folder of one file in each of two log partitions."""
    table = HistoryTable.create(tmp_path / "table", INFO, Disk())
    for number in (0, 1):
        folder = table.path / "day=2026-01-01" / f"log_partition={number}" / "from_offset=0"
        folder.mkdir(parents=True)
        (folder / f"part-{number}.parquet").write_bytes(b"rows" * (number + 1))
    table.make_durable(set())
    table.commit(PROGRESS, [])
    return table


def check(table: HistoryTable) -> None:
    table._check_files(table.progress(), None)


def file_of(table: HistoryTable, number: int = 0) -> Path:
    [path] = table.path.glob(f"day=*/log_partition={number}/*/*.parquet")
    return path


def rename(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


DAMAGES: dict[str, tuple[Callable[[HistoryTable], Any], str]] = {
    "emptied": (
        lambda table: file_of(table).write_bytes(b""),
        r"part-0.parquet: found 0 bytes, expected the 4 bytes .* put a copy of this file back, or, .* forget",
    ),
    "replaced": (
        lambda table: shutil.copy(file_of(table, 1), file_of(table, 0)),
        r"part-0.parquet: found 8 bytes, expected the 4 bytes",
    ),
    "lost": (lambda table: file_of(table).unlink(), r"part-0.parquet: found no file, expected the 4 bytes"),
    "copied": (
        lambda table: shutil.copy(file_of(table), file_of(table).with_name("copy.parquet")),
        r"copy.parquet: found a file that callboard history has not written; remove it",
    ),
    "list emptied": (
        lambda table: file_of(table).with_name(LIST_NAME).write_bytes(b""),
        rf"{LIST_NAME}: found no JSON of a history .* restore a copy",
    ),
    "folder lost": (
        lambda table: shutil.rmtree(file_of(table).parent),
        r"found 0 folders day=\*/log_partition=0/\* with committed rows, expected 1 by commit 1; put copies",
    ),
    "day lost": (
        lambda table: shutil.rmtree(table.path / "day=2026-01-01"),
        r"found 0 folders day=\*/log_partition=0/\* with committed rows, expected 1",
    ),
    "day renamed": (
        lambda table: rename(table.path / "day=2026-01-01", "day=2026-01-02"),
        r"found the rows of day=2026-01-01/log_partition=0/from_offset=0, expected those of day=2026-01-02.* rename",
    ),
    "log partition renamed": (
        lambda table: rename(file_of(table).parent.parent, "log_partition=9"),
        r"found 0 folders day=\*/log_partition=0/\* with committed rows, expected 1",
    ),
    "foreign name": (
        lambda table: rename(file_of(table).parent, "from_offset=0 (copy)"),
        r"from_offset=0 \(copy\): found a folder that callboard history has not written, expected names as .* move it",
    ),
    "foreign day": (
        lambda table: rename(table.path / "day=2026-01-01", "day=2026-01-01.bak"),
        r"day=2026-01-01.bak/.*: found a folder that callboard history has not written",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_changed_file_or_folder_is_named(table: HistoryTable, name: str) -> None:
    """Spark ignores an empty file, and reads on without a missing one."""
    check(table)
    damage, message = DAMAGES[name]
    damage(table)
    with pytest.raises(StartError, match=message):
        check(table)


def test_folder_that_is_lost_between_commits_still_counts(table: HistoryTable) -> None:
    shutil.rmtree(file_of(table).parent)
    folder = table.path / "day=2026-01-02" / "log_partition=0" / "from_offset=30"
    folder.mkdir(parents=True)
    progress = table.progress()._replace(number=2, taken_to={0: 50, 1: 40})
    table.commit(progress, [])
    assert table.progress().folders == {0: 2, 1: 1}
    with pytest.raises(StartError, match=r"found 1 folders day=\*/log_partition=0/\* .* expected 2"):
        check(table)


def test_forgotten_rows_are_expected_no_more(table: HistoryTable) -> None:
    """Without a copy the other rows can be read again, by a decision of a person."""
    table.commit(table.progress()._replace(number=2, snapshots=(Snapshot("2026-01-01", 2, 10),)), [])
    assert forget_lost(table.path) == 1, "a snapshot without a folder"
    assert forget_lost(table.path) == 0
    shutil.rmtree(file_of(table).parent)
    assert forget_lost(table.path) == 1
    check(table)
    assert (table.progress().folders, table.progress().number) == ({1: 1}, 4)


def test_forgotten_files_at_a_url_are_expected_no_more() -> None:
    table = create_table("memory://lossy-history", INFO, Disk())
    assert isinstance(table, FilesTable)
    table.location.create(table.path / "a", b"row")
    snapshots = (Snapshot("2026-01-01", 1, 1, {"a": 3}), Snapshot("2026-01-02", 1, 1, {"c": 3}))
    table.commit(NO_PROGRESS._replace(number=1, files={"a": 3, "b": 4}, snapshots=snapshots), [])
    assert forget_lost("memory://lossy-history") == 2
    assert (table.progress().files, table.progress().snapshots) == ({"a": 3}, snapshots[:1])


def test_table_of_an_older_version_is_not_checked(table: HistoryTable) -> None:
    """It has neither lists nor the number of folders, until there is a new commit."""
    for path in table.path.rglob(LIST_NAME):
        path.unlink()
    table.commit_file(PROGRESS).write_text(
        '{"version": 2, "number": 1, "taken_to": {"0": 30, "1": 40}, "complete_since_ms": 0, "at_ms": 9}'
    )
    file_of(table).write_bytes(b"")
    check(table)
    table.commit(table.progress()._replace(number=2), [])
    assert table.progress().folders == {0: 1, 1: 1}


def test_size_of_files_at_a_url_that_an_older_version_has_written_is_unknown() -> None:
    table = create_table("memory://older-history", INFO, Disk())
    assert isinstance(table, FilesTable)
    table.commit(NO_PROGRESS._replace(number=1, files={"a": 3}), [])
    assert open_table("memory://older-history").progress().files == {"a": 3}
    table.location.remove(str(table.commit_file(PROGRESS)))
    fields = '{"version": 3, "number": 1, "taken_to": {}, "complete_since_ms": 0, "at_ms": 9, "files": ["a"]}'
    table.location.create(table.commit_file(PROGRESS), fields.encode())
    assert open_table("memory://older-history").progress().files == {"a": None}


def test_any_flipped_bit_in_a_file_at_a_url_is_noticed_or_changes_no_row(tmp_path: Path) -> None:
    """By the checksums of pages, or because it is no Parquet then."""
    from pyarrow.fs import LocalFileSystem

    schema = remote.FILE_SCHEMA
    path = tmp_path / "x.parquet"
    values = {"offset": list(range(1000, 1400)), "metadata": [f"at {number}" for number in range(400)]}
    rows = pa.table({field.name: values.get(field.name, [None] * 400) for field in schema}).cast(schema)
    pq.write_table(rows, path, compression="zstd", write_page_checksum=True)
    content, noticed = path.read_bytes(), 0
    for at in range(0, len(content), 37):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = pa.Table.from_batches(remote.read_file(LocalFileSystem(), str(path), None, schema))
        except OSError as error:
            assert str(path) in str(error)
            noticed += 1
        else:
            assert found.equals(rows), at
    assert noticed > 10


def test_damaged_file_at_a_url(spark: SparkSession, tmp_path: Path) -> None:
    """In a copy of a folder, and in a table at a URL."""
    log, folder, url = WrittenLog(tmp_path / "data"), tmp_path / "table", tmp_path / "url"
    log.write(*((START_MS, [Entry(0, (commit("g", "t", n % 3, n),))]) for n in range(10)))
    keep(spark, log.data, folder)
    remove_history_mark(Disk(), log.data)
    keep(spark, log.data, url.as_uri())
    for path in (folder, url):
        table = open_table(path.as_uri())
        rows = table.rows(spark)
        assert records_in_table(rows) == records_in_log(log.data)
        [file] = path.glob("day=*/*/*/*.parquet")
        file.write_bytes(b"")
        with pytest.raises(PySparkException, match=f"{file.name}: found 0 bytes, expected"):
            rows.collect()


def test_damaged_snapshot(table: HistoryTable) -> None:
    snapshot, nobody = Snapshot("2026-01-01", 2, 10), cast(SparkSession, None)
    table.snapshot_path(snapshot).mkdir(parents=True)
    (table.snapshot_path(snapshot) / "part.parquet").write_bytes(b"rows")
    table.make_durable(set())
    (table.snapshot_path(snapshot) / "part.parquet").write_bytes(b"")
    with pytest.raises(StartError, match=r"part.parquet: found 0 bytes, expected the 4 bytes"):
        table.snapshot_rows(nobody, snapshot)


def test_state_with_data_needs_the_newest_commit(spark: SparkSession, tmp_path: Path) -> None:
    """The records between the commit that is left and the log may have been compacted."""
    log, path = WrittenLog(tmp_path / "data"), tmp_path / "data" / DATA_INFO_NAME
    cluster_id = parse_info(path, read_file(Disk(), path)).cluster_id
    table = HistoryTable.create(tmp_path / "table", INFO._replace(cluster_id=cluster_id), Disk())
    write_history_mark(Disk(), log.data, HistoryMark(table.name, INFO.table_id, {0: 4}))
    with pytest.raises(StartError, match=r"its newest commit has log partition 0 up to offset 0, expected 4"):
        as_of(spark, table, START_MS, data=log.data)


@pytest.fixture
def history_of_log(tmp_path: Path) -> tuple[WrittenLog, HistoryTable]:
    """A log, and a table of it in which a commit has its first two records."""
    log, path = WrittenLog(tmp_path / "data", 1), tmp_path / "data" / DATA_INFO_NAME
    log.write(*((START_MS + n, [Entry(0, (commit("g", "t", 0, n),))]) for n in range(20)))
    cluster_id = parse_info(path, read_file(Disk(), path)).cluster_id
    table = HistoryTable.create(tmp_path / "history", INFO._replace(cluster_id=cluster_id), Disk())
    table.commit(NO_PROGRESS._replace(number=1, taken_to={0: 2}), [])
    return log, table


def test_query_reads_table_and_log_by_one_commit(
    history_of_log: tuple[WrittenLog, HistoryTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If ``keep`` commits between, the records that it has copied are read from the log."""
    log, table = history_of_log
    read: list[dict[int, tuple[Path, int]]] = []

    def rows_and_commit(self: HistoryTable, spark: SparkSession, after: Any, progress: HistoryProgress) -> Any:
        self.commit(progress._replace(number=2, taken_to={0: 9}), [])
        return SimpleNamespace(unionByName=lambda rows: rows)

    monkeypatch.setattr(HistoryTable, "rows", rows_and_commit)
    monkeypatch.setattr(states, "read_log_partitions", lambda spark, partitions, data: read.append(partitions))
    states.records(cast(SparkSession, None), table, log.data)
    assert read == [{0: (log.folder(0), 2)}]


def test_query_fails_if_compaction_removes_records_that_it_needs(
    history_of_log: tuple[WrittenLog, HistoryTable],
) -> None:
    """``keep`` has copied them after the query read the newest commit."""
    log, table = history_of_log
    folder = log.folder(0)
    write_history_mark(Disk(), log.data, HistoryMark(table.name, INFO.table_id, {0: 15}))
    states._check_not_compacted(log.data, folder, 0, 2)
    settings = CompactionSettings(START_MS + 400 * DAY_MS, "a test", min_ratio=-1.0, delete_retention_ms=0)
    compact(LazyDisk(), folder, settings)
    with pytest.raises(OSError, match=r"history keep has copied .* from offset 2 on during the query.* run the query"):
        states._check_not_compacted(log.data, folder, 0, 2)
    states._check_not_compacted(log.data, folder, 0, 15)
