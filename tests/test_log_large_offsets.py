"""Log offsets beyond 2^62, in each file that may hold one: they cost the batch that has them, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_helpers import Command, command
from kafka_folder_helpers import GROUPS, content, kafka
from log_helpers import entry, new_journal, offset, offsets_in
from partition_helpers import plain
from structlog.testing import capture_logs
from test_log_failures import NEVER, PARTITIONS, ROOT, STORED, Desk, after_crash, events, new_disk

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import MarkerRecord
from callboard.runtime.cli.exchange import imports
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.faulty import FaultyDisk
from callboard.runtime.disk.threads import Inline
from callboard.runtime.log import rounds
from callboard.runtime.log.counts import Counts
from callboard.runtime.log.format import batch as batches
from callboard.runtime.log.format.batch import LOG_OFFSET_MAX, encode_batch, frame_record, read_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.format.errors import Damage, OffsetTooLarge
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.log.manifest import LogFile
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading.backwards import chunks_newest_first
from callboard.runtime.log.reading.spans import whole_batches
from callboard.runtime.log.rounds import RoundEncoder

LARGE = [2**62, 2**63 - 1]
SEGMENT = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"

into_kafka = kafka


def record_batch(base: int, *values: int) -> bytes:
    frame = RecordEncoder().frame
    return encode_batch(base, 1, 1, [frame(offset("g", value), delta) for delta, value in enumerate(values)])


def change(disk: FaultyDisk, path: Path, edit: Callable[[bytes], bytes]) -> None:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    data = edit(disk.read(fd, disk.size(fd), 0))
    disk.truncate(fd, 0)
    disk.write(fd, data, 0)
    disk.sync(fd)
    disk.close(fd)


def stopped(*committed: int) -> FaultyDisk:
    """The disk of a log that was closed after a commit in each of these partitions."""
    disk = new_disk()
    desk = Desk(disk)
    for partition in committed:
        desk.commit(partition)
    desk.log.close()
    return disk


def reopened(disk: FaultyDisk) -> tuple[OffsetsLog, list[Any]]:
    with capture_logs() as lines:
        log = OffsetsLog(ROOT, PARTITIONS, disk=disk, threads=Inline())
        log.open()
    return log, lines


def records_in(log: OffsetsLog, partition: int) -> list[tuple[int, int]]:
    return [(at, record.value.offset) for at, _, record in log.read(partition)]  # type: ignore[union-attr]


def test_largest_log_offset_is_read_and_the_next_one_is_damage() -> None:
    assert read_batch(memoryview(record_batch(LOG_OFFSET_MAX - 1, 1, 2))).last_offset == LOG_OFFSET_MAX
    with pytest.raises(OffsetTooLarge, match=f"expected at most {LOG_OFFSET_MAX}"):
        read_batch(memoryview(record_batch(LOG_OFFSET_MAX, 1, 2)))
    data = record_batch(0, 1) + record_batch(LOG_OFFSET_MAX, 1, 2)
    assert whole_batches(data) == ([0], len(record_batch(0, 1)))


@pytest.mark.parametrize("base", LARGE)
@pytest.mark.parametrize("where", ["end", "middle"])
@pytest.mark.parametrize("has_note", [True, False])
def test_batch_with_large_offset_in_segment_is_quarantined_and_the_rest_counts(
    base: int, where: str, has_note: bool
) -> None:
    disk = stopped(0, 0, 1)
    after = record_batch(2, 7) if where == "middle" else b""
    change(disk, SEGMENT, lambda data: data + record_batch(base, 5, 6) + after)
    if not has_note:
        disk.remove(ROOT / ".clean_shutdown")
    log, lines = reopened(disk)
    damages = [line for line in lines if line["event"] == "damage in the log" and line["file"] != str(ROOT / "journal")]
    assert [line["file"] for line in damages] == [str(SEGMENT)]
    assert str(base) in damages[0]["reason"]
    assert [value for _, value in records_in(log, 0)] == [0, 1] + ([7] if after else [])
    answers: list[Appended] = []
    log.append([entry(0, 50), entry(1, 51)], 1, answers.extend)
    assert [answer.error for answer in answers] == [STORED] * 2
    log.close()
    again, _ = reopened(disk)
    assert records_in(again, 0)[-1] == (answers[0].base_offset, 50)
    assert offsets_in(again, 1) == [2, 51]


def test_records_within_a_batch_with_large_offset_are_not_taken_for_batches() -> None:
    """Its checksum is right, so its length is: what a client has put into its metadata is not searched."""
    inner = record_batch(2, 99)
    outer = encode_batch(2**62, 1, 1, [frame_record(0, 0, b"", inner), frame_record(0, 1, b"", inner)])
    assert inner in outer
    disk = stopped(0, 0)
    disk.remove(ROOT / ".clean_shutdown")
    change(disk, SEGMENT, lambda data: data + outer)
    log, _ = reopened(disk)
    assert [value for _, value in records_in(log, 0)] == [0, 1]


@pytest.mark.parametrize("base", LARGE)
def test_loading_newest_first_tells_of_a_batch_with_large_offset(base: int) -> None:
    disk = stopped(0, 0)
    change(disk, SEGMENT, lambda data: data + record_batch(base, 5, 6))
    damages: list[Damage] = []
    chunks = list(chunks_newest_first(disk, [LogFile(SEGMENT, 0, False, False)], damages.append))
    assert sum(len(chunk.starts) for chunk in chunks) == 2
    assert [damage.path for damage in damages] == [SEGMENT]


@pytest.mark.parametrize("base", LARGE)
def test_segment_named_by_a_large_offset_is_left_alone(base: int) -> None:
    disk = stopped(0, 1)
    change(disk, SEGMENT.with_name(f"{base + 1:020d}.log"), lambda data: record_batch(base, 1))
    log, lines = reopened(disk)
    assert [line["event"] for line in lines][:1] == ["files in the log's folders that are not the log's are left alone"]
    assert log.end_offset(0) == 1


@pytest.mark.parametrize("end", [2**62 + 2, 2**63 - 1])
def test_note_of_a_clean_stop_with_large_end_is_passed_over(end: int) -> None:
    """A version before this one wrote such a note when a file had such a batch."""
    disk = stopped(0, 1)

    def edit(data: bytes) -> bytes:
        note = json.loads(data)
        note["partitions"]["__consumer_offsets-0"][2] = end
        return json.dumps(with_checksum(note)).encode()

    change(disk, ROOT / ".clean_shutdown", edit)
    log, _ = reopened(disk)
    assert (log.end_offset(0), offsets_in(log, 0)) == (1, [0])


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 2])
def test_journal_with_large_offsets_costs_that_batch_and_is_kept(base: int) -> None:
    disk = stopped(0, 1)
    disk.remove(ROOT / ".clean_shutdown")
    file = new_journal(disk, ROOT / "journal", 7, {0: 1, 1: 1, 2: base + 1}, counts=Counts(PARTITIONS, 0))
    file.write(encode_frame([(0, record_batch(base, 5)), (1, record_batch(1, 6))]))
    file.write(encode_frame([(0, record_batch(1, 7))]))
    file.sync()
    file.close()
    log, lines = reopened(disk)
    assert (offsets_in(log, 0), offsets_in(log, 1), log.end_offset(2)) == ([0, 7], [1, 6], 0)
    [told] = [line for line in lines if line["event"] == "damage in the log"]
    assert "a batch of partition 0" in told["reason"] and str(base) in told["reason"]
    assert any(name.endswith(".damaged") for name in disk.names(ROOT / "journal"))
    desk_answers: list[Appended] = []
    log.append([entry(0, 9), entry(1, 9), entry(2, 9)], 1, desk_answers.extend)
    assert [answer.error for answer in desk_answers] == [STORED] * 3
    log.close()


# Rounds ---------------------------------------------------------------------------------------------------------------


def encoded(ends: list[int], entries: list[Entry]) -> list[ErrorCode]:
    made = RoundEncoder(ends, 10**6, "synced").encode(entries, 1, lambda outcomes: None)
    with_batches = {partition for partition, _ in made.batches}
    stored = [outcome.error for outcome in made.outcomes]
    assert {one.partition for one, error in zip(entries, stored, strict=True) if error is STORED} == with_batches
    return stored


@pytest.mark.parametrize("end", [LOG_OFFSET_MAX, 2**63 - 1])
def test_partition_at_the_end_of_offsets_fails_its_own_entries_only(end: int) -> None:
    ends = [end, 5]
    with capture_logs():
        assert encoded(ends, [entry(0, 1), entry(1, 2), entry(0, 3)]) == [
            ErrorCode.UNKNOWN_SERVER_ERROR,
            STORED,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
    assert ends == [end, 6]


def test_batch_that_cannot_be_encoded_fails_its_own_entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(base_offset: int, *rest: Any) -> bytes:
        if base_offset == 100:
            raise RuntimeError("planted")
        return batches.encode_batch(base_offset, *rest)

    monkeypatch.setattr(rounds, "encode_batch", failing)
    ends = [100, 5]
    with capture_logs() as lines:
        stored = encoded(ends, [entry(0, 1), entry(1, 2), entry(0, 3), entry(1, 4)])
    assert stored == [ErrorCode.UNKNOWN_SERVER_ERROR, STORED, ErrorCode.UNKNOWN_SERVER_ERROR, STORED]
    assert ends == [100, 7]
    assert "planted" in lines[-1]["reason"]


def test_marker_with_impossible_producer_fails_alone() -> None:
    marker = Entry(0, (MarkerRecord(2**63, 1, True),))
    with capture_logs():
        assert encoded([0, 0], [marker, entry(1, 1)]) == [ErrorCode.UNKNOWN_SERVER_ERROR, STORED]


def test_bug_in_the_append_to_one_partition_does_not_fail_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    desk = Desk(disk)
    desk.commit(0, 1)
    partition = desk.log._partitions[0]

    def failing(batches: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(partition, "append", failing)
    with capture_logs() as lines:
        desk.later()
        desk.commit(0, 1)
        desk.later()
    assert events(lines) == ["a partition of the log has failed"]
    assert NEVER not in desk.errors
    assert after_crash(disk) == desk.stored


# Import ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def into(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(imports.main, capsys)


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 1])
def test_import_of_a_file_with_large_offset_is_refused_by_its_name(
    into_kafka: Path, tmp_path: Path, into: Command, base: int
) -> None:
    path = into_kafka / "__consumer_offsets-0" / "00000000000000000000.log"
    path.write_bytes(plain(0, offset(GROUPS[0], 1)) + plain(base, offset(GROUPS[0], 2)))
    before = content(into_kafka)
    said = into("--from-kafka-logs", into_kafka, "--data", tmp_path / "new")
    assert said.code == 2
    assert f"{path}: found offsets {base} to {base}" in said.err and str(LOG_OFFSET_MAX) in said.err
    assert content(into_kafka) == before
    assert not (tmp_path / "new").exists()


def test_import_of_a_file_named_by_a_large_offset_is_refused(into_kafka: Path, tmp_path: Path, into: Command) -> None:
    path = into_kafka / "__consumer_offsets-1" / f"{2**63 - 1:020d}.log"
    path.touch()
    said = into("--from-kafka-logs", into_kafka, "--data", tmp_path / "new")
    assert said.code == 2 and f"{path}: found base offset {2**63 - 1}" in said.err
