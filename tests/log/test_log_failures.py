"""Full and failing disks: acknowledged commits stay, commits that cannot be stored are refused, and errors are logged.

The disk is in memory and all work of the log runs on the test's thread, so each failure happens at an exact point.
``test_log_full_disk.py`` uses a real file system.
"""

from __future__ import annotations

import errno
import math
import os
import random

import pytest
from log_failure_helpers import (
    FAILED,
    NO_ROOM,
    PARTITIONS,
    RETRIABLE,
    ROOM_AGAIN,
    ROOT,
    STORED,
    LogHarness,
    fill_journal,
    harness_on_full_disk,
    new_faulty_disk,
    offsets_after_crash,
    problem_events,
)
from log_helpers import SALT, journal_file_name, offsets_in
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


# Full disk -----------------------------------------------------------------------------------------------------------


def test_commit_on_full_disk_fails_with_a_retriable_error() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs() as lines:
        assert fill_journal(harness) > 3
        harness.commit(0, 1)
        harness.commit(2)
    assert harness.errors[-3:] == [RETRIABLE] * 3
    assert problem_events(lines) == [NO_ROOM]
    assert lines[0]["where"] == "journal" and "No space left" in lines[0]["reason"]
    assert harness.log.stats().full == ("journal",)
    assert offsets_after_crash(disk) == harness.stored


def test_commits_resume_when_the_disk_has_room() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs() as lines:
        fill_journal(harness)
        for _ in range(3):
            harness.advance()
            harness.commit(1)
        assert harness.errors[-3:] == [RETRIABLE] * 3
        disk.capacity_bytes += 100_000
        harness.advance()
        harness.commit(1)
        harness.commit(0, 2)
    assert harness.errors[-2:] == [STORED] * 2
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


def test_full_disk_is_probed_once_a_second() -> None:
    """Commits between two probes are refused without a disk access."""
    disk, harness = harness_on_full_disk()
    fill_journal(harness)
    disk.capacity_bytes += 100_000
    changes_before = disk.faults.changes
    for _ in range(100):
        harness.commit(0)
    assert (disk.faults.changes, set(harness.errors[-100:])) == (changes_before, {RETRIABLE})


def test_rounds_after_a_refused_one_leave_no_offset_gap() -> None:
    """The offsets of later rounds were assigned before the round was refused."""
    disk = new_faulty_disk()
    harness = LogHarness(disk, InlineThreads(lambda _count: 0))
    for _ in range(3):
        harness.commit(0, 1)
    disk.faults.fail(Fault("write", errno.ENOSPC, "*.journal", times=1))
    harness.commit(0, 1, 2)
    while harness.threads.step():
        pass
    assert harness.errors == [RETRIABLE] * 4
    harness.advance()
    harness.commit(1, 2)
    harness.log.close()
    assert harness.errors[-1] is STORED
    assert offsets_after_crash(disk) == harness.stored


def test_short_write_on_full_disk_is_undone() -> None:
    """Half of a frame must not follow the next frame, which may be shorter."""
    disk, harness = harness_on_full_disk()
    fill_journal(harness)
    path = ROOT / "journal" / journal_file_name(0)
    fd = disk.open(path, 0)
    scan = journal.scan_journal(disk.read(fd, disk.size(fd), 0), SALT)
    assert scan.torn_bytes == 0
    harness.log.close()


def test_flush_on_full_disk_keeps_waiting_batches() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs() as lines:
        harness.advance()
        harness.commit(0)
        with pytest.raises(OSError, match="no room to write"):
            harness.log.read(0)
        assert harness.errors == [STORED] * 2
        assert offsets_after_crash(disk) == harness.stored
    assert problem_events(lines)[0] == NO_ROOM


def test_flush_resumes_when_the_disk_has_room() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs() as lines:
        harness.advance()
        harness.commit(0, 1)
        harness.advance()
        disk.capacity_bytes += 100_000
        harness.advance()
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert harness.offsets() == harness.stored == {0: [0, 1], 1: [1], 2: []}
    harness.log.close()


def test_commits_are_refused_when_waiting_batches_reach_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.writer.WAITING_BYTES", 1000)
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    disk.faults.fail(Fault("write", errno.ENOSPC, "*.log", times=math.inf))
    with capture_logs() as lines:
        for _ in range(40):
            harness.commit(0)
            harness.advance(2.0)
        assert 0 < harness.errors.count(STORED) < 15 and harness.errors[-1] is RETRIABLE
        assert harness.log.stats().waiting_bytes < 1500
        disk.faults.clear()
        harness.advance()
        harness.commit(0)
    assert harness.errors[-1] is STORED
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


