"""A copy of a history's table in an object store: queries read it with Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.object_server import BUCKET, CREDENTIALS, ObjectServer, missing_object_server
from history_helpers import DAY_MS, START_MS, WrittenLog, commit, end, generation
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from callboard.actors.ports import Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.spark.commands import history as commands
from callboard.spark.commands import questions, report
from callboard.spark.files import find_log
from callboard.spark.history import HistoryTable, as_of, keep, merge, take_snapshot
from callboard.spark.history.opening import open_table
from callboard.spark.history.progress import HistoryProgress, Snapshot
from callboard.spark.history.table import TableInfo
from callboard.spark.options import parse_options
from callboard.spark.tasks import selected_numbers

HOST = "127.0.0.1"


@pytest.fixture
def bucket_url() -> Iterator[str]:
    """The URL of a folder in a private server with S3's protocol, with its credentials."""
    if missing := missing_object_server():
        pytest.skip(missing)
    user, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    with ObjectServer() as server:
        options = f"endpoint_override={HOST}:{server.port}&scheme=http&region=us-east-1"
        yield f"s3://{user}:{secret}@{BUCKET}/history?{options}"


def copy_to(url: str, table: Path) -> None:
    from pyarrow.fs import FileSystem, LocalFileSystem, copy_files

    filesystem, path = FileSystem.from_uri(url)
    copy_files(str(table), path, source_filesystem=LocalFileSystem(), destination_filesystem=filesystem)


def test_state_from_a_snapshot_in_a_folder_and_at_a_url(spark: SparkSession, bucket_url: str, tmp_path: Path) -> None:
    """What later records need stays: owners by an old group record, offsets in open transactions, a tombstone."""
    written, table = WrittenLog(tmp_path / "data", 1, segment_bytes=200), tmp_path / "table"
    first_day = [
        commit("shop", "t", 4, 14),
        commit("shop", "t", 4, None),
        generation("shop", 1, one=[("t", 0)]),
        commit("shop", "t", 0, 10),
        generation("shop", 2, two=[("t", 1)]),
        commit("shop", "t", 2, 12, producer=1),
        commit("shop", "t", 3, 13, producer=2),
        commit("shop", "t", 3, None),
        generation("idle", 1, three=[("t", 0)]),
    ]
    second_day = [end(1, committed=True), end(2, committed=True), commit("shop", "t", 1, 11), commit("idle", "t", 0, 1)]
    for time_ms, records in ((START_MS, first_day), (START_MS + DAY_MS, [*second_day, *second_day[2:]])):
        written.write(*((time_ms + number, [Entry(0, (record,))]) for number, record in enumerate(records)))
    keep(spark, written.data, table)
    snapshot = take_snapshot(spark, table, clock_ms=lambda: START_MS + DAY_MS, records_min=1)
    assert snapshot and snapshot.records == 7, (
        "three group records, two offsets in transactions, an offset, a tombstone"
    )
    copy_to(bucket_url, table)
    at_ms = START_MS + DAY_MS + 1000
    local, remote = (as_of(spark, where, at_ms, data=written.data) for where in (table, bucket_url))
    assert remote.schema == local.schema
    both = local.withColumn("where", F.lit("folder")).unionAll(remote.withColumn("where", F.lit("url")))
    states: dict[str, dict[tuple[str, int], tuple[int, str | None]]] = {"folder": {}, "url": {}}
    for row in both.collect():
        states[row["where"]][row.group, row.partition] = row.offset, row.owner
    expected = {("shop", 0): (10, "one"), ("shop", 1): (11, "two"), ("shop", 2): (12, None), ("idle", 0): (1, "three")}
    assert states == {"folder": expected, "url": expected}


READING = (["as-of", "--at", "0s"], ["diff", "--since", "1h"])
WRITING = (["merge"], ["restore", "--group", "g", "--at", "1h"], ["undo"])


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=lambda command: command[0])
def test_commands_take_a_url(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(commands, "session", None)  # the error is reported before Spark starts
    with pytest.raises(StartError, match=r"^memory://absent: found no history"):
        commands.main([*command, "--table", "memory://absent"])


def test_questions_and_report_take_a_url() -> None:
    for main, arguments in ((questions.main, ["growth"]), (report.main, [])):
        with pytest.raises(StartError, match=r"^memory://absent: found no history"):
            main([*arguments, "--table", "memory://absent"])


def test_table_in_the_memory_of_fsspec_has_its_progress_and_days(tmp_path: Path) -> None:
    import fsspec

    local = HistoryTable.create(tmp_path / "table", TableInfo("id", "cluster", "parquet", 0), Disk())
    local.commit(HistoryProgress(1, {0: 5}, 0, 0, snapshots=(Snapshot("2025-11-21", 1, 3),)), [])
    (local.path / "day=2025-11-22" / "log_partition=0" / "from_offset=0").mkdir(parents=True)
    (local.path / "day=2025-11-22" / "log_partition=0" / "from_offset=0" / "part.parquet").write_bytes(b"")
    fsspec.filesystem("memory").put(str(local.path), "/history-of-fsspec", recursive=True)
    table = open_table("memory://history-of-fsspec")
    assert (table.info, table.progress(), table.days()) == (local.info, local.progress(), ["2025-11-22"])


def test_url_without_table_or_with_another_format_is_refused(tmp_path: Path) -> None:
    import fsspec

    with pytest.raises(StartError, match=r"memory://absent: found no history"):
        open_table("memory://absent")
    with pytest.raises(StartError, match="neither pyarrow"):
        open_table("nosuch://bucket/table")
    local = HistoryTable.create(tmp_path / "table", TableInfo("id", "cluster", "orc", 0), Disk())
    fsspec.filesystem("memory").put(str(local.path), "/history-in-orc", recursive=True)
    with pytest.raises(StartError, match="found a table in the format orc, expected parquet"):
        open_table("memory://history-in-orc")


def test_url_that_was_made_a_path_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It has lost a slash."""
    written, url = WrittenLog(tmp_path / "data", 1), Path("s3://bucket/table")
    for write in (lambda: keep(spark, written.data, url), lambda: merge(spark, url), lambda: open_table(url)):
        with pytest.raises(StartError, match=r"found a URL, expected a folder, .* in Python, give it as a string"):
            write()


@pytest.mark.parametrize("url", ["s3://", "file:///", "memory://"])
def test_url_without_a_name_is_refused(url: str) -> None:
    """Else the first folder of a table would be its bucket."""
    with pytest.raises(StartError, match=f"^{url}: found no name of a bucket or folder"):
        open_table(url)


def test_errors_show_no_password() -> None:
    url = "nosuch://user:geheim@host/table"
    with pytest.raises(StartError, match=r"^nosuch://user:\*\*\*@host/table: neither pyarrow") as unknown:
        open_table(url)
    with pytest.raises(FileNotFoundError, match=r"^memory://user:\*\*\*@absent: found no folder") as absent:
        find_log("memory://user:geheim@absent")
    assert "geheim" not in f"{unknown.value} {absent.value}"
    options = parse_options({"path": "memory://user:geheim@log", "partitions": "7"})
    with pytest.raises(ValueError, match=r"memory://user:\*\*\*@log has no partition 7"):
        selected_numbers([0], 1, options)
