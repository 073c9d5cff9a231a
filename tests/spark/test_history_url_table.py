"""A history's table at a URL: written without a lock and without renaming, so that it may lie in an object store."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster.object_server import BUCKET, CREDENTIALS, ObjectServer, missing_object_server
from history_helpers import (
    DAY_MS,
    START_MS,
    LogPosition,
    RecordFields,
    WrittenLog,
    commit,
    end,
    records_in_log,
    records_in_table,
)
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.log.compaction.history import read_history_mark
from callboard.spark.commands import history as commands
from callboard.spark.history import as_of, keep, merge, open_table, take_snapshot
from callboard.spark.history.changes import RESTORE, Change, read_changes, record_end, record_start
from callboard.spark.history.creating import creator_of
from callboard.spark.history.files_table import FilesTable
from callboard.spark.history.merge import GRACE_MS, MergeResult
from callboard.spark.history.opening import create_table, open_to_write, table_exists
from callboard.spark.history.progress import HistoryProgress
from callboard.spark.history.remote import FILE_SCHEMA, TableUrl
from callboard.spark.history.table import HistoryTable, TableInfo
from callboard.spark.history.unnamed import remove_unnamed
from callboard.spark.history.write_files import FileWriter

HOST = "127.0.0.1"
LATER_MS = START_MS + 30 * DAY_MS
INFO = TableInfo("id", "cluster", "parquet", START_MS)
SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
URLS = ("bucket", "file", "memory")


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    if missing := missing_object_server():
        pytest.skip(missing)
    with ObjectServer() as server:
        yield server


def bucket_url(server: ObjectServer, prefix: str) -> str:
    options = f"endpoint_override={HOST}:{server.port}&scheme=http&region=us-east-1"
    return f"s3://{CREDENTIALS['AWS_ACCESS_KEY_ID']}:{SECRET}@{BUCKET}/{prefix}?{options}"


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of nothing yet: in a bucket, in a local folder, in the memory of fsspec."""
    if request.param == "bucket":
        return bucket_url(request.getfixturevalue("server"), tmp_path.name)
    return (tmp_path / "table").as_uri() if request.param == "file" else f"memory://{tmp_path.name}"


