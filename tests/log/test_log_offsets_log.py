"""The offsets log as the writer actor uses it: rounds, outcomes, order of disk operations, failures."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import (
    WAIT_TIMEOUT_S,
    LazyDisk,
    TraceDisk,
    append,
    entry,
    fixed_salt,
    journal_file_name,
    kafka_python_batches,
    offset,
    offsets_in,
)
from property_examples import examples
from structlog.testing import capture_logs

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended, Entry, Log
from callboard.actors.records import GroupRecord, OffsetRecord, OffsetValue
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import HEADER_BYTES, read_batches
from callboard.runtime.log.format.records import decode
from callboard.runtime.log.offsets_log import OffsetsLog

FIRST_SEGMENT = "00000000000000000000.log"
FIRST_JOURNAL = journal_file_name(0)
SECOND_JOURNAL = journal_file_name(1)
STORED = ErrorCode.NONE
FAILED = Appended(ErrorCode.KAFKA_STORAGE_ERROR, -1)


def stored(base_offset: int, durability: str = "synced") -> Appended:
    return Appended(STORED, base_offset, durability)


def open_log(root: Path, partitions: int = 5, disk: Disk | None = None, **options: Any) -> OffsetsLog:
    log = OffsetsLog(root, partitions, disk=disk or LazyDisk(), **options, new_salt=fixed_salt)
    log.open()
    return log


def segment(root: Path, partition: int) -> Path:
    return root / f"__consumer_offsets-{partition}" / FIRST_SEGMENT


def frame_batches(root: Path, partition: int) -> list[int]:
    """The number of records in each batch of a partition's first segment."""
    return [batch.record_count for batch in read_batches(segment(root, partition).read_bytes())]


def test_offsets_log_implements_the_log_port(tmp_path: Path) -> None:
    log: Log = open_log(tmp_path)
    assert isinstance(log, OffsetsLog)
    log.close()


def test_empty_log_has_no_records(tmp_path: Path) -> None:
    """An empty log writes no log lines and partition folders, and leaves no files."""
    with capture_logs() as lines:
        log = open_log(tmp_path, 50)
        assert (log.offsets_partitions_with_data(), log.end_offset(3), list(log.read(3))) == ([], 0, [])
        assert [path.name for path in tmp_path.iterdir()] == ["journal"]
        log.close()
        open_log(tmp_path, 50).close()
    assert lines == []
    assert list((tmp_path / "journal").iterdir()) == []


def test_append_returns_outcomes_in_the_order_of_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    two_records = Entry(3, (offset("a", 1), offset("b", 2)))
    outcomes = append(log, [entry(3, 0), entry(1, 10), two_records, entry(1, 11), entry(3, 3)])
    assert outcomes == [stored(base) for base in (0, 0, 1, 1, 3)]
    assert append(log, [entry(3, 4)]) == [stored(4)]
    assert (offsets_in(log, 3), offsets_in(log, 1), offsets_in(log, 0)) == ([0, 1, 2, 3, 4], [10, 11], [])
    assert (log.offsets_partitions_with_data(), log.end_offset(3), log.end_offset(0)) == ([1, 3], 5, 0)
    log.close()
    assert frame_batches(tmp_path, 3) == [4, 1]


def test_reopened_log_after_clean_stop_has_all_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    group = GroupRecord("g", None)
    append(log, [Entry(2, (offset("g", 7), group))], 1234)
    log.close()
    assert [path.name for path in (tmp_path / "journal").iterdir()] == []
    with capture_logs() as lines:
        reopened = open_log(tmp_path)
        assert list(reopened.read(2)) == [(0, 1234, offset("g", 7)), (1, 1234, group)]
        assert append(reopened, [entry(2, 8)]) == [stored(2)]
        reopened.close()
    assert lines == []


def test_segment_files_are_read_by_kafka_python(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(20):
        append(log, [Entry(0, (offset("gruppe-é", number, "m" * number), GroupRecord("x", None)))], 1000 + number)
    expected = list(log.read(0))
    log.close()
    actual = [
        (record.offset, record.timestamp, decode(record.key, record.value))
        for batch in kafka_python_batches(segment(tmp_path, 0).read_bytes())
        for record in batch
    ]
    assert actual == expected
    assert len(actual) == 40


round_plans = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 90), min_size=1, max_size=4)), max_size=6), max_size=6
)


