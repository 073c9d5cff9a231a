"""The data source: its options, its errors, the location of a log, and reading in Spark.

What needs no JVM runs without one: the readers of a task are plain Python.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from compaction_helpers import BatchSpec, RecordSpec, write_files
from log_helpers import LazyDisk, append, entry, offset
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from spark_helpers import DAY_MS, I16, START_MS, iter_rows, read_rows, rows_of, text

from callboard.actors.ports import Entry
from callboard.actors.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, OffsetValue
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.job import CompactionJob, run
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import INFO_NAME, DataFolder
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.manifest import ManifestError, manifest_folder, manifest_name, newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading.segment import segment_name
from callboard.spark.columns import ALL_COLUMNS, arrow_schema
from callboard.spark.files import RemoteDisk, find_log
from callboard.spark.options import parse_options
from callboard.spark.scan import PartitionScan
from callboard.spark.tasks import distribute

# Options ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some thousand records of all kinds in four partitions, with several segments each."""
    root = tmp_path_factory.mktemp("generated")
    write_log(root, LogShape(8000, 4, groups=40, segment_bytes=60_000, transaction_rate=0.05, group_record_rate=0.05))
    DataFolder(root, 4).close()
    return root


def test_options_select_records(generated: Path) -> None:
    all_rows = [row for number in range(4) for row in read_rows(generated, number)]
    kinds = {row["kind"] for row in all_rows}
    assert kinds == {"offset", "group", "marker"}
    assert {row["kind"] for row in read_rows(generated, kind="group,marker")} == {"group", "marker"}
    group = next(row["group"] for row in read_rows(generated, 2) if row["kind"] == "group")
    expected_rows = read_rows(generated, 2, groups=group, kind="offset,group")
    assert expected_rows == [row for row in all_rows if row["group"] == group] and len(expected_rows) > 10
    assert {row["kind"] for row in read_rows(generated, 2, groups=f'["{group}"]')} == {
        *("group", "offset"),
        *({row["kind"] for row in read_rows(generated, 2)} & {"marker"}),
    }
    half_ms = sorted(row["timestamp"] for row in read_rows(generated))[50] // 1000
    since = read_rows(generated, since=str(half_ms))
    assert since == [row for row in read_rows(generated) if row["timestamp"] >= half_ms * 1000] and since
    assert read_rows(generated, columns="offset,group") == [
        {"offset": row["offset"], "group": row["group"]} for row in read_rows(generated)
    ]


def test_option_since_accepts_iso_and_milliseconds() -> None:
    times = [parse_options({"path": "p", "since": text}).since_ms for text in ("1767225600000", "2026-01-01T00:00:00Z")]
    assert times == [1767225600000] * 2
    assert parse_options({"path": "p", "since": "2026-01-01"}).since_ms == 1767225600000, "the default zone is UTC"


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"mode": "newest"}, "bad mode 'newest': expected records or live"),
        ({"partitions": "1-x"}, "bad partitions '1-x': expected numbers and ranges"),
        ({"partitions": "0,5-3"}, "bad partitions '5-3': expected A-B with A up to B"),
        ({"groups": "[1]"}, "expected strings in the list"),
        ({"groups": '["a'}, "expected a JSON list"),
        ({"since": "yesterday"}, "bad since 'yesterday': expected 2026-11-21T08:00:00Z, or ms since 1970"),
        ({"kind": "offsets"}, "bad kind 'offsets': expected some of offset, group"),
        ({"columns": "grp"}, "bad columns 'grp': expected some of log_partition"),
        ({"damage": "ignore"}, "bad damage 'ignore': expected failfast or permissive"),
        ({"rowsPerTrigger": "0"}, "bad rowsPerTrigger '0': expected a number of at least 1"),
        ({"goups": "a"}, "unknown option 'goups'; expected some of mode, partitions, groups"),
        ({"path": ""}, "no path was given"),
    ],
)
def test_invalid_option_raises_value_error_with_its_name(option: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_options({"path": "data", **option})
    assert expected in str(error.value)


def test_distribute_balances_sizes() -> None:
    assert distribute({"a": 5, "b": 3, "c": 2, "d": 0}, 2) == [["a", "d"], ["b", "c"]]
    assert distribute({}, 3) == []
    assert distribute({"a": 0}, 0) == [["a"]]


# Damage, and removed files ---------------------------------------------------------------------------------------


def damaged(tmp_path: Path) -> tuple[Path, Path]:
    """Three batches in a closed segment, the second one damaged, and one batch in the next segment."""
    folder = tmp_path / "__consumer_offsets-0"
    plain = [BatchSpec((RecordSpec(*encode(offset("g", number))),)) for number in range(4)]
    write_files(Disk(), [plain[:3], plain[3:]], folder)
    path = folder / segment_name(0)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 30] ^= 1
    path.write_bytes(data)
    return tmp_path, path


