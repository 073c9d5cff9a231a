"""A start on a full disk: it serves reads, or is refused with the number of missing bytes."""

from __future__ import annotations

import errno
import re
from math import inf

import pytest
from log_failure_helpers import (
    NO_ROOM,
    RETRIABLE,
    ROOM_AGAIN,
    ROOT,
    STORED,
    LogHarness,
    harness_on_full_disk,
    new_faulty_disk,
    offsets_after_crash,
    problem_events,
)
from log_helpers import offsets_in
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.log import journal
from callboard.runtime.log.recovery.clean_stop import NOTE_NAME
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

MISSING_BYTES = re.compile(r"(\d+) bytes are missing")


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def full_disk_after_stop() -> tuple[FaultyDisk, dict[int, list[int]]]:
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    harness.commit(0, 1)
    harness.commit(0)
    harness.log.close()
    disk.capacity_bytes = disk.used_bytes()
    return disk, harness.stored


def test_start_on_full_disk_after_clean_stop_serves_reads_and_refuses_commits() -> None:
    disk, stored = full_disk_after_stop()
    with capture_logs() as lines:
        harness = LogHarness(disk)
        assert harness.offsets() == stored
        harness.commit(0)
        harness.advance(2.0)
        harness.commit(1)
        assert harness.errors == [RETRIABLE, RETRIABLE]
        assert harness.log.stats().full == ("journal",)
        disk.capacity_bytes += 10_000
        harness.advance(2.0)
        harness.commit(0, 1)
    assert harness.errors[-1] is STORED
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert NOTE_NAME not in disk.names(ROOT)
    disk.capacity_bytes = inf
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_stop_after_start_on_full_disk_loses_nothing(end: str) -> None:
    """The clean-stop note stays until a journal with the same ends exists."""
    disk, stored = full_disk_after_stop()
    with capture_logs() as lines:
        harness = LogHarness(disk)
        harness.commit(0)
        if end == "stop":
            harness.log.close()
        else:
            disk = disk.kill()
        assert NOTE_NAME in disk.names(ROOT)
        restarted = LogHarness(disk)
        assert restarted.offsets() == stored
    assert set(problem_events(lines)) <= {NO_ROOM, "clean-stop note cannot be written"}


@pytest.mark.parametrize("operation", ["open", "write", "make_folder"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_start_without_room_for_the_journal_recovers_later(operation: str, error: int) -> None:
    disk = new_faulty_disk()
    disk.faults.fail(Fault(operation, error, "*journal*", times=3))
    with capture_logs() as lines:
        harness = LogHarness(disk)
        harness.commit(0)
        for _ in range(4):
            harness.advance(2.0)
        harness.commit(0)
    assert harness.errors == [RETRIABLE, STORED]
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert harness.offsets() == offsets_after_crash(disk) == {0: [1], 1: [], 2: []}


def test_start_with_other_error_of_the_journal_is_refused() -> None:
    disk = new_faulty_disk()
    disk.faults.fail(Fault("open", errno.EIO, "*.journal"))
    with pytest.raises(StartError, match="Input/output error"):
        LogHarness(disk)


def test_replay_that_fits_into_preallocated_journal_space_succeeds() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs():
        killed_disk = disk.kill()
        restarted = LogHarness(killed_disk)
        assert restarted.offsets() == harness.stored == {0: [0], 1: [], 2: []}


def full_disk_with_journal() -> tuple[FaultyDisk, LogHarness]:
    """The disk of a killed process, without room for the replay of its journal."""
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    for _ in range(60):
        harness.commit(0, 1)
    killed_disk = disk.kill()
    killed_disk.capacity_bytes = killed_disk.used_bytes()
    return killed_disk, harness


def test_start_without_room_for_the_replay_is_refused_with_the_missing_bytes() -> None:
    disk, harness = full_disk_with_journal()
    with capture_logs(), pytest.raises(StartError, match=r"No space left on device.*bytes are missing") as error:
        LogHarness(disk)
    actual = MISSING_BYTES.search(str(error.value))
    assert actual is not None and int(actual[1]) >= 60 * 70
    with capture_logs():
        with pytest.raises(StartError, match="bytes are missing"):
            LogHarness(disk)
        disk.capacity_bytes += int(actual[1])
        restarted = LogHarness(disk)
        assert restarted.offsets() == harness.stored
    assert offsets_after_crash(disk) == harness.stored


def test_refused_start_on_full_disk_loses_nothing() -> None:
    disk, harness = full_disk_with_journal()
    with capture_logs(), pytest.raises(StartError):
        LogHarness(disk)
    assert offsets_after_crash(disk) == harness.stored


def test_start_without_room_for_a_torn_end_is_refused_with_the_missing_bytes() -> None:
    disk, stored = full_disk_after_stop()
    path = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"
    fd = disk.open(path, 2)
    disk.capacity_bytes += 77
    disk.write(fd, b"\1" * 77, disk.size(fd))
    disk.close(fd)
    with capture_logs(), pytest.raises(StartError, match="77 bytes are missing"):
        LogHarness(disk)
    assert not [name for name in disk.names(path.parent) if "torn" in name]
    disk.capacity_bytes += 77
    with capture_logs():
        harness = LogHarness(disk)
        assert offsets_in(harness.log, 0) == stored[0]