@settings(max_examples=examples(24))
@given(round_plans, st.sampled_from([200, 400, 10**6]), st.sampled_from([150, 500, 10**6]))
def test_appended_records_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[tuple[int, list[int]]]],
    segment_bytes: int,
    message_bytes_max: int,
) -> None:
    """Any mix of partitions and sizes, small segments and batches: the outcomes have each record's offset."""
    root = tmp_path_factory.mktemp("log")
    log = open_log(root, 3, segment_bytes=segment_bytes, max_message_bytes=message_bytes_max)
    expected: dict[int, dict[int, OffsetRecord]] = {0: {}, 1: {}, 2: {}}
    for round_ in rounds:
        entries = [Entry(number, tuple(offset("g", size, "m" * size) for size in sizes)) for number, sizes in round_]
        for appended, outcome in zip(entries, append(log, entries), strict=True):
            if outcome.error is STORED:
                for log_offset, record in enumerate(appended.records):
                    assert isinstance(record, OffsetRecord)
                    expected[appended.partition][outcome.base_offset + log_offset] = record
    for number in range(3):
        assert {log_offset: record for log_offset, _, record in log.read(number)} == expected[number]
    log.close()
    reopened = open_log(root, 3)
    for number in range(3):
        assert {log_offset: record for log_offset, _, record in reopened.read(number)} == expected[number]
        assert reopened.end_offset(number) == len(expected[number])
    reopened.close()
    shutil.rmtree(root)


def test_entry_is_not_split_between_batches(tmp_path: Path) -> None:
    """An entry that does not fit begins the next batch."""
    entry_bytes = len(segment_after(tmp_path / "measure", entry(0, 1))) - HEADER_BYTES
    log = open_log(tmp_path / "log", max_message_bytes=HEADER_BYTES + 3 * entry_bytes)
    two_records = Entry(0, (offset("g", 1), offset("g", 2)))
    outcomes = append(log, [entry(0, 0), two_records, two_records, two_records, entry(0, 9), entry(0, 9)])
    log.close()
    assert [outcome.base_offset for outcome in outcomes] == [0, 1, 3, 5, 7, 8]
    assert frame_batches(tmp_path / "log", 0) == [3, 2, 3, 1]


def segment_after(root: Path, *entries: Entry) -> bytes:
    log = open_log(root)
    append(log, entries)
    log.close()
    return segment(root, 0).read_bytes()


def test_too_large_entry_is_refused_alone(tmp_path: Path) -> None:
    large_entry = Entry(0, tuple(offset("g", number, "m" * 90) for number in range(5)))
    log = open_log(tmp_path, max_message_bytes=300)
    outcomes = append(log, [entry(0, 0), large_entry, entry(0, 1), entry(1, 5), large_entry])
    too_large = Appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert outcomes == [stored(0), too_large, stored(1), stored(0), too_large]
    assert append(log, [large_entry]) == [too_large]
    assert (offsets_in(log, 0), offsets_in(log, 1), log.end_offset(0)) == ([0, 1], [5], 2)
    log.close()


def test_largest_allowed_entry_is_accepted(tmp_path: Path) -> None:
    size = len(segment_after(tmp_path / "measure", entry(0, 0, "m" * 100)))
    for limit, error in ((size, STORED), (size - 1, ErrorCode.MESSAGE_TOO_LARGE)):
        log = open_log(tmp_path / str(limit), max_message_bytes=limit)
        assert append(log, [entry(0, 0, "m" * 100)])[0].error is error
        log.close()


def test_entry_that_cannot_be_encoded_is_refused_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    invalid_entry = Entry(0, (offset("g", 1), OffsetRecord("g", "t", 0, OffsetValue(2**63))))
    with capture_logs() as lines:
        outcomes = append(log, [entry(0, 0), invalid_entry, entry(0, 1)])
    assert outcomes == [stored(0), Appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1), stored(1)]
    assert offsets_in(log, 0) == [0, 1]
    assert [line["event"] for line in lines] == ["record cannot be written"]
    log.close()


def test_empty_round_is_answered(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, [entry(0, 0)])
    disk.trace.clear()
    assert append(log, []) == []
    assert append(log, [Entry(0, ())]) == [stored(1)]
    assert ("write", FIRST_JOURNAL) not in disk.trace
    log.close()