def test_damage_raises_with_file_and_byte_or_gives_damage_row(tmp_path: Path) -> None:
    root, path = damaged(tmp_path)
    middle = path.stat().st_size // 3
    for mode in ("records", "live"):
        with pytest.raises(DamagedBatch, match=f"{path}: damaged batch at byte {middle}: checksum"):
            read_rows(root, mode=mode)
    rows = read_rows(root, damage="permissive")
    assert [(row["kind"], row["log_offset"], row["offset"]) for row in rows if row["kind"] == "offset"] == [
        ("offset", 0, 0),
        ("offset", 2, 2),
        ("offset", 3, 3),
    ]
    (notice,) = [row for row in rows if row["kind"] == "damage"]
    assert notice["log_offset"] == 1 and f"{path}: {middle} damaged bytes at byte {middle}" in notice["notice"]
    live = read_rows(root, damage="permissive", mode="live")
    assert sorted((row["kind"], row["log_offset"]) for row in live) == [("damage", 1), ("offset", 3)]
    assert [row["kind"] for row in read_rows(root, damage="permissive", kind="offset", mode="live")] == ["offset"]


def test_torn_end_is_not_damage(tmp_path: Path) -> None:
    root, folder = tmp_path, tmp_path / "__consumer_offsets-0"
    write_files(Disk(), [[BatchSpec((RecordSpec(*encode(offset("g", number))),)) for number in range(2)]], folder)
    path = folder / segment_name(0)
    path.write_bytes(path.read_bytes()[:-1])
    for mode in ("records", "live"):
        assert [row["offset"] for row in read_rows(root, mode=mode)] == [0]


def test_undecodable_record_is_reported_with_offset(tmp_path: Path) -> None:
    key, value = encode(offset("g", 5))
    write_files(
        Disk(),
        [[BatchSpec((RecordSpec(key, value), RecordSpec(key[:5], value), RecordSpec(key, value)))]],
        tmp_path / "__consumer_offsets-0",
    )
    with pytest.raises(DamagedBatch, match="record at offset 1: damaged record key"):
        read_rows(tmp_path)
    kinds = [(row["kind"], row["log_offset"]) for row in read_rows(tmp_path, damage="permissive")]
    assert kinds == [("offset", 0), ("damage", 1), ("offset", 2)]


def test_manifest_of_newer_version_is_refused(tmp_path: Path) -> None:
    root, path = damaged(tmp_path)
    manifests = manifest_folder(path.parent)
    manifests.mkdir(parents=True)
    (manifests / manifest_name(1)).write_text('{"version": 9}')
    with pytest.raises(ManifestError, match="found manifest version 9"):
        read_rows(root, damage="permissive")


@pytest.mark.parametrize("mode", ["records", "live"])
def test_file_replaced_by_compaction_during_read_is_read_from_replacement(tmp_path: Path, mode: str) -> None:
    """The log is compacted, and old files are removed, after the first rows were read."""
    write_log(tmp_path, LogShape(6000, 1, groups=30, segment_bytes=40_000, transaction_rate=0.05))
    folder = tmp_path / "__consumer_offsets-0"
    expected = {row["log_offset"] for row in read_rows(tmp_path, mode="live")}
    files = {path.name for path in folder.glob("*.log")}
    going = iter_rows(tmp_path, chunk_bytes=5000, mode=mode)
    first = next(going)
    for _ in range(2):  # the first run replaces files, the second removes them
        assert run(CompactionJob(folder, CompactionSettings(START_MS + DAY_MS, "test", -1.0), grace_ms=0)).reason == ""
    assert len({path.name for path in folder.glob("*.log")} & files) < len(files) - 2
    offsets = [first["log_offset"], *(row["log_offset"] for row in going)]
    assert len(set(offsets)) == len(offsets)
    if mode == "live":
        assert set(offsets) == expected
    else:
        assert offsets == sorted(offsets) and set(offsets) >= expected and len(offsets) < 6000


# Locations of a log ----------------------------------------------------------------------------------------------