def written_rounds(first: int) -> list[tuple[int, list[Entry]]]:
    """Commits of a group in each of two log partitions on two days, and transactions of the first."""
    rounds = []
    for number in range(first, first + 12):
        log_partition = number % 2 if number % 6 < 4 else 0
        record: Any = commit(f"g{log_partition}", "t", number % 3, number)
        if number % 6 >= 4:
            record = commit("g0", "t", 3, number, producer=1) if number % 6 == 4 else end(1, committed=True)
        rounds.append((START_MS + number % 12 // 6 * DAY_MS + number, [Entry(log_partition, (record,))]))
    return rounds


def committed_offsets(records: dict[LogPosition, RecordFields]) -> dict[tuple[str, int], int]:
    """By group and partition. The transactions of these logs are committed by the next record of their partition."""
    offsets = {}
    for (log_partition, log_offset), (_, kind, group, _, partition, offset, producer, *_) in sorted(records.items()):
        if kind == "offset" and (producer is None or (log_partition, log_offset + 1) in records):
            offsets[group, partition] = offset
    return offsets


def list_rows(table: FilesTable) -> set[str]:
    """The files with rows that are there, by their paths in the table."""
    paths = (Path(info.path).relative_to(table.path) for info in table.location.list_all())
    return {str(path) for path in paths if path.parts[0] != "_callboard"}


class KilledRun(BaseException):
    pass


def test_history_in_a_bucket(
    spark: SparkSession,
    server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two runs, a killed one, a slower one, a merge, a snapshot, a state, a question."""
    url, log = bucket_url(server, "whole"), WrittenLog(tmp_path / "data", segment_bytes=200)
    log.write(*written_rounds(0))
    kept = keep(spark, log.data, url, clock_ms=lambda: LATER_MS)
    assert (kept.records, kept.commit) == (len(records_in_log(log.data)), 1)
    slower = open_to_write(url)
    assert isinstance(slower, FilesTable)
    progress_of_slower = slower.progress()
    assert len(progress_of_slower.files) == 4, "of two days and log partitions"

    log.write(*written_rounds(12))
    with monkeypatch.context() as patch, pytest.raises(KilledRun):
        patch.setattr(FilesTable, "commit", _kill)
        keep(spark, log.data, url)
    assert len(list_rows(slower)) == 8 and slower.progress() == progress_of_slower, "nothing names the new files"
    keep(spark, log.data, url, clock_ms=lambda: LATER_MS)
    expected = records_in_log(log.data)
    with pytest.raises(StartError, match=r"another process has written to it meanwhile \(commit 2\)"):
        slower.commit(progress_of_slower._replace(number=2, files={}), [])
    assert records_in_table(slower.rows(spark)) == expected, "each once"

    merged = merge(spark, url, clock_ms=lambda: LATER_MS)
    replaced = {file.path for file in slower.progress().replaced_files}
    assert (merged.replaced, merged.merged, merged.records) == (len(replaced), 4, len(expected)) and len(replaced) == 8
    assert replaced < list_rows(slower), "for queries that have begun"
    assert merge(spark, url, clock_ms=lambda: LATER_MS + GRACE_MS).removed == 8
    assert len(slower.progress().files) == 4 and not replaced & list_rows(slower)

    snapshot = take_snapshot(spark, url, clock_ms=lambda: LATER_MS, records_min=1)
    assert snapshot and snapshot.files and snapshot.records == len(committed_offsets(expected)) >= 4
    state = {(row.group, row.partition): row.offset for row in as_of(spark, url, START_MS + 5 * DAY_MS).collect()}
    assert state == committed_offsets(expected)

    monkeypatch.setattr(commands, "session", None)  # there is nothing to do for Spark
    commands.app(["keep", "--data", str(log.data), "--table", url], standalone_mode=False)
    assert capsys.readouterr().out == "nothing new in closed segments\n"
    mark = read_history_mark(Disk(), log.data)
    assert mark and mark.taken_to == slower.progress().taken_to and mark.table == slower.name
    assert f":{SECRET}@" not in mark.table


def _kill(*_arguments: object) -> None:
    raise KilledRun


def test_of_writers_that_begin_at_the_same_commit_one_succeeds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory with a pause in which another thread could create the file."""
    from fsspec.implementations.memory import MemoryFileSystem

    exists = MemoryFileSystem.exists

    def exists_and_pause(self: Any, path: str, **options: Any) -> bool:
        try:
            return bool(exists(self, path, **options))
        finally:
            time.sleep(0.01)

    create_table(url, INFO, Disk())
    monkeypatch.setattr(MemoryFileSystem, "exists", exists_and_pause)
    results: list[int | str] = []
    start = threading.Barrier(6)

    def commit_once(number: int) -> None:
        table = open_to_write(url)
        start.wait()
        try:
            with table.exclusive_writer():
                table.commit(HistoryProgress(1, {0: number}, 0, 0, files={f"file-{number}": 9}), [])
            results.append(number)
        except StartError as error:
            results.append(str(error))

    threads = [threading.Thread(target=commit_once, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [result for result in results if isinstance(result, int)]
    assert all("another process has written to it" in str(result) for result in results if result != winner)
    assert (open_table(url).progress().taken_to, open_table(url).progress().files) == (
        {0: winner},
        {f"file-{winner}": 9},
    )


def test_commit_repeated_by_the_network_is_recognized(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt succeeds, and its answer is lost."""
    table = create_table(url, INFO, Disk())
    assert isinstance(table, FilesTable)
    create = table.location.create

    def create_twice(path: Path, data: bytes) -> bool:
        assert create(path, data)
        return create(path, data)

    monkeypatch.setattr(table.location, "create", create_twice)
    table.commit(HistoryProgress(1, {0: 7}, 0, 0), [])
    assert open_table(url).progress().taken_to == {0: 7}
    monkeypatch.undo()
    with pytest.raises(StartError, match="another process has written to it"):
        table.commit(HistoryProgress(1, {0: 7}, 0, 0), [])  # of another run


def test_commit_without_effect_is_that_of_another_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may refuse two requests at the same time, and keep neither file."""
    table = create_table(url, INFO, Disk())
    assert isinstance(table, FilesTable)
    monkeypatch.setattr(table.location, "create", lambda path, data: False)
    with pytest.raises(StartError, match="another process has written to it"):
        table.commit(HistoryProgress(1, {0: 7}, 0, 0), [])


def test_changes_keep_their_order_after_numbers_that_are_missing(url: str) -> None:
    """As drafts of others, or requests at the same time, leave them."""
    table = create_table(url, INFO, Disk())
    assert isinstance(table, FilesTable)
    change = Change("a", RESTORE, "g", "g", "", "", "me", "", "", "", ())
    record_start(table, change)
    folder = table.path / "_callboard" / "changes"
    line = read_file(table.location.disk, folder / f"{0:020d}.json")
    other = {name: value for name, value in json.loads(line).items() if name != "checksum"} | {"change_id": "b"}
    assert table.location.create(folder / f"{5:020d}.json", json.dumps(other).encode())
    record_end(table, "b", "done")
    assert table.location.disk.names(folder)[-1] == f"{6:020d}.json"
    assert table.location.create(folder / f"{7:020d}.json", b"{}")
    with pytest.raises(StartError, match=r"_callboard/changes/0{19}7\.json is not a change"):
        read_changes(table)


def test_restores_are_recorded_at_a_url(url: str) -> None:
    table = create_table(url, INFO, Disk())
    changes = [Change(name, RESTORE, "g", "g", "", "", "me", "", "", "", ()) for name in ("a", "b")]
    for change in changes:
        record_start(open_to_write(url), change)
    record_end(table, "a", "done")
    assert read_changes(table) == {"a": changes[0]._replace(ended="done"), "b": changes[1]}


def test_table_is_created_once(url: str) -> None:
    assert not table_exists(url)
    table = create_table(url, INFO, Disk())
    assert table_exists(url) and open_table(url).info == table.info
    with pytest.raises(StartError, match="found _callboard and no"):
        create_table(url, INFO, Disk())


def test_file_system_that_overwrites_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    create_table(f"memory://{tmp_path.name}", INFO, Disk())
    write = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, data, mode: write(self, path, data))
    with (
        pytest.raises(StartError, match="has overwritten a file"),
        open_to_write(f"memory://{tmp_path.name}").exclusive_writer(),
    ):
        pass


def test_files_of_killed_runs_and_old_commits_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the times of the store: those older than the newest commit by more than the grace time."""
    table = create_table((tmp_path / "table").as_uri(), INFO, Disk())
    assert isinstance(table, FilesTable)
    monkeypatch.setattr("callboard.spark.history.unnamed.COMMITS_KEPT", 2)
    folder = "day=2025-11-21/log_partition=0/from_offset=0"
    (tmp_path / "table" / folder).mkdir(parents=True)
    for name in ("live", "old", "new"):
        (tmp_path / "table" / folder / f"{name}.parquet").touch()
    for number in range(1, 5):
        table.commit(HistoryProgress(number, {}, 0, 0, files={f"{folder}/live.parquet": 0}), [])
    hours_ago = (table.path / "_callboard" / "table.json").stat().st_mtime - 7200
    for path in [*table.path.glob("day*/*/*/[lo]*"), *sorted(table.path.glob("_callboard/commits/*"))[:3]]:
        os.utime(path, (hours_ago, hours_ago))
    remove_unnamed(table)
    assert sorted(path.name for path in table.path.glob("day*/*/*/*")) == ["live.parquet", "new.parquet"]
    assert [path.name[-7:] for path in sorted(table.path.glob("_callboard/commits/*"))] == ["03.json", "04.json"]
    with pytest.raises(StartError, match=r"another process has written to it meanwhile \(commit 2\)"):
        table.commit(HistoryProgress(2, {}, 0, 0), [])


def test_copy_of_a_folder_is_only_read_and_a_table_of_files_is_no_folder(tmp_path: Path) -> None:
    HistoryTable.create(tmp_path / "folder", INFO, Disk())
    with pytest.raises(StartError, match="found a copy of a table that was made in a folder"):
        open_to_write((tmp_path / "folder").as_uri())
    create_table((tmp_path / "files").as_uri(), INFO, Disk())
    with pytest.raises(StartError, match="found a table that was made at a URL"):
        HistoryTable.open(tmp_path / "files")
    with pytest.raises(StartError, match="bad --format 'orc': expected parquet"):
        create_table("memory://orc", INFO._replace(format="orc"), Disk())


class SyncedNames:
    """The paths of files and folders that are synced, and of what is in these folders at that time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        sync = os.fsync

        def note(fd: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self.paths |= {str(path), *(map(str, path.iterdir()) if path.is_dir() else ())}
            sync(fd)

        patch.setattr(os, "fsync", note)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks up the paths of descriptors in /proc")
def test_rows_and_commits_in_a_folder_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction removes the records after the commit."""
    root, synced = tmp_path / "table", SyncedNames(monkeypatch)
    table = create_table(root.as_uri(), INFO, Disk())
    assert isinstance(table, FilesTable)
    assert {str(folder) for folder in (tmp_path, root, root / "_callboard")} < synced.paths
    synced.paths.clear()
    with FileWriter(table.location.filesystem, str(root), "day=2025-11-21/log_partition=0", FILE_SCHEMA) as writer:
        writer.add(pa.RecordBatch.from_pylist([{"log_offset": 1}], schema=FILE_SCHEMA))
    assert {str(path) for path in ((root / writer.path), *(root / writer.path).parents[:3])} <= synced.paths
    synced.paths.clear()
    table.commit(HistoryProgress(1, {0: 2}, 0, 0, files={writer.path: None}), [])
    assert str(root / "_callboard" / "commits" / f"{1:020d}.json") in synced.paths
    [draft] = [path for path in synced.paths if "/.00000000000000000001.json." in path]
    assert not Path(draft).exists()


class DenyingService(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        content = b"<Error><Code>AccessDenied</Code><Message>no right to write</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        pass


def test_refusal_of_a_service_is_named_without_the_secret() -> None:
    pytest.importorskip("obstore")
    with HTTPServer((HOST, 0), DenyingService) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        options = f"endpoint_override={HOST}:{service.server_port}&scheme=http&region=us-east-1"
        location = TableUrl(f"s3://user:geheim@bucket/table?{options}")
        with pytest.raises(OSError, match=r"^s3://user:\*\*\*@bucket/table\S* refused: 403 .*AccessDenied") as refused:
            location.create(Path("bucket/table/_callboard/table.json"), b"")
        service.shutdown()
    assert "no right to write" in str(refused.value) and "geheim" not in str(refused.value)


def test_commits_go_to_the_region_that_pyarrow_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket whose region is neither in the URL nor in the environment."""
    from pyarrow.fs import S3FileSystem

    stores = pytest.importorskip("obstore.store")
    made: list[tuple[str, object]] = []
    monkeypatch.setattr(stores, "S3Store", lambda bucket, **settings: made.append((bucket, settings)))
    creator_of("s3://bucket/table", S3FileSystem(anonymous=True, region="eu-central-1"), Path("bucket/table"))
    assert made == [("bucket", {"region": "eu-central-1"})]


@pytest.mark.parametrize("error", [NotImplementedError, TypeError("unexpected keyword argument 'mode'")])
def test_file_system_that_cannot_create_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception] | Exception
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(StartError, match=r"^memory://.*cannot create a file only if there is none"):
        create_table(f"memory://{tmp_path.name}", INFO, Disk())


def test_merge_at_a_url_counts_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"memory://{tmp_path.name}"
    create_table(url, INFO, Disk())
    monkeypatch.setattr(commands, "session", lambda *_: nullcontext())
    merge_module = sys.modules["callboard.spark.history.merge"]
    monkeypatch.setattr(merge_module, "merge", lambda _spark, _table: MergeResult(8, 4, 24, 2))
    commands.app(["merge", "--table", url], standalone_mode=False)
    assert capsys.readouterr().out == "24 records of 8 files merged into 4\n2 files of earlier merges removed\n"