def test_round_is_synced_before_it_is_acknowledged_and_flushed(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    disk.trace.clear()
    trace_at_done: list[tuple[str, str]] = []
    is_done = threading.Event()

    def done(outcomes: Sequence[Appended]) -> None:
        trace_at_done.extend(disk.trace)
        is_done.set()

    log.append([entry(partition, 1) for partition in range(5)], 1, done)
    assert is_done.wait(WAIT_TIMEOUT_S)
    assert trace_at_done == [("write", FIRST_JOURNAL), ("sync", FIRST_JOURNAL)]
    assert offsets_in(log, 4) == [1]
    assert disk.trace.count(("write", FIRST_SEGMENT)) == 5
    assert ("sync", FIRST_SEGMENT) not in disk.trace
    log.close()
    assert disk.trace.count(("sync", FIRST_SEGMENT)) == 5


def test_consecutive_rounds_are_flushed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rounds are one write per file."""
    monkeypatch.setattr("callboard.runtime.log.due_times.FLUSH_INTERVAL_S", WAIT_TIMEOUT_S)
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    for number in range(30):
        append(log, [entry(0, number), entry(1, number)])
    assert offsets_in(log, 0) == list(range(30))
    assert disk.trace.count(("write", FIRST_SEGMENT)) == 2
    log.close()


def test_waiting_bytes_trigger_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.due_times.FLUSH_INTERVAL_S", WAIT_TIMEOUT_S)
    monkeypatch.setattr("callboard.runtime.log.due_times.FLUSH_BYTES", 1000)
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    deadline_s = time.monotonic() + WAIT_TIMEOUT_S / 2
    while disk.trace.count(("write", FIRST_SEGMENT)) < 2:  # a thread writes, while more batches wait for the next time
        assert time.monotonic() < deadline_s
        append(log, [entry(0, 1)])
    log.close()


def test_idle_log_flushes_waiting_batches(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, [entry(0, 1)])
    disk.wait_for("write", FIRST_SEGMENT)
    log.close()


def test_interval_policy_acknowledges_before_the_sync(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, sync="interval", flush_interval_ms=1)
    disk.trace.clear()
    assert append(log, [entry(0, 1)]) == [stored(0, "written")]
    disk.wait_for("sync", FIRST_JOURNAL)
    log.close()


def test_none_policy_never_syncs_for_a_round(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, sync="none")
    disk.trace.clear()
    assert append(log, [entry(0, 1)]) == [stored(0, "written")]
    assert offsets_in(log, 0) == [1]
    assert ("sync", FIRST_JOURNAL) not in disk.trace
    log.close()
    assert ("sync", FIRST_SEGMENT) in disk.trace  # a clean stop is durable under every policy


def test_checkpoint_syncs_partitions_before_it_removes_the_journal(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, checkpoint_bytes=1)
    append(log, [entry(0, 1), entry(1, 1)])
    disk.wait_for("remove", FIRST_JOURNAL)
    trace = disk.trace.copy()
    remove_index = trace.index(("remove", FIRST_JOURNAL))
    assert trace[:remove_index].count(("sync", FIRST_SEGMENT)) == 2
    assert trace.index(("create", SECOND_JOURNAL)) < remove_index
    for name in (tmp_path.name, "__consumer_offsets-0", "__consumer_offsets-1"):
        assert ("sync_folder", name) in trace[:remove_index]
    assert append(log, [entry(0, 2)]) == [stored(1)]
    assert offsets_in(log, 0) == [1, 2]
    log.close()


def test_rounds_are_acknowledged_during_a_checkpoint(tmp_path: Path) -> None:
    """While the checkpoint's sync hangs, rounds are acknowledged from the next journal."""
    disk = HangingDisk()
    log = open_log(tmp_path, disk=disk, checkpoint_bytes=1)
    append(log, [entry(0, 0)])
    assert disk.hangs.wait(WAIT_TIMEOUT_S)
    for number in range(1, 20):
        assert append(log, [entry(0, number)]) == [stored(number)]
    disk.go_on.set()
    log.close()
    reopened = open_log(tmp_path)
    assert offsets_in(reopened, 0) == list(range(20))
    reopened.close()


class HangingDisk(TraceDisk):
    """The first sync of a segment blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.go_on = threading.Event()

    def sync(self, fd: int) -> None:
        if self._names[fd] == FIRST_SEGMENT:
            self.hangs.set()
            assert self.go_on.wait(WAIT_TIMEOUT_S)
        super().sync(fd)


def test_checkpoint_is_made_after_its_interval(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, checkpoint_interval_ms=1)
    append(log, [entry(0, 1)])
    disk.wait_for("remove", FIRST_JOURNAL)
    log.close()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failed_journal_refuses_this_round_and_all_later_ones(tmp_path: Path, operation: str) -> None:
    """After a failed sync the journal's content is unknown, so commits are refused even if the disk works again."""
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    assert append(log, [entry(0, 0)]) == [stored(0)]
    disk.fails = lambda called, name: called == operation and name == FIRST_JOURNAL
    with capture_logs() as lines:
        assert append(log, [entry(0, 1), entry(1, 1)]) == [FAILED, FAILED]
        disk.fails = lambda called, name: False
        assert append(log, [entry(0, 2)]) == [FAILED]
        assert (
            append(log, [Entry(0, (OffsetRecord("g", "t", 2**31, None),))])[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
        )
    errors = [line["event"] for line in lines if line["event"] != "record cannot be written"]
    assert errors == ["the log has failed"]
    assert offsets_in(log, 0) == [0]  # acknowledged records can still be read
    log.close()
    reopened = open_log(tmp_path)
    assert offsets_in(reopened, 0)[0] == 0
    reopened.close()


def test_failed_partition_file_loses_no_acknowledged_round(tmp_path: Path) -> None:
    """The journal is kept with that round, and the next start replays it."""
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk)
    disk.fails = lambda operation, name: name == FIRST_SEGMENT
    assert append(log, [entry(0, 7)]) == [stored(0)]
    with pytest.raises(OSError, match="__consumer_offsets-0 has failed"):
        log.read(0)
    assert append(log, [entry(0, 8), entry(1, 9)]) == [stored(1), stored(0)]
    log.close()
    reopened = open_log(tmp_path)
    assert (offsets_in(reopened, 0), offsets_in(reopened, 1)) == ([7, 8], [9])
    reopened.close()


@pytest.mark.parametrize(("operation", "name"), [("sync", FIRST_SEGMENT), ("sync_folder", "__consumer_offsets-0")])
def test_failed_checkpoint_keeps_the_journal(tmp_path: Path, operation: str, name: str) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, checkpoint_bytes=1)
    disk.fails = lambda called, file_name: (called, file_name) == (operation, name)
    append(log, [entry(0, 7)])
    disk.wait_for(operation, name)
    log.close()
    assert (tmp_path / "journal" / FIRST_JOURNAL).exists()
    reopened = open_log(tmp_path)
    assert offsets_in(reopened, 0) == [7]
    reopened.close()