def test_find_log_returns_folders_or_names_missing_files(generated: Path, tmp_path: Path) -> None:
    log_location = find_log(f"file://{generated}")
    assert list(log_location.folders) == [0, 1, 2, 3] and log_location.partition_count == 4
    assert find_log(str(generated / "__consumer_offsets-2")).folders == {2: generated / "__consumer_offsets-2"}
    group = read_rows(generated, 2, kind="group")[0]["group"]
    assert log_location.partition_numbers(None, frozenset([group])) == [2]
    with pytest.raises(FileNotFoundError, match="nowhere: found no folder"):
        find_log(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"found neither callboard\.json nor a folder"):
        find_log(str(tmp_path))
    with pytest.raises(ValueError, match="nonsense://x: neither pyarrow"):
        find_log("nonsense://x")
    (tmp_path / INFO_NAME).write_text('{"format": 99}')
    with pytest.raises(Exception, match="a newer version wrote this folder"):
        find_log(str(tmp_path))


def test_log_in_fsspec_file_system_is_read(generated: Path, tmp_path: Path) -> None:
    """A zip archive is used as an object store, which can only list and read. The rows equal the folder's."""
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(generated.rglob("*")):
            if path.is_file():
                packed.write(path, f"data/{path.relative_to(generated)}")
    url = f"zip://data::{archive}"
    log_location = find_log(url)
    assert isinstance(log_location.disk, RemoteDisk) and log_location.partition_count == 4
    for mode in ("records", "live"):
        options = parse_options({"path": url, "mode": mode})
        batches = PartitionScan(log_location.disk, log_location.folders[1], 1, options).batches()
        assert [row for batch in batches for row in rows_of(batch)] == read_rows(generated, 1, mode=mode)
    with pytest.raises(OSError, match="this file system is read-only"):
        log_location.disk.open(log_location.folders[1] / "new", os.O_WRONLY | os.O_CREAT)


def test_missing_segment_of_compacted_log_raises_or_gives_damage_row(tmp_path: Path) -> None:
    """In all modes, and in a file system of fsspec, where the complete log is read first."""
    root = tmp_path / "data"
    DataFolder(root, 1).close()
    log = OffsetsLog(root, 1, threads=InlineThreads(), segment_bytes=300, checkpoint_bytes=600)
    log.open()
    for number in range(30):
        log.append([Entry(0, (offset("g", number, partition=number),))], 5, lambda _: None)
        if number == 12:
            assert compact(Disk(), root / folder_name(0), CompactionSettings(5, "test", -1.0)) is not None
    log.close()
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "data")
    log_location = find_log(f"zip://data::{archive}")
    full_scan = PartitionScan(log_location.disk, log_location.folders[0], 0, parse_options({"path": str(root)}))
    assert sum(batch.num_rows for batch in full_scan.batches()) == 30
    clean_end = newest_manifest(Disk(), root / folder_name(0)).clean_end
    path = root / folder_name(0) / segment_name(clean_end)
    path.unlink()
    for mode in ("records", "live"):
        with pytest.raises(DamagedBatch, match=f"the compacted segments end at offset {clean_end}"):
            read_rows(root, mode=mode)
        rows = read_rows(root, mode=mode, damage="permissive")
        assert [row["log_offset"] for row in rows if row["kind"] == "damage"] == [clean_end]
    options = parse_options({"path": str(root), "damage": "permissive"})
    rows = [
        row
        for batch in PartitionScan(Disk(), root / folder_name(0), 0, options).between(0, 30, None)
        for row in rows_of(batch)
    ]
    assert {row["kind"] for row in rows} == {"offset", "damage"}


# In Spark --------------------------------------------------------------------------------------------------------


def test_spark_finds_source_without_registration(spark: SparkSession, generated: Path) -> None:
    """The counts are right, also in SQL and with options."""
    frame = spark.read.format("callboard").load(str(generated))
    assert dict(frame.dtypes).keys() == ALL_COLUMNS.keys()
    rows = [row for number in range(4) for row in read_rows(generated, number)]
    assert frame.count() == len(rows)
    spark.sql(
        f"create or replace temporary view live using callboard options (path '{generated}', mode 'live',"
        " partitions '0,2')"
    )
    counted = spark.sql("select log_partition, kind, count(*) from live group by all").collect()
    expected = [row for number in (0, 2) for row in read_rows(generated, number, mode="live")]
    assert {tuple(row) for row in counted} == {
        (number, kind, sum((row["log_partition"], row["kind"]) == (number, kind) for row in expected))
        for number, kind in {(row["log_partition"], row["kind"]) for row in expected}
    }
    members = spark.read.format("callboard").option("kind", "group").load(str(generated))
    assert members.selectExpr("explode(members) m").select("m.client_host").distinct().collect()


