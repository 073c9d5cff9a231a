"""Log offsets beyond 2^62 in each kind of file: only the batch that has them is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_helpers import Command, command
from kafka_folder_helpers import GROUPS, content, kafka
from log_failure_helpers import (
    FAILED,
    PARTITIONS,
    ROOT,
    STORED,
    LogHarness,
    new_faulty_disk,
    offsets_after_crash,
    problem_events,
)
from log_helpers import entry, new_journal, offset, offsets_in
from partition_helpers import plain
from structlog.testing import capture_logs

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import MarkerRecord
from callboard.runtime.cli.exchange import imports
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import rounds
from callboard.runtime.log.format import batch as batches
from callboard.runtime.log.format.batch import LOG_OFFSET_MAX, encode_batch, frame_record, read_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.format.errors import Damage, OffsetTooLarge
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.log.manifest import LogFile
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.reading.backwards import chunks_newest_first
from callboard.runtime.log.reading.spans import whole_batches
from callboard.runtime.log.rounds import RoundEncoder
from callboard.runtime.testing.disk.faulty import FaultyDisk

LARGE = [2**62, 2**63 - 1]
SEGMENT = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"

kafka_folder = kafka


def record_batch(base: int, *values: int) -> bytes:
    frame = RecordEncoder().frame
    return encode_batch(base, 1, 1, [frame(offset("g", value), delta) for delta, value in enumerate(values)])


def edit_file(disk: FaultyDisk, path: Path, edit: Callable[[bytes], bytes]) -> None:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    data = edit(disk.read(fd, disk.size(fd), 0))
    disk.truncate(fd, 0)
    disk.write(fd, data, 0)
    disk.sync(fd)
    disk.close(fd)


def disk_after_stop(*committed: int) -> FaultyDisk:
    """The disk of a log that was closed after a commit in each of these partitions."""
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    for partition in committed:
        harness.commit(partition)
    harness.log.close()
    return disk


def reopen(disk: FaultyDisk) -> tuple[OffsetsLog, list[Any]]:
    with capture_logs() as lines:
        log = OffsetsLog(ROOT, PARTITIONS, disk=disk, threads=InlineThreads())
        log.open()
    return log, lines


def records_in(log: OffsetsLog, partition: int) -> list[tuple[int, int]]:
    return [(log_offset, record.value.offset) for log_offset, _, record in log.read(partition)]  # type: ignore[union-attr]


def test_largest_log_offset_is_read_and_the_next_one_is_damage() -> None:
    assert read_batch(memoryview(record_batch(LOG_OFFSET_MAX - 1, 1, 2))).last_offset == LOG_OFFSET_MAX
    with pytest.raises(OffsetTooLarge, match=f"expected at most {LOG_OFFSET_MAX}"):
        read_batch(memoryview(record_batch(LOG_OFFSET_MAX, 1, 2)))
    data = record_batch(0, 1) + record_batch(LOG_OFFSET_MAX, 1, 2)
    assert whole_batches(data) == ([0], len(record_batch(0, 1)))


@pytest.mark.parametrize("base", LARGE)
@pytest.mark.parametrize("position", ["end", "middle"])
@pytest.mark.parametrize("has_note", [True, False])
def test_batch_with_large_offset_in_segment_is_damage_and_the_rest_is_read(
    base: int, position: str, has_note: bool
) -> None:
    disk = disk_after_stop(0, 0, 1)
    later_batch = record_batch(2, 7) if position == "middle" else b""
    edit_file(disk, SEGMENT, lambda data: data + record_batch(base, 5, 6) + later_batch)
    if not has_note:
        disk.remove(ROOT / ".clean_shutdown")
    log, lines = reopen(disk)
    damages = [line for line in lines if line["event"] == "damage in the log" and line["file"] != str(ROOT / "journal")]
    assert [line["file"] for line in damages] == [str(SEGMENT)]
    assert str(base) in damages[0]["reason"]
    assert [value for _, value in records_in(log, 0)] == [0, 1] + ([7] if later_batch else [])
    outcomes: list[Appended] = []
    log.append([entry(0, 50), entry(1, 51)], 1, outcomes.extend)
    assert [outcome.error for outcome in outcomes] == [STORED] * 2
    log.close()
    reopened, _ = reopen(disk)
    assert records_in(reopened, 0)[-1] == (outcomes[0].base_offset, 50)
    assert offsets_in(reopened, 1) == [2, 51]


def test_records_within_a_batch_with_large_offset_are_not_taken_for_batches() -> None:
    """The checksum is correct, so the length is too. Client bytes within the batch are not searched for batches."""
    client_batch = record_batch(2, 99)
    damaged_batch = encode_batch(
        2**62, 1, 1, [frame_record(0, 0, b"", client_batch), frame_record(0, 1, b"", client_batch)]
    )
    assert client_batch in damaged_batch
    disk = disk_after_stop(0, 0)
    disk.remove(ROOT / ".clean_shutdown")
    edit_file(disk, SEGMENT, lambda data: data + damaged_batch)
    log, _ = reopen(disk)
    assert [value for _, value in records_in(log, 0)] == [0, 1]


@pytest.mark.parametrize("base", LARGE)
def test_loading_newest_first_reports_a_batch_with_large_offset(base: int) -> None:
    disk = disk_after_stop(0, 0)
    edit_file(disk, SEGMENT, lambda data: data + record_batch(base, 5, 6))
    damages: list[Damage] = []
    chunks = list(chunks_newest_first(disk, [LogFile(SEGMENT, 0, False, False)], damages.append))
    assert sum(len(chunk.starts) for chunk in chunks) == 2
    assert [damage.path for damage in damages] == [SEGMENT]


@pytest.mark.parametrize("base", LARGE)
def test_segment_named_by_a_large_offset_is_ignored(base: int) -> None:
    disk = disk_after_stop(0, 1)
    edit_file(disk, SEGMENT.with_name(f"{base + 1:020d}.log"), lambda data: record_batch(base, 1))
    log, lines = reopen(disk)
    assert [line["event"] for line in lines][:1] == ["unrecognized files in the log's folders"]
    assert log.end_offset(0) == 1


@pytest.mark.parametrize("end", [2**62 + 2, 2**63 - 1])
def test_note_with_large_end_is_ignored(end: int) -> None:
    """Older versions wrote such a note for a file with such a batch."""
    disk = disk_after_stop(0, 1)

    def edit(data: bytes) -> bytes:
        note = json.loads(data)
        note["partitions"]["__consumer_offsets-0"][2] = end
        return json.dumps(with_checksum(note)).encode()

    edit_file(disk, ROOT / ".clean_shutdown", edit)
    log, _ = reopen(disk)
    assert (log.end_offset(0), offsets_in(log, 0)) == (1, [0])


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 2])
def test_journal_with_large_offsets_loses_that_batch_and_is_kept(base: int) -> None:
    disk = disk_after_stop(0, 1)
    disk.remove(ROOT / ".clean_shutdown")
    file = new_journal(disk, ROOT / "journal", 7, {0: 1, 1: 1, 2: base + 1}, counts=PartitionCounts(PARTITIONS, 0))
    file.write(encode_frame([(0, record_batch(base, 5)), (1, record_batch(1, 6))]))
    file.write(encode_frame([(0, record_batch(1, 7))]))
    file.sync()
    file.close()
    log, lines = reopen(disk)
    assert (offsets_in(log, 0), offsets_in(log, 1), log.end_offset(2)) == ([0, 7], [1, 6], 0)
    [log_line] = [line for line in lines if line["event"] == "damage in the log"]
    assert "a batch of partition 0" in log_line["reason"] and str(base) in log_line["reason"]
    assert any(name.endswith(".damaged") for name in disk.names(ROOT / "journal"))
    desk_answers: list[Appended] = []
    log.append([entry(0, 9), entry(1, 9), entry(2, 9)], 1, desk_answers.extend)
    assert [answer.error for answer in desk_answers] == [STORED] * 3
    log.close()


# Rounds --------------------------------------------------------------------------------------------------------------


def encode_round(ends: list[int], entries: list[Entry]) -> list[ErrorCode]:
    round_ = RoundEncoder(ends, 10**6, "synced").encode(entries, 1, lambda outcomes: None)
    partitions = {partition for partition, _ in round_.batches}
    errors = [outcome.error for outcome in round_.outcomes]
    assert {
        log_entry.partition for log_entry, error in zip(entries, errors, strict=True) if error is STORED
    } == partitions
    return errors


@pytest.mark.parametrize("end", [LOG_OFFSET_MAX, 2**63 - 1])
def test_partition_at_the_largest_offset_refuses_only_its_own_entries(end: int) -> None:
    ends = [end, 5]
    with capture_logs():
        assert encode_round(ends, [entry(0, 1), entry(1, 2), entry(0, 3)]) == [
            ErrorCode.UNKNOWN_SERVER_ERROR,
            STORED,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
    assert ends == [end, 6]


def test_batch_that_cannot_be_encoded_refuses_only_its_own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(base_offset: int, *arguments: Any) -> bytes:
        if base_offset == 100:
            raise RuntimeError("planted")
        return batches.encode_batch(base_offset, *arguments)

    monkeypatch.setattr(rounds, "encode_batch", failing)
    ends = [100, 5]
    with capture_logs() as lines:
        errors = encode_round(ends, [entry(0, 1), entry(1, 2), entry(0, 3), entry(1, 4)])
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR, STORED, ErrorCode.UNKNOWN_SERVER_ERROR, STORED]
    assert ends == [100, 7]
    assert "planted" in lines[-1]["reason"]


def test_marker_with_impossible_producer_is_refused_alone() -> None:
    marker = Entry(0, (MarkerRecord(2**63, 1, True),))
    with capture_logs():
        assert encode_round([0, 0], [marker, entry(1, 1)]) == [ErrorCode.UNKNOWN_SERVER_ERROR, STORED]


def test_bug_in_the_append_to_one_partition_does_not_fail_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    harness.commit(0, 1)
    partition = harness.log._partitions[0]

    def failing(batches: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(partition, "append", failing)
    with capture_logs() as lines:
        harness.advance()
        harness.commit(0, 1)
        harness.advance()
    assert problem_events(lines) == ["a partition of the log has failed"]
    assert FAILED not in harness.errors
    assert offsets_after_crash(disk) == harness.stored


# Import --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def import_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(imports.main, capsys)


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 1])
def test_import_of_a_file_with_large_offset_is_refused_with_its_name(
    kafka_folder: Path, tmp_path: Path, import_command: Command, base: int
) -> None:
    path = kafka_folder / "__consumer_offsets-0" / "00000000000000000000.log"
    path.write_bytes(plain(0, offset(GROUPS[0], 1)) + plain(base, offset(GROUPS[0], 2)))
    files_before = content(kafka_folder)
    result = import_command("--kafka-dir", kafka_folder, "--data", tmp_path / "new")
    assert result.code == 2
    assert f"{path}: found offsets {base} to {base}" in result.err and str(LOG_OFFSET_MAX) in result.err
    assert content(kafka_folder) == files_before
    assert not (tmp_path / "new").exists()


def test_import_of_a_file_named_by_a_large_offset_is_refused(
    kafka_folder: Path, tmp_path: Path, import_command: Command
) -> None:
    path = kafka_folder / "__consumer_offsets-1" / f"{2**63 - 1:020d}.log"
    path.touch()
    result = import_command("--kafka-dir", kafka_folder, "--data", tmp_path / "new")
    assert result.code == 2 and f"{path}: found base offset {2**63 - 1}" in result.err