def test_failed_creation_of_the_next_journal_fails_the_log(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk=disk, checkpoint_bytes=1)
    disk.fails = lambda operation, name: (operation, name) == ("create", SECOND_JOURNAL)
    append(log, [entry(0, 7)])
    disk.wait_for("create", SECOND_JOURNAL)
    assert append(log, [entry(0, 8)]) == [FAILED]
    log.close()
    reopened = open_log(tmp_path)
    assert offsets_in(reopened, 0) == [7]
    reopened.close()


@pytest.mark.parametrize("operation", ["create", "sync", "sync_folder"])
def test_open_of_unusable_folder_is_refused(tmp_path: Path, operation: str) -> None:
    disk = TraceDisk()
    disk.fails = lambda called, name: called == operation
    with pytest.raises(StartError, match="made to fail"):
        open_log(tmp_path, disk=disk)


def test_failing_callback_does_not_stop_the_log(tmp_path: Path) -> None:
    def done(outcomes: Sequence[Appended]) -> None:
        raise RuntimeError("the loop is closed")

    log = open_log(tmp_path)
    with capture_logs() as lines:
        log.append([entry(0, 1)], 1, done)
        assert append(log, [entry(0, 2)]) == [stored(1)]
    assert [line["event"] for line in lines] == ["callback of a round failed"]
    assert offsets_in(log, 0) == [1, 2]
    log.close()


def test_close_finishes_queued_rounds(tmp_path: Path) -> None:
    """Every appended round is acknowledged, and its records are on disk."""
    log = open_log(tmp_path)
    rounds: list[Sequence[Appended]] = []
    for number in range(200):
        log.append([entry(number % 5, number)], 1, rounds.append)
    log.close()
    assert [outcome for (outcome,) in rounds] == [stored(number // 5) for number in range(200)]
    assert frame_batches(tmp_path, 4) == [1] * 40


def test_append_after_close_is_refused_with_an_outcome(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [entry(0, 1)])
    log.close()
    log.close()
    rounds: list[Sequence[Appended]] = []
    log.append([entry(0, 2)], 1, rounds.append)
    assert rounds == [[FAILED]]
    assert offsets_in(log, 0) == [1]


def test_close_ends_all_threads(tmp_path: Path) -> None:
    threads_before = set(threading.enumerate())
    log = open_log(tmp_path, checkpoint_bytes=1)
    for number in range(5):
        append(log, [entry(0, number)])
    assert set(threading.enumerate()) - threads_before
    log.close()
    assert set(threading.enumerate()) <= threads_before