def test_arrow_schema_equals_spark_schema(spark: SparkSession, generated: Path) -> None:
    """Spark refuses a batch with a different Arrow schema."""
    frame = spark.read.format("callboard").load(str(generated))
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(arrow_schema(tuple(ALL_COLUMNS)))


def test_dataframe_used_again_includes_new_records(spark: SparkSession, tmp_path: Path) -> None:
    """Also in a partition that was empty when the DataFrame was created."""
    DataFolder(tmp_path, 6).close()
    log = OffsetsLog(tmp_path, 6, disk=LazyDisk())
    log.open()
    append(log, [entry(0, 1)])
    log.read(0)
    frame = spark.read.format("callboard").load(str(tmp_path))
    assert frame.count() == 1
    append(log, [entry(0, 2), entry(5, 3)])
    log.close()
    assert sorted(row["offset"] for row in frame.collect()) == [1, 2, 3]


def test_filters_do_not_affect_later_queries(spark: SparkSession, generated: Path) -> None:
    """They would if the source supported filter pushdown."""
    frame = spark.read.format("callboard").option("columns", "log_partition").load(str(generated))
    total = frame.count()
    parts = [frame.where(f"log_partition = {number}").count() for number in range(4)]
    assert sum(parts) == total == frame.count()
    union = frame.where("log_partition = 1").union(frame.where("log_partition = 2"))
    assert union.count() == parts[1] + parts[2]


def test_errors_in_spark_contain_cause(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("callboard")
    with pytest.raises(AnalysisException, match="found no folder, expected the data folder of a server"):
        reader.load(str(tmp_path / "nowhere"))
    root, path = damaged(tmp_path)
    with pytest.raises(AnalysisException, match="has no partition 7, expected some of"):
        spark.read.format("callboard").option("partitions", "7").load(str(root)).count()
    with pytest.raises(PythonException, match=f"{path}: damaged batch at byte"):
        reader.load(str(root)).collect()
    with pytest.raises(AnalysisException, match="the source defines its own columns"):
        spark.read.format("callboard").schema("x int").load(str(root)).count()


def test_damaged_partition_does_not_affect_others(spark: SparkSession, tmp_path: Path) -> None:
    root, path = damaged(tmp_path)
    write_files(Disk(), [[BatchSpec((RecordSpec(*encode(offset("h", 9))),))]], root / "__consumer_offsets-3")
    frame = spark.read.format("callboard").option("damage", "permissive").load(str(root))
    rows = frame.select("log_partition", "kind", "offset", "notice").collect()
    assert sorted((row[0], row[1], row[2]) for row in rows if row["kind"] == "offset") == [
        *((0, "offset", number) for number in (0, 2, 3)),
        (3, "offset", 9),
    ]
    assert [str(path) in row["notice"] for row in rows if row["kind"] == "damage"] == [True]


def test_columns_contain_fields_of_group_and_offset_records(spark: SparkSession, tmp_path: Path) -> None:
    """A group with members, subscriptions and assignments; a commit with an expiry."""
    subscription = I16.pack(0) + (1).to_bytes(4, "big") + text("orders") + (-1).to_bytes(4, "big", signed=True)
    assignment = I16.pack(0) + (1).to_bytes(4, "big") + text("orders") + b"\0\0\0\2" + bytes(4) + b"\0\0\0\3"
    member = MemberValue("m-1", "static", "client", "/10.0.0.1", 1, 2, subscription, assignment)
    value = GroupValue("consumer", 4, "range", "m-1", START_MS, (member,))
    other_record = OffsetRecord("g", "t", 1, OffsetValue(7, 3, "é", START_MS, START_MS + 1000))
    log = OffsetsLog(tmp_path, 2, disk=LazyDisk())
    log.open()
    append(log, [Entry(1, (GroupRecord("g", value), other_record, OffsetRecord("g", "t", 1, None)))])
    log.close()
    group, commit, tombstone = spark.read.format("callboard").load(str(tmp_path)).orderBy("log_offset").collect()
    assert group["kind"] == "group" and (group["generation"], group["leader"]) == (4, "m-1")
    (found,) = group["members"]
    assert found["topics"] == ["orders"]
    assert [tuple(assigned_partition) for assigned_partition in found["assigned"]] == [("orders", 0), ("orders", 3)]
    assert (found["client_host"], bytes(found["subscription"])) == ("/10.0.0.1", subscription)
    assert (commit["offset"], commit["leader_epoch"], commit["metadata"]) == (7, None, "é")
    assert (commit["expire_timestamp"] - commit["commit_timestamp"]).total_seconds() == 1
    assert tombstone["tombstone"] and tombstone["offset"] is None and tombstone["partition"] == 1
