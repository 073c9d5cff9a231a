"""Tests of ``callboard log``: dump, stats, verify and repair."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from log_helpers import offset
from partition_helpers import MEMBER, TIME_MS, plain, transactional, write

from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    OffsetRecord,
    PendingOffsetRecord,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from callboard.runtime.cli.log import commands, verify
from callboard.runtime.cli.log.newest import load_newest
from callboard.runtime.cli.log.repair import require_stopped_server
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.defaults import GRACE_MS
from callboard.runtime.log.compaction.garbage import publish_and_collect
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.format.transaction_records import encode_transaction
from callboard.runtime.log.manifest import segments_folder
from callboard.runtime.log.partition import TRANSACTIONS_TOPIC, folder_name
from callboard.runtime.log.reading.partition_reader import live_offsets, read_partition
from callboard.runtime.log.reading.segment import segment_name
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, write_note


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    DataFolder(folder).close()
    write_note(Disk(), folder, EMPTY_NOTE)
    return folder


@pytest.fixture
def full(data: Path) -> Path:
    """A log that has one record of each kind."""
    group = GroupValue("consumer", 3, "range", "m-1", TIME_MS, (MEMBER,))
    write(
        data,
        3,
        [plain(0, GroupRecord("g", group), offset("g", 41)), plain(2, offset("g", 42, "note"), at_ms=TIME_MS + 5000)],
        [
            transactional(3, PendingOffsetRecord("g", "t", 1, offset("g", 7).value, 9, 1)),
            transactional(4, MarkerRecord(9, 1, True)),
            plain(5, OffsetRecord("h", "t", 0, None), GroupRecord("h", None), UnknownRecord(30, b"\0\x1ekey", b"v")),
        ],
    )
    value = TransactionValue(9, 1, 60_000, 4, frozenset(), TIME_MS, TIME_MS)
    record = frame_record(0, 0, *encode_transaction(TransactionRecord("tx", value)))
    write(data, 16, [encode_batch(0, TIME_MS, TIME_MS, [record])], topic=TRANSACTIONS_TOPIC)
    return data


class CommandOutput:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.lines = out.splitlines()


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> CommandOutput:
        try:
            code: Any = commands.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code or 0
        return CommandOutput(code, *capsys.readouterr())

    return run


# dump -----------------------------------------------------------------------------------------------------------------


def test_dump_prints_one_line_per_record(full: Path, log: Any) -> None:
    result = log("dump", "--data", full)
    assert (result.code, result.err) == (0, "")
    assert [line.split(maxsplit=4)[1:] for line in result.lines[1:]] == [
        ["offsets", "3", "0", "group           g generation 3 consumer/range: m-1 [t-0 t-1]"],
        ["offsets", "3", "1", "offset          g t-0 = 41"],
        ["offsets", "3", "2", "offset          g t-0 = 42 'note'"],
        ["offsets", "3", "3", "pending offset  g t-1 = 7 (producer 9, epoch 1)"],
        ["offsets", "3", "4", "marker          producer 9, epoch 1: commit"],
        ["offsets", "3", "5", "offset          h t-0 deleted"],
        ["offsets", "3", "6", "group           h deleted"],
        ["offsets", "3", "7", "unknown         key type 30, 5 + 1 bytes"],
        ["transactions", "16", "0", "transaction     tx COMPLETE_COMMIT (producer 9, epoch 1)"],
    ]
    assert result.lines[1].startswith("2023-11-14T22:13:20.000Z")


def test_dump_json_has_fields_of_kafka_schemas(full: Path, log: Any) -> None:
    rows = [json.loads(line) for line in log("dump", "--data", full, "--json").lines]
    assert [row["log_offset"] for row in rows] == [*range(8), 0]
    location = {
        "log": "offsets",
        "log_partition": 3,
        "time": "2023-11-14T22:13:25.000Z",
        "timestamp_ms": TIME_MS + 5000,
    }
    expected_fields = {"group": "g", "topic": "t", "partition": 0, "offset": 42, "leader_epoch": -1, "metadata": "note"}
    times = {"commit_timestamp_ms": 5, "expire_timestamp_ms": -1}
    assert rows[2] == {**location, "log_offset": 2, "kind": "offset", "tombstone": False, **expected_fields, **times}
    [member] = rows[0]["members"]
    assert (member["subscription"], member["assignment"]) == (["t"], ["t-0", "t-1"])
    assert [row["kind"] for row in rows if row["tombstone"]] == ["offset", "group"]
    assert rows[7]["key"] == "AB5rZXk="


def test_dump_without_matches_prints_message(full: Path, log: Any) -> None:
    result = log("dump", "--data", full, "--group", "nobody")
    assert (result.code, len(result.lines), result.err) == (0, 1, "callboard: no such records\n")


def test_dump_filters_by_group_and_time(full: Path, log: Any) -> None:
    assert len(log("dump", "--data", full, "--group", "h").lines) == 3
    assert len(log("dump", "--data", full, "--since", "2023-11-14T22:13:24").lines) == 2
    assert len(log("dump", "--data", full, "--until", "2023-11-14T22:13:24Z", "--log", "offsets").lines) == 8
    assert len(log("dump", "--data", full, "--until", "2023-11-14T22:13:25Z", "--log", "offsets").lines) == 8, (
        "the limit is exclusive"
    )
    assert len(log("dump", "--data", full, "--since", "1d").lines) == 1, "all records are older"
    assert len(log("dump", "--data", full, "--partition", "16").lines) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--log", "x"), "bad --log 'x': expected one of offsets, transactions"),
        (("--since", "yesterday"), "bad --since 'yesterday': expected ISO 8601"),
        (("--partition", "4"), "found no partition 4 with records"),
    ],
)
def test_invalid_arguments_are_refused(full: Path, log: Any, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(StartError, match=message):
        log("dump", "--data", full, *arguments)


def test_folder_without_log_is_refused(tmp_path: Path, log: Any) -> None:
    with pytest.raises(StartError, match=r"found neither callboard\.json nor a folder __consumer_offsets-N"):
        log("dump", "--data", tmp_path)
    with pytest.raises(StartError, match="found no folder"):
        log("stats", "--data", tmp_path / "nowhere")


def test_commands_on_empty_log_succeed(data: Path, log: Any) -> None:
    assert log("dump", "--data", data).code == 0
    assert log("stats", "--data", data).out == "no records yet\n"


def test_dump_with_incomplete_last_batch_reports_no_damage(full: Path, log: Any) -> None:
    [last] = (full / folder_name(3)).glob("*3.log")
    last.write_bytes(last.read_bytes() + plain(8, offset("g", 1))[:30])
    result = log("dump", "--data", full)
    assert (result.code, result.err, len(result.lines)) == (0, "", 10)


# stats ----------------------------------------------------------------------------------------------------------------


def test_stats_json_counts_live_and_dead_records(full: Path, log: Any) -> None:
    result = log("stats", "--data", full, "--json")
    stats = json.loads(result.out)
    offsets, transactions = stats["partitions"]
    expected = {"log": "offsets", "partition": 3, "files": 2, "records": 8, "live": 4, "tombstones": 2}
    assert {key: offsets[key] for key in expected} == expected
    assert offsets["bytes"] == sum(path.stat().st_size for path in (full / folder_name(3)).iterdir())
    assert (offsets["newest_offset"], offsets["dirty_percent"], offsets["damaged"]) == (7, 100, 0)
    assert offsets["dead_percent"] == 25, "the superseded offset and the marker are dead"
    assert (transactions["log"], transactions["records"], transactions["live"]) == ("transactions", 1, 1)
    assert stats["hottest"][0] == {"records": 2, "kind": "offset", "key": "g t-0"}


def test_stats_prints_tables(full: Path, log: Any) -> None:
    result = log("stats", "--data", full, "--top", "1", "--log", "offsets")
    assert result.code == 0
    assert result.lines[0].split()[:4] == ["log", "partition", "files", "bytes"]
    assert any(line.startswith("records  8 in ") for line in result.lines)
    assert result.lines[-1].split() == ["2", "offset", "g", "t-0"]


# damage and repair --------------------------------------------------------------------------------------------------


def spoil(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.fixture
def damaged(data: Path) -> Path:
    """Offsets 0 to 5 in two segments; the second of three batches is bad in each."""
    batches = [plain(number, offset("g", number, topic=f"t{number}")) for number in range(6)]
    first, second = write(data, 3, batches[:3], batches[3:])
    for path in (first, second):
        spoil(path, len(batches[0]) + 70)
    return data


def test_dump_reports_damage_and_continues(damaged: Path, log: Any) -> None:
    result = log("dump", "--data", damaged)
    assert result.code == 3
    assert [int(line.split()[3]) for line in result.lines[1:]] == [0, 2, 3, 5]
    first, second = result.err.splitlines()
    assert f"{segment_name(0)}: " in first and "offsets 1 to 1" in first
    assert f"{segment_name(3)}: " in second and "offsets 4 to 4" in second


def test_undecodable_record_is_reported(data: Path, log: Any) -> None:
    unknown_batch = encode_batch(1, TIME_MS, TIME_MS, [frame_record(0, 0, b"\0\1", b"")])
    write(data, 3, [plain(0, offset("g", 1)), unknown_batch, plain(2, offset("g", 2))])
    result = log("dump", "--data", data)
    assert (result.code, len(result.lines)) == (3, 3)
    assert "offset 1 in the batch at byte" in result.err


def test_repair_without_yes_changes_nothing(damaged: Path, log: Any) -> None:
    logs_before = {path: path.read_bytes() for path in damaged.rglob("*.log")}
    result = log("repair", "--data", damaged)
    assert result.code == 3
    assert result.lines[-1] == "2 files would be changed; --execute does it"
    assert {path: path.read_bytes() for path in damaged.rglob("*.log")} == logs_before


def test_repair_removes_damage_and_keeps_original(damaged: Path, log: Any) -> None:
    folder = damaged / folder_name(3)
    logs_before = {path: path.read_bytes() for path in folder.glob("*.log")}
    assert log("repair", "--data", damaged, "--execute").code == 0
    assert [offset for offset, _, _ in read_partition(folder)] == [0, 2, 3, 5]
    assert {path.with_name(path.name + ".damaged").read_bytes() for path in logs_before} == set(logs_before.values())
    assert log("dump", "--data", damaged).code == 0
    assert log("repair", "--data", damaged, "--execute").out == "nothing to repair\n"


def test_repair_removes_single_records(data: Path, log: Any) -> None:
    encoder = RecordEncoder()
    valid_record, last_record = offset("g", 1, topic="a"), offset("g", 2, topic="b")
    records = [encoder.frame(valid_record, 0), frame_record(0, 1, b"\0\1", b""), encoder.frame(last_record, 2)]
    write(data, 3, [encode_batch(0, TIME_MS, TIME_MS + 9, records), plain(3, offset("g", 3, topic="c"))])
    assert log("repair", "--data", data, "--execute").code == 0
    assert [offset for offset, _, _ in read_partition(data / folder_name(3))] == [0, 2, 3]
    assert {key[1]: value.offset for key, (_, value) in live_offsets(data / folder_name(3)).items()} == {
        "a": 1,
        "b": 2,
        "c": 3,
    }


def test_repair_of_missing_segment_fills_gap(data: Path, log: Any) -> None:
    batches = [plain(number, offset("g", number, topic=f"t{number}")) for number in range(3)]
    _, removed, _ = write(data, 3, *([batch] for batch in batches))
    removed.unlink()
    assert "offsets 1 to 1" in log("dump", "--data", data).err
    assert log("repair", "--data", data, "--execute").code == 0
    assert log("dump", "--data", data).code == 0
    assert [offset for offset, _, _ in read_partition(data / folder_name(3))] == [0, 2]


def test_repair_of_compacted_segment_writes_next_manifest(data: Path, log: Any) -> None:
    """The replaced segment is deleted after the grace period, as after a compaction."""
    batches = [plain(number, offset("g", number, topic=f"t{number}")) for number in range(4)]
    write(data, 3, *([batch] for batch in batches))
    folder, now_ms = data / folder_name(3), wall_clock_ms()
    assert compact(Disk(), folder, CompactionSettings(now_ms, "", -1.0), lambda: now_ms - 10 * GRACE_MS) is not None
    [compacted] = segments_folder(folder).glob("*.log")
    spoil(compacted, len(batches[0]) + 70)
    assert log("repair", "--data", data, "--execute").code == 0
    assert log("dump", "--data", data).code == 0
    assert [offset for offset, _, _ in read_partition(folder)] == [0, 2, 3]
    assert (folder / f"{compacted.name}.damaged").exists()
    publish_and_collect(Disk(), folder, wall_clock_ms())
    assert compacted.exists(), "a reader may have listed the file just before"
    (folder / segment_name(4)).write_bytes(plain(4, offset("g", 4)))
    assert compact(Disk(), folder, CompactionSettings(now_ms, "", -1.0)) is not None
    publish_and_collect(Disk(), folder, wall_clock_ms() + 10, 0)
    assert len(list(segments_folder(folder).iterdir())) == 1
    assert [offset for offset, _, _ in read_partition(folder)] == [0, 2, 3, 4]


def test_repair_with_running_server_is_refused(damaged: Path, log: Any) -> None:
    with DataFolder(damaged), pytest.raises(StartError, match="in use by process"):
        log("repair", "--data", damaged)
    with require_stopped_server(damaged, Disk()), pytest.raises(StartError, match=f"in use by process {os.getpid()},"):
        DataFolder(damaged)
    (damaged / "journal").mkdir()
    (damaged / "journal" / f"{4:020d}.journal").touch()
    with pytest.raises(StartError, match="found a journal"):
        log("repair", "--data", damaged)


def test_repair_of_kafka_folder_is_refused(damaged: Path, log: Any) -> None:
    (damaged / "callboard.json").unlink()
    with pytest.raises(StartError, match=r"found no callboard\.json"):
        log("repair", "--data", damaged, "--execute")


def test_interrupted_repair_can_be_repeated(damaged: Path, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "made to fail")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", fails)
        result = log("repair", "--data", damaged, "--execute")
        assert result.code == 1
        assert "made to fail" in result.err
    assert log("dump", "--data", damaged).code == 3, "no file has changed"
    assert log("repair", "--data", damaged, "--execute").code == 0
    assert log("dump", "--data", damaged).code == 0


# verify ---------------------------------------------------------------------------------------------------------------


def test_verify_of_intact_log_exits_with_0(full: Path, log: Any) -> None:
    result = log("verify", "--data", full)
    assert result.code == 0
    assert result.out.startswith("9 records, ")
    assert result.out.endswith(" in 2 partitions: all is well\n")


def test_verify_changes_no_file(full: Path, log: Any) -> None:
    """Only access times may change."""

    def file_states() -> dict[Path, tuple[int, ...]]:
        stats = {path: path.stat() for path in full.rglob("*")}
        return {
            path: (status.st_ino, status.st_nlink, status.st_size, status.st_mtime_ns) for path, status in stats.items()
        }

    states_before = file_states()
    log("verify", "--data", full)
    assert file_states() == states_before


def test_verify_reports_path_of_damage(damaged: Path, log: Any) -> None:
    result = log("verify", "--data", damaged)
    assert result.code == 3
    assert f"{damaged / folder_name(3) / segment_name(0)}: " in result.lines[0]
    assert result.lines[-1].endswith("in 1 partition: 2 faults; callboard log repair removes them")


def test_verify_with_incomplete_last_batch_exits_with_0(full: Path, log: Any) -> None:
    [last] = (full / folder_name(3)).glob("*3.log")
    last.write_bytes(last.read_bytes() + plain(8, offset("g", 1))[:30])
    result = log("verify", "--data", full)
    assert result.code == 0
    assert "being written" in result.lines[0]


def test_verify_json_has_counts_and_problems(damaged: Path, log: Any) -> None:
    [checked] = json.loads(log("verify", "--data", damaged, "--json").out)
    assert (checked["records"], checked["is_well"], len(checked["troubles"])) == (4, False, 2)


@pytest.mark.parametrize("way", ["newest first", "after compaction 1"])
def test_verify_reports_differences_between_readers(
    full: Path, log: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that omits a group; a compaction that removes everything."""
    if way == "newest first":
        really = load_newest

        def forgets(*args: Any) -> Any:
            loaded = really(*args)
            return loaded._replace(state={})

        monkeypatch.setattr(verify, "load_newest", forgets)
    else:
        monkeypatch.setattr(
            verify, "compact", lambda _disk, folder, _settings: [path.unlink() for path in folder.glob("*.log")]
        )
    result = log("verify", "--data", full, "--log", "offsets")
    assert result.code == 3
    assert "'g' is GroupContent(type='classic', value=GroupValue(" in result.out and f"and None {way}" in result.out