def test_checkpoint_without_room_keeps_the_old_journal() -> None:
    disk = new_faulty_disk()
    harness = LogHarness(disk, checkpoint_bytes=300)
    disk.faults.fail(Fault("write", errno.ENOSPC, "*1-*.journal", times=math.inf))
    with capture_logs() as lines:
        for _ in range(10):
            harness.commit(0)
            harness.advance(0.5)
    assert harness.errors == [STORED] * 10
    assert problem_events(lines) == [NO_ROOM]
    assert disk.names(ROOT / "journal") == [journal_file_name(0)]
    assert harness.offsets() == harness.stored == offsets_after_crash(disk.kill())


def test_checkpoints_resume_when_the_disk_has_room() -> None:
    disk = new_faulty_disk()
    harness = LogHarness(disk, checkpoint_bytes=300)
    disk.faults.fail(Fault("write", errno.ENOSPC, "*1-*.journal", times=2))
    with capture_logs() as lines:
        for _ in range(10):
            harness.commit(0)
            harness.advance()
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert disk.names(ROOT / "journal") != [journal_file_name(0)]
    assert offsets_after_crash(disk) == harness.stored


def test_checkpoint_removes_a_journal_that_fills_the_disk() -> None:
    """A checkpoint makes room if the old journal fills the disk; otherwise no files accumulate."""
    disk, harness = harness_on_full_disk()
    harness.advance()
    fill_journal(harness)
    disk.capacity_bytes = disk.used_bytes() + 1000  # no step of zeros; the partition file, and the head of a journal
    with capture_logs():
        for _ in range(3):
            harness.advance(2.0)
            harness.commit(0)
    assert harness.errors[-1] is STORED
    assert disk.names(ROOT / "journal") == [journal_file_name(1)]
    disk.capacity_bytes += 10_000
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


def test_full_disk_does_not_accumulate_journal_files() -> None:
    disk, harness = harness_on_full_disk()
    fill_journal(harness)
    disk.capacity_bytes += 300
    with capture_logs():
        for _ in range(10):
            harness.advance(2.0)
            harness.commit(0)
    assert len(disk.names(ROOT / "journal")) <= 2
    assert offsets_after_crash(disk) == harness.stored


def test_roll_without_room_keeps_the_old_segment() -> None:
    disk = new_faulty_disk()
    harness = LogHarness(disk, segment_bytes=200)
    harness.commit(0)
    harness.advance()
    disk.faults.fail(Fault("open", errno.ENOSPC, "*/__consumer_offsets-0/*", times=math.inf))
    for _ in range(5):
        harness.commit(0)
        harness.advance()
    assert disk.names(ROOT / "__consumer_offsets-0") == ["00000000000000000000.log"]
    disk.faults.clear()
    harness.commit(0)
    assert harness.offsets() == harness.stored
    assert len(disk.names(ROOT / "__consumer_offsets-0")) == 2
    assert offsets_after_crash(disk) == harness.stored


