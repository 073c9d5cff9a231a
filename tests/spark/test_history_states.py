"""Offsets and owners at a time and their changes: compared with a replay, and for one example."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from history_helpers import START_MS, WrittenLog, commit, end, generation
from migrated_groups import downgraded, upgraded
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from callboard.actors.ports import Entry
from callboard.actors.records import GroupRecord, MarkerRecord, OffsetRecord, PendingOffsetRecord
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.reading.partition_reader import partition_folders, partition_of, read_partition
from callboard.spark.commands import history as commands
from callboard.spark.history import HistoryTable, as_of, diff, keep, take_snapshot
from callboard.spark.history.states import AS_OF_COLUMNS, damaged_files
from callboard.spark.time_options import parse_time

HOUR_MS = 3_600_000
HOURS = 400
Key = tuple[str, str, int]


def at(hour: float) -> int:
    return START_MS + round(hour * HOUR_MS)


@pytest.fixture(scope="module")
def written_log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> WrittenLog:
    """A day of a group: one member, then two; a committed and an aborted transaction; a deletion; a consumer group."""
    written = WrittenLog(tmp_path_factory.mktemp("story") / "data", segment_bytes=300)
    rounds: list[tuple[float, Any]] = [
        (0, commit("shop", "orders", 0, 1)),
        (1, generation("shop", 1, one=[("orders", 0), ("orders", 1)])),
        (2, commit("shop", "orders", 0, 10)),
        (2, commit("shop", "orders", 1, 20)),
        (3, generation("shop", 2, one=[("orders", 1)], two=[("orders", 0)])),
        (4, commit("shop", "orders", 0, 12)),
        (5, commit("shop", "orders", 1, 15)),
        (6, commit("shop", "refunds", 0, 100, producer=7)),
        (7, commit("shop", "orders", 1, 99, producer=8)),
        (8, end(7, committed=True)),
        (8, end(8, committed=False)),
        (9, commit("shop", "refunds", 0, 101, producer=7)),
        (10, commit("shop", "orders", 0, None)),
        (11, generation("shop", 3)),
        (12, commit("shop", "orders", 1, 15)),
        (13, generation("shop", 4, one=[("orders", 1)])),
        (14, upgraded("shop", 5, ["one"])),
        (15, commit("shop", "orders", 1, 16)),
        (16, downgraded(generation("shop", 6, one=[("orders", 1)]), ["one"])),
        (17, commit("shop", "orders", 1, 17)),
    ]
    entries = ((at(hour), content if type(content) is tuple else (content,)) for hour, content in rounds)
    written.write(*((time_ms, [Entry(0, records)]) for time_ms, records in entries))
    written.write((at(3), [Entry(1, (commit("other", "orders", 0, 5),))]))
    keep(spark, written.data, written.data.parent / "table")
    return written


def table_of(written_log: WrittenLog) -> Path:
    return written_log.data.parent / "table"


STATES: Mapping[float, dict[str, tuple[int, str | None]]] = {
    -1: {},
    0.5: {"orders-0": (1, None)},
    2: {"orders-0": (10, "one"), "orders-1": (20, "one")},
    5.5: {"orders-0": (12, "two"), "orders-1": (15, "one")},
    7.5: {"orders-0": (12, "two"), "orders-1": (15, "one")},
    8: {"orders-0": (12, "two"), "orders-1": (15, "one"), "refunds-0": (100, None)},
    10: {"orders-1": (15, "one"), "refunds-0": (100, None)},
    12: {"orders-1": (15, None), "refunds-0": (100, None)},
    15: {"orders-1": (16, None), "refunds-0": (100, None)},
    17: {"orders-1": (17, "one"), "refunds-0": (100, None)},
}


def test_as_of_returns_offsets_and_owners_at_time(spark: SparkSession, written_log: WrittenLog) -> None:
    """With the data folder, since the last hours are in the open segment."""
    states = states_at(spark, table_of(written_log), STATES, groups=["shop"], data=written_log.data)
    found = {
        hour: {f"{topic}-{partition}": value for (_, topic, partition), value in state.items()}
        for hour, state in states.items()
    }
    assert found == STATES


def states_at(
    spark: SparkSession, table: Path, hours: Iterable[float], **arguments: Any
) -> dict[float, dict[Key, tuple[int, str | None]]]:
    """The offset and owner of each key at each hour; fails if a key occurs twice. One job of Spark for all."""
    states: dict[float, dict[Key, tuple[int, str | None]]] = {hour: {} for hour in hours}
    frames = [as_of(spark, table, at(hour), **arguments).withColumn("hour", F.lit(float(hour))) for hour in states]
    assert tuple(frames[0].columns) == (*AS_OF_COLUMNS, "hour")
    for row in reduce(DataFrame.unionAll, frames).collect():
        state, key = states[row.hour], (row.group, row.topic, row.partition)
        assert key not in state
        state[key] = row.offset, row.owner
    return states


def test_as_of_returns_all_columns_of_commit(spark: SparkSession, written_log: WrittenLog) -> None:
    time = datetime.fromtimestamp(at(4.5) / 1000, UTC)
    frame = as_of(spark, table_of(written_log), time, data=written_log.data).where("topic = 'orders' and partition = 0")
    times = {name: f"unix_millis({name})" for name in ("commit_timestamp", "timestamp")}
    names = [times.get(name, name) for name in AS_OF_COLUMNS]
    rows = {row[0]: tuple(row)[1:] for row in frame.selectExpr(*names).collect()}
    expected_row = ("orders", 0, 12, 3, "at 12", START_MS, None, "two", None, "client-two", "/10.0.0.2", 2, 0, 5, at(4))
    assert rows.pop("shop") == expected_row
    assert rows.pop("other")[2] == 5 and not rows


def test_as_of_with_time_without_zone_is_refused(spark: SparkSession, written_log: WrittenLog) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        as_of(spark, table_of(written_log), datetime(2025, 11, 21, 12))


def test_diff_returns_changes_between_times(spark: SparkSession, written_log: WrittenLog) -> None:
    def changes(before: float, after: float) -> dict[str, tuple[Any, ...]]:
        frame = diff(spark, table_of(written_log), at(before), at(after), groups=["shop"], data=written_log.data)
        names = ("change", "moved", "before_offset", "after_offset", "before_owner", "after_owner")
        return {f"{row.topic}-{row.partition}": tuple(row[name] for name in names) for row in frame.collect()}

    assert changes(2.5, 5.5) == {
        "orders-0": ("forward", 2, 10, 12, "one", "two"),
        "orders-1": ("back", -5, 20, 15, "one", "one"),
    }
    assert changes(9, 12) == {
        "orders-0": ("gone", None, 12, None, "two", None),
        "orders-1": ("again", 0, 15, 15, "one", None),
    }
    assert changes(-1, 0) == {"orders-0": ("new", None, None, 1, None, None)}
    assert changes(5.5, 7) == {}


def test_key_with_two_owners_and_extreme_offsets_has_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """An assignor of a client may give a partition to all members. A difference may need 65 bits."""
    log, least, greatest = WrittenLog(tmp_path / "data"), -(2**63), 2**63 - 1
    shared = generation("g", 1, one=[("t", 0), ("t", 1)], two=[("t", 0), ("t", 0)])
    first = (shared, commit("g", "t", 0, least), commit("g", "t", 1, greatest), commit("g", "t", 2, 0))
    second = (commit("g", "t", 0, greatest), commit("g", "t", 1, least), commit("g", "t", 2, least))
    log.write((at(1), [Entry(0, first)]), (at(2), [Entry(0, second)]))
    keep(spark, log.data, tmp_path / "table")
    rows = diff(spark, tmp_path / "table", at(1), at(2), data=log.data).collect()
    found = [(row.partition, row.change, row.moved, row.before_owner, row.after_owner) for row in rows]
    assert found == [
        (0, "forward", greatest, "one", "one"),
        (1, "back", least, "one", "one"),
        (2, "back", least, None, None),
    ]


def replay(data: Path, limit_ms: int) -> dict[Key, tuple[int, str | None]]:
    """The same state by a simple replay in log order."""
    expected: dict[Key, tuple[int, str | None]] = {}
    for folder in partition_folders(data).values():
        newest: dict[Key, tuple[int, int | None, str | None]] = {}
        pending: dict[int, list[tuple[Key, tuple[int, int | None, str | None]]]] = {}
        owners: dict[str, dict[tuple[str, int], str]] = {}
        for log_offset, time_ms, record in read_partition(folder):
            if time_ms > limit_ms:
                continue
            if isinstance(record, GroupRecord):
                owners[record.group_id] = owners_of(record)
            elif isinstance(record, MarkerRecord):
                for key, value in pending.pop(record.producer_id, []):
                    if record.committed and newest.get(key, (-1, None, None))[0] < value[0]:
                        newest[key] = value
            elif isinstance(record, OffsetRecord | PendingOffsetRecord):
                key = record.group_id, record.topic, record.partition
                offset = record.value.offset if record.value else None
                value = log_offset, offset, owners.get(record.group_id, {}).get((record.topic, record.partition))
                if isinstance(record, PendingOffsetRecord) and offset is not None:
                    pending.setdefault(record.producer_id, []).append((key, value))
                else:
                    newest[key] = value
        expected |= {key: (offset, owner) for key, (_, offset, owner) in newest.items() if offset is not None}
    return expected


def owners_of(record: GroupRecord) -> dict[tuple[str, int], str]:
    """In these tests a member with partitions a and b is called ``a-b``."""
    members = record.value.members if record.value else ()
    return {("t", int(part)): member.member_id for member in members for part in member.member_id.split("-")}


def random_rounds(chance: random.Random) -> list[tuple[int, list[Entry]]]:
    """Hundreds of random records of three groups in two log partitions, one an hour. Groups change their protocol."""
    rounds: list[tuple[int, list[Entry]]] = []
    open_producers: set[tuple[int, int]] = set()
    changes = random.Random(5)
    for number in range(HOURS):
        group = chance.choice(("a", "b", "c"))
        record: Any = commit(group, "t", chance.randrange(4), chance.choice((number, number, None)))
        kind = chance.random()
        if kind < 0.15:
            members_by_id = {"0": [("t", 0)], "2-3": [("t", 2), ("t", 3)]}
            members: Any = chance.choice([{}, {"0-1": [("t", 0), ("t", 1)]}, members_by_id])
            record = generation(group, number, **members)
            changed = changes.choice((upgraded(group, number, members), downgraded(record, ["0-1", "0", "2-3"])))
            rounds.append((at(number), [Entry("abc".index(group) % 2, changed)]))
            continue
        if kind < 0.35:
            producer = chance.randrange(3)
            record = commit(group, "t", chance.randrange(4), number, producer=producer)
            open_producers.add(("abc".index(group) % 2, producer))
        elif kind < 0.45 and open_producers:
            ended_producer = chance.choice(sorted(open_producers))
            open_producers.discard(ended_producer)
            rounds.append((at(number), [Entry(ended_producer[0], (end(ended_producer[1], chance.random() < 0.6),))]))
        rounds.append((at(number), [Entry("abc".index(group) % 2, (record,))]))
    return rounds


def test_as_of_equals_replay(spark: SparkSession, tmp_path: Path) -> None:
    """At random times, without a snapshot and with two of which the second is made from the first."""
    chance, table = random.Random(11), tmp_path / "table"
    written = WrittenLog(tmp_path / "data", segment_bytes=900)
    written.write(*random_rounds(chance))
    keep(spark, written.data, table)
    hours = [0, chance.randrange(80), 95, 245]  # the last two are some hours after the days of the snapshots
    expected = {hour: replay(written.data, at(hour)) for hour in hours}
    assert states_at(spark, table, hours, data=written.data) == expected
    for clock_hour in (100, 250):
        assert take_snapshot(spark, table, clock_ms=partial(at, clock_hour), records_min=1)
    assert states_at(spark, table, [95, 245], data=written.data) == {hour: expected[hour] for hour in (95, 245)}


# Commands ------------------------------------------------------------------------------------------------------------


def callboard(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str]:
    with pytest.raises(SystemExit) as exit_info:
        commands.main([str(argument) for argument in arguments])
    assert not exit_info.value.code
    return capsys.readouterr()


def test_as_of_command_prints_table_json_csv_and_writes_files(
    spark: SparkSession, written_log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    time = datetime.fromtimestamp(at(2.5) / 1000, UTC).isoformat()
    arguments = ("as-of", "--table", table_of(written_log), "--data", written_log.data, "--group", "shop", "--at", time)
    lines = [line.split() for line in callboard(capsys, *arguments)[0].splitlines()]
    assert [line[:4] for line in lines[1:]] == [["shop", "orders", "0", "10"], ["shop", "orders", "1", "20"]]
    rows = json.loads(callboard(capsys, *arguments, "--json")[0])
    assert rows[0]["timestamp"] == "2025-11-21T06:40:00.000Z" and rows[0]["owner_client"] == "client-one"
    assert [row["offset"] for row in csv.DictReader(io.StringIO(callboard(capsys, *arguments, "--csv")[0]))] == [
        "10",
        "20",
    ]
    output, _ = callboard(capsys, *arguments, "-o", tmp_path / "found.parquet")
    assert output == f"2 rows in {tmp_path / 'found.parquet'}\n"
    assert [row.offset for row in spark.read.parquet(str(tmp_path / "found.parquet")).collect()] == [10, 20]


@pytest.mark.parametrize("time", ["0001-01-01", "0931-11-21T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_as_of_at_any_time_that_a_datetime_has(spark: SparkSession, written_log: WrittenLog, time: str) -> None:
    """Spark's own conversion of days raised an error before the year 1000."""
    day = parse_time("--at", time, datetime.now(UTC))
    assert (as_of(spark, table_of(written_log), day).count() == 0) == (day.year < 2000)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "999999999d", "", "1"])
