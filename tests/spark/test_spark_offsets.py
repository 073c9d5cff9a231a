"""A data folder as DataFrames in a real Spark: compared with a replay, and while a log is written."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from log_helpers import WAIT_TIMEOUT_S, LazyDisk, append, entry, offset
from project_paths import ROOT
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from callboard.actors.ports import Entry
from callboard.actors.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, OffsetValue
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.spark import offsets, read_groups, read_offsets
from callboard.spark.columns import MAX_TIME_MS, MEMBER_FIELDS
from callboard.spark.offsets import GROUPS, OFFSETS
from callboard.spark.pushdown import SETTING

PARTITIONS = 6
ROUNDS_MAX = 2000  # of a writer that is quicker than Spark
GROUP_IDS = ("orders", "Gruppe-ü", "グループ", "😀", "")
# Spark 4.0 leaves the sockets of its results to the garbage collector; later ones close them.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
Replay = dict[tuple[str, str, int], tuple[Any, ...]]


def opened(root: Path, partitions: int = PARTITIONS, segment_bytes: int = 10**8) -> OffsetsLog:
    log = OffsetsLog(root, partitions, disk=LazyDisk(), segment_bytes=segment_bytes)
    log.open()
    return log


def written(root: Path, *entries: Entry, partitions: int = PARTITIONS) -> Path:
    log = opened(root, partitions)
    append(log, entries)
    log.close()
    return root


def offsets_of(frame: DataFrame) -> Replay:
    """The rows by key, with times in ms as in the log. Fails if a key occurs twice."""
    rows = frame.selectExpr(
        *("group", "topic", "partition", "offset", "leader_epoch", "metadata"),
        *("unix_millis(commit_timestamp)", "unix_millis(expire_timestamp)", "log_partition", "log_offset"),
    ).collect()
    replayed: Replay = {tuple(row)[:3]: tuple(row)[3:] for row in rows}
    assert len(replayed) == len(rows)
    return replayed


def commit(chance: random.Random, number: int) -> tuple[int, OffsetRecord]:
    """The log partition and record of a random commit or deletion."""
    group, topic, partition = chance.choice(GROUP_IDS), chance.choice(("t", "zahlungen-ß")), chance.randrange(20)
    value = OffsetValue(number, chance.choice((-1, 0, 7)), "é" * chance.randrange(9), 1_700_000_000_000 + number)
    if chance.random() < 0.2:
        value = value._replace(leader_epoch=-1, expire_timestamp_ms=value.commit_timestamp_ms + 1000)
    alive = chance.random() < 0.8
    return GROUP_IDS.index(group), OffsetRecord(group, topic, partition, value if alive else None)


def replay(live: Replay, record: OffsetRecord, *partition: int) -> None:
    key, value = (record.group_id, record.topic, record.partition), record.value
    live.pop(key, None)
    if value is not None:
        times = (None if time_ms == -1 else time_ms for time_ms in value[3:])
        live[key] = (value.offset, None if value.leader_epoch == -1 else value.leader_epoch, value.metadata, *times)
        live[key] += partition


def test_read_offsets_equals_replay(spark: SparkSession, tmp_path: Path) -> None:
    """Thousands of commits and deletions over many segments, with group records between them."""
    chance = random.Random(7)
    log = opened(tmp_path, segment_bytes=20_000)
    expected: Replay = {}
    for number in range(500):
        commits = [commit(chance, 10 * number + index) for index in range(10)]
        other_entry = Entry(0, (GroupRecord("orders", None),))
        outcomes = append(log, [other_entry, *(Entry(partition, (record,)) for partition, record in commits)])
        for (partition, record), outcome in zip(commits, outcomes[1:], strict=True):
            replay(expected, record, partition, outcome.base_offset)
    log.close()
    assert len(list(tmp_path.rglob("*-0/*.log"))) > 2
    frame = read_offsets(spark, tmp_path)
    assert offsets_of(frame) == expected
    assert len(expected) > 100
    assert dict(frame.dtypes) == OFFSETS


def test_read_groups_returns_groups_with_members(spark: SparkSession, tmp_path: Path) -> None:
    members = (
        MemberValue("m-1", "static-ü", "client", "/127.0.0.1", 300_000, 45_000, b"\0\1", b"\xff"),
        MemberValue("m-2", None, "", "/::1", -1, 6000, b"", b""),
    )
    full = GroupValue("consumer", 3, "range", "m-1", 1_700_000_000_123, members)
    empty = GroupValue("", 4, None, None, -1, ())
    log = opened(tmp_path)
    append(log, [Entry(1, (GroupRecord("グループ", empty), GroupRecord("dead", full), offset("グループ", 5)))])
    append(
        log,
        [Entry(1, (GroupRecord("グループ", full), GroupRecord("dead", None))), Entry(2, (GroupRecord("e", empty),))],
    )
    log.close()
    frame = read_groups(spark, tmp_path)
    fields = MemberValue._fields
    rows = frame.withColumn("current_state_timestamp", frame["current_state_timestamp"].cast("double")).collect()
    rows_by_key = {
        row["group"]: (*row[1:6], tuple(tuple(member[name] for name in fields) for member in row["members"]), *row[7:])
        for row in rows
    }
    assert rows_by_key == {
        "グループ": (3, "consumer", "range", "m-1", 1_700_000_000.123, members, 1, 3),
        "e": (4, "", None, None, None, (), 2, 0),
    }
    assert [name for name, _ in frame.dtypes] == list(GROUPS)


def test_member_columns_are_member_fields_and_parsed_bytes() -> None:
    assert set(MEMBER_FIELDS) == {*MemberValue._fields, "topics", "assigned"}


def test_read_offsets_during_writes_returns_consistent_offsets(spark: SparkSession, tmp_path: Path) -> None:
    """Existing records are found; for records written meanwhile, some consistent state."""
    log = opened(tmp_path, segment_bytes=5000)
    append(log, [entry(partition, 1) for partition in range(PARTITIONS)])
    log.read(0)  # waits until everything is in the files
    frame = read_offsets(spark, tmp_path)
    start_offsets = dict.fromkeys(range(PARTITIONS), 1)
    assert {row["log_partition"]: row["offset"] for row in frame.collect()} == start_offsets

    enough = threading.Event()
    newest = [1]

    def write() -> None:
        while not enough.is_set() and newest[0] < ROUNDS_MAX:
            newest[0] += 1
            append(log, [entry(partition, newest[0]) for partition in range(PARTITIONS)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshots = [{row["log_partition"]: row["offset"] for row in frame.collect()} for _ in range(4)]
    finally:
        enough.set()
        writer.join(WAIT_TIMEOUT_S)
    log.close()
    for earlier, later in zip(
        [start_offsets, *snapshots], [*snapshots, dict.fromkeys(range(PARTITIONS), newest[0])], strict=True
    ):
        assert all(earlier[number] <= later[number] for number in range(PARTITIONS))
    assert {row["log_partition"]: row["offset"] for row in frame.collect()} == dict.fromkeys(start_offsets, newest[0])
    assert len(list(tmp_path.rglob("*-0/*.log"))) > 1


def test_read_offsets_plan_has_no_shuffle(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read_offsets(spark, written(tmp_path, *(entry(number, 1) for number in range(10)), partitions=50))
    assert frame.rdd.getNumPartitions() == 1  # of a few bytes
    frame.explain()
    plan = capsys.readouterr().out
    assert "BatchScan callboard" in plan and "Exchange" not in plan


def test_read_offsets_of_partition_with_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    count = 10_001
    entries = [Entry(0, (offset("g", number, partition=number),)) for number in range(count)]
    rows = offsets_of(read_offsets(spark, written(tmp_path, *entries)))
    assert rows.keys() == {("g", "t", number) for number in range(count)}


def test_timestamp_out_of_range_is_null(spark: SparkSession, tmp_path: Path) -> None:
    times = [-1, 0, 1, MAX_TIME_MS, MAX_TIME_MS + 1, 2**63 - 1, -(2**63)]
    records = [OffsetRecord("g", "t", number, OffsetValue(1, -1, "", time)) for number, time in enumerate(times)]
    frame = read_offsets(spark, written(tmp_path, Entry(0, tuple(records))))
    expected = [None, 0, 1, MAX_TIME_MS, None, None, None]
    assert [row[3] for _, row in sorted(offsets_of(frame).items())] == expected


def test_read_offsets_of_new_data_folder_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    frame = read_offsets(spark, tmp_path)
    assert (frame.collect(), frame.columns) == ([], list(OFFSETS))


def test_read_offsets_of_invalid_folder_raises_immediately(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent: found no folder"):
        read_offsets(spark, tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"found neither callboard\.json"):
        read_groups(spark, str(tmp_path))


def test_read_offsets_with_damage_loses_only_damaged_records(spark: SparkSession, tmp_path: Path) -> None:
    """As in the server, whose start reports the damage too."""
    log = opened(tmp_path)
    for number in range(3):
        append(log, [Entry(3, (offset("g", number, partition=number),))])
    log.close()
    (segment,) = tmp_path.rglob("*.log")
    data = segment.read_bytes()
    damage_position = len(data) // 3 + 30
    segment.write_bytes(data[:damage_position] + b"\xff" + data[damage_position + 1 :])
    assert offsets_of(read_offsets(spark, tmp_path)).keys() == {("g", "t", 0), ("g", "t", 2)}


def test_documentation_examples_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In order. Paths are made absolute, since Spark's working folder differs from the test's."""
    written(tmp_path / "data", entry(0, 41), Entry(1, (offset("h", 1), offset("h", 2, partition=1))))
    text = (ROOT / "docs" / "spark.md").read_text().replace('"./', f'"{tmp_path}/').replace("'./", f"'{tmp_path}/")
    names: dict[str, Any] = {}
    for view in spark.catalog.listTables():  # of other tests, which share the session
        spark.catalog.dropTempView(view.name)
    for example in re.findall("```python\n(.*?)```", text, re.DOTALL):
        exec(example, names)
    spark.conf.unset(SETTING)  # the example of filter pushdown sets it for the session
    printed_rows = [re.findall(r"[\w]+", line) for line in capsys.readouterr().out.splitlines()]
    assert ["g", "1"] in printed_rows and ["h", "2"] in printed_rows, "the example that reads offsets"
    assert ["g", "t", "41"] in [words[:3] for words in printed_rows] and ["h", "t", "3"] in [
        words[:3] for words in printed_rows
    ]
    assert spark.read.parquet(f"{tmp_path}/commits").count() == 3, "the example with a stream"
    for statements in re.findall("```sql\n(.*?)```", text, re.DOTALL):
        for statement in statements.split(";")[:-1]:
            spark.sql(statement).collect()
    assert spark.table("live").count() == 3


def test_source_that_spark_does_not_find_is_registered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout. PySpark 4.3 raises another error for a missing source than 4.2, and it was not."""
    registered: list[SparkSession] = []
    monkeypatch.setattr(offsets, "NAME", "nowhere")
    monkeypatch.setattr(offsets, "register", registered.append)
    with pytest.raises((AnalysisException, Py4JJavaError), match="DATA_SOURCE_NOT_FOUND"):
        read_offsets(spark, written(tmp_path, entry(0, 1)))
    assert registered == [spark]


def run(script: str) -> Sequence[str]:
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return completed.stderr.splitlines()


@pytest.mark.parametrize("library", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("statement", ["from callboard.spark import register", "import callboard.spark.history"])
def test_import_without_extra_names_extra_to_install(statement: str, library: str) -> None:
    output = run(f"import sys; sys.modules[{library!r}] = None; {statement}")[-1]
    assert (
        output.startswith("ModuleNotFoundError")
        and f"needs {library}, which is not installed" in output
        and "'callboard[spark]'" in output
    )