def test_start_without_room_for_a_segment_after_damage_is_refused() -> None:
    """Appends to the damaged segment might not be found by readers."""
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    for _ in range(3):
        harness.commit(0)
    harness.log.close()
    path = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"
    fd = disk.open(path, os.O_RDWR)
    disk.truncate(fd, disk.size(fd) // 2)
    disk.close(fd)
    disk.faults.fail(Fault("open", errno.ENOSPC, "*/00000000000000000003.log"))
    with capture_logs(), pytest.raises(StartError, match=r"No space left on device.*0003\.log"):
        LogHarness(disk)
    with capture_logs() as lines:
        log = OffsetsLog(ROOT, PARTITIONS, disk=disk, threads=InlineThreads())
        log.open()
    assert (problem_events(lines), log.end_offset(0)) == (["damage in the log"], 3)
    log.close()


# The journal fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "error"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_failed_journal_refuses_all_further_commits(operation: str, error: int) -> None:
    """This includes a sync without room: the system drops the pages that it could not write."""
    disk = new_faulty_disk(3)
    harness = LogHarness(disk)
    harness.commit(0, 1)
    disk.faults.fail(Fault(operation, error, "*.journal", times=1))
    with capture_logs() as lines:
        for _ in range(3):
            harness.commit(0)
            harness.advance()
    assert harness.errors[1:] == [FAILED] * 3
    assert problem_events(lines) == ["the log has failed"]
    assert harness.log.stats().failure
    assert harness.offsets() == harness.stored  # reads still work
    harness.log.close()
    assert disk.names(ROOT / "journal") == [journal_file_name(0)]
    actual = offsets_after_crash(disk)
    assert {number: actual[number][: len(harness.stored[number])] for number in actual} == harness.stored


def test_start_after_failed_journal_replays_it() -> None:
    """It reads the failed round from the page cache. The round was not acknowledged, so both outcomes are correct."""
    for seed in range(20):
        disk = new_faulty_disk(seed)
        harness = LogHarness(disk)
        harness.commit(0)
        disk.faults.fail(Fault("sync", errno.EIO, "*.journal", times=1))
        with capture_logs():
            harness.commit(0)
            harness.log.close()
            restarted = LogHarness(second_disk := disk.kill())
            restarted.commit(1)
        assert restarted.stored[0][:1] == [0]
        assert offsets_after_crash(second_disk) == restarted.stored


# A partition's file fails --------------------------------------------------------------------------------------------


def log_with_failing_partition(seed: int, operation: str = "sync") -> tuple[FaultyDisk, LogHarness]:
    """A log with a checkpoint at each step; its partition 1 cannot be synced."""
    disk = new_faulty_disk(seed)
    harness = LogHarness(disk, checkpoint_bytes=1)
    harness.commit(0, 1)
    harness.advance()
    disk.faults.fail(Fault(operation, errno.EIO, "*/__consumer_offsets-1/*"))
    harness.commit(0, 1)
    harness.advance()
    return disk, harness


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_failed_partition_file_keeps_its_journal_and_others_go_on(operation: str) -> None:
    with capture_logs() as lines:
        disk, harness = log_with_failing_partition(3, operation)
        disk.faults.clear()
        for _ in range(4):
            harness.commit(0, 2)
            harness.advance()
        harness.commit(1)
        harness.advance()
    assert set(harness.errors) == {STORED}
    assert [(line["event"], line["partition"]) for line in lines] == [
        ("a partition of the log has failed", "__consumer_offsets-1")
    ]
    assert list(harness.log.stats().failures) == ["__consumer_offsets-1"]
    assert (offsets_in(harness.log, 0), offsets_in(harness.log, 2)) == (harness.stored[0], harness.stored[2])
    with pytest.raises(OSError, match="__consumer_offsets-1 has failed"):
        harness.log.read(1)
    assert len(disk.names(ROOT / "journal")) == 3  # two contain batches of partition 1, one is being written
    assert offsets_after_crash(disk) == harness.stored


def test_clean_stop_with_failed_partition_keeps_its_journal() -> None:
    with capture_logs():
        disk, harness = log_with_failing_partition(3)
        harness.log.close()
    assert disk.names(ROOT / "journal")
    assert offsets_after_crash(disk) == harness.stored


@pytest.mark.parametrize("seed", range(20))
def test_start_after_failed_sync_rewrites_unsynced_batches(seed: int) -> None:
    """The sync fails, unwritten pages stay in the page cache, and the next process reads them. Then the power fails.

    If the process treated these pages as durable, it would remove the journal, which has the only durable copy.
    """
    with capture_logs():
        disk, harness = log_with_failing_partition(seed)
        second_disk = disk.kill()
        second_disk.faults.clear()
        restarted = LogHarness(second_disk)
        assert restarted.offsets() == harness.stored
    assert offsets_after_crash(second_disk) == harness.stored


def test_failed_folder_sync_fails_its_new_partitions() -> None:
    disk = new_faulty_disk(3)
    harness = LogHarness(disk, checkpoint_bytes=1)
    harness.commit(0)
    harness.advance()
    disk.faults.fail(Fault("sync_folder", errno.EIO, str(ROOT), times=1))
    harness.commit(1, 2)
    with capture_logs():
        harness.advance()
    assert sorted(harness.log.stats().failures) == ["__consumer_offsets-1", "__consumer_offsets-2"]
    assert offsets_after_crash(disk) == harness.stored


# Random failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_any_failing_operation_loses_no_acknowledged_round(seed: int) -> None:
    """Full disks, failing syncs and failing writes at points chosen by a seed, and then a crash."""
    rng = random.Random(seed)
    disk = new_faulty_disk(seed)
    with capture_logs():
        harness = LogHarness(disk, InlineThreads(rng.randrange), checkpoint_bytes=600, segment_bytes=300)
        for _ in range(60):
            harness.commit(*rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)))
            disk.capacity_bytes = disk.used_bytes() + rng.choice((0, 50, 500, 10**6, 10**6))
            if rng.random() < 0.02:
                pattern = rng.choice(("*.journal", "*.log"))
                disk.faults.fail(Fault(rng.choice(("sync", "write")), errno.EIO, pattern, times=1))
            for _ in range(rng.randint(0, 4)):
                harness.threads.step()
            harness.now_s += rng.choice((0.0, 0.1, 2.0))
        actual = offsets_after_crash(disk)
    for number, stored_values in harness.stored.items():
        assert actual[number][: len(stored_values)] == stored_values