def test_time_that_is_none_in_utc_is_refused(time: str) -> None:
    with pytest.raises(StartError, match="expected ISO 8601"):
        parse_time("--at", time, datetime.now(UTC))


def test_diff_command(spark: SparkSession, written_log: WrittenLog, capsys: pytest.CaptureFixture[str]) -> None:
    times = [datetime.fromtimestamp(at(hour) / 1000, UTC).isoformat() for hour in (2.5, 5.5)]
    arguments = (
        "diff",
        "--table",
        table_of(written_log),
        "--data",
        written_log.data,
        "--group",
        "shop",
        "--since",
        times[0],
    )
    rows = json.loads(callboard(capsys, *arguments, "--until", times[1], "--json")[0])
    assert [(row["change"], row["moved"]) for row in rows] == [("forward", 2), ("back", -5)]
    out, err = callboard(capsys, *arguments, "--until", times[0])
    assert (out, err) == ("", "callboard: nothing is different\n")


def test_as_of_with_damage_names_file(
    spark: SparkSession, written_log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only for log partitions of the requested groups; restore then writes nothing."""
    data = tmp_path / "data"
    shutil.copytree(written_log.data, data)
    table = HistoryTable.open(table_of(written_log))
    damaged_group, other_group = (
        next(group_id for group_id in map(str, range(99)) if partition_of(group_id, 2) == number) for number in (0, 1)
    )
    file = log_files(Disk(), partition_folders(data)[0]).files[-1].path
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:] + content)
    assert damaged_files(spark, table, data) == damaged_files(spark, table, data, [damaged_group]) == [str(file)]
    assert damaged_files(spark, table, data, [other_group]) == damaged_files(spark, table, written_log.data) == []
    with pytest.raises(SystemExit) as exit_info:
        commands.main(
            ["as-of", "--table", str(table.path), "--data", str(data), "--at", "0s", "--group", damaged_group]
        )
    assert exit_info.value.code == 3 and f"callboard: {file}: damaged" in capsys.readouterr().err
    with pytest.raises(StartError, match="found no callboard"):
        commands.main(["as-of", "--table", str(table.path), "--data", str(tmp_path / "absent"), "--at", "0s"])


def test_as_of_without_data_warns_about_open_segments(
    spark: SparkSession, written_log: WrittenLog, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("as-of", "--table", table_of(written_log), "--at", "0s")
    assert "the result does not include the open segments" in callboard(capsys, *arguments)[1]
    assert HistoryTable.open(table_of(written_log)).progress().taken_to[0] < 30
