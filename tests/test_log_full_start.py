"""A start on a full disk: served as far as it can be, or refused with the number of bytes that are missing."""

from __future__ import annotations

import errno
import re
from math import inf

import pytest
from log_helpers import offsets_in
from structlog.testing import capture_logs
from test_log_failures import (
    LATER,
    ROOM_AGAIN,
    ROOM_ENDED,
    ROOT,
    STORED,
    Desk,
    after_crash,
    events,
    full_desk,
    new_disk,
)

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.faulty import Fault, FaultyDisk
from callboard.runtime.log import journal
from callboard.runtime.log.recovery.clean_stop import NOTE_NAME

MISSING = re.compile(r"(\d+) bytes are missing")


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def stopped_and_full() -> tuple[FaultyDisk, dict[int, list[int]]]:
    disk = new_disk()
    desk = Desk(disk)
    desk.commit(0, 1)
    desk.commit(0)
    desk.log.close()
    disk.capacity_bytes = disk.used_bytes()
    return disk, desk.stored


def test_start_on_full_disk_after_clean_stop_serves_reads_and_refuses_commits() -> None:
    disk, stored = stopped_and_full()
    with capture_logs() as lines:
        desk = Desk(disk)
        assert desk.found() == stored
        desk.commit(0)
        desk.later(2.0)
        desk.commit(1)
        assert desk.errors == [LATER, LATER]
        assert desk.log.stats().full == ("journal",)
        disk.capacity_bytes += 10_000
        desk.later(2.0)
        desk.commit(0, 1)
    assert desk.errors[-1] is STORED
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert NOTE_NAME not in disk.names(ROOT)
    disk.capacity_bytes = inf
    assert desk.found() == desk.stored == after_crash(disk)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_start_on_full_disk_may_end_without_having_had_room(end: str) -> None:
    """The note of the clean stop stays until there is a journal that says as much."""
    disk, stored = stopped_and_full()
    with capture_logs() as lines:
        desk = Desk(disk)
        desk.commit(0)
        if end == "stop":
            desk.log.close()
        else:
            disk = disk.kill()
        assert NOTE_NAME in disk.names(ROOT)
        again = Desk(disk)
        assert again.found() == stored
    assert set(events(lines)) <= {ROOM_ENDED, "clean-stop note cannot be written"}


@pytest.mark.parametrize("operation", ["open", "write", "make_folder"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_start_whose_journal_cannot_be_made_for_want_of_room_heals(operation: str, error: int) -> None:
    disk = new_disk()
    disk.fail(Fault(operation, error, "*journal*", times=3))
    with capture_logs() as lines:
        desk = Desk(disk)
        desk.commit(0)
        for _ in range(4):
            desk.later(2.0)
        desk.commit(0)
    assert desk.errors == [LATER, STORED]
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert desk.found() == after_crash(disk) == {0: [1], 1: [], 2: []}


def test_start_whose_journal_cannot_be_made_otherwise_is_refused() -> None:
    disk = new_disk()
    disk.fail(Fault("open", errno.EIO, "*.journal"))
    with pytest.raises(StartError, match="Input/output error"):
        Desk(disk)


def test_replay_that_fits_in_what_the_journal_has_preallocated_is_done() -> None:
    disk, desk = full_desk()
    with capture_logs():
        killed = disk.kill()
        again = Desk(killed)
        assert again.found() == desk.stored == {0: [0], 1: [], 2: []}


def big_journal() -> tuple[FaultyDisk, Desk]:
    """The disk of a process that was killed, with more in its journal than there is room for in its partitions."""
    disk = new_disk()
    desk = Desk(disk)
    for _ in range(60):
        desk.commit(0, 1)
    killed = disk.kill()
    killed.capacity_bytes = killed.used_bytes()
    return killed, desk


def test_start_without_room_for_the_replay_is_refused_with_the_missing_bytes() -> None:
    disk, desk = big_journal()
    with capture_logs(), pytest.raises(StartError, match=r"No space left on device.*bytes are missing") as refused:
        Desk(disk)
    found = MISSING.search(str(refused.value))
    assert found is not None and int(found[1]) >= 60 * 70
    with capture_logs():
        with pytest.raises(StartError, match="bytes are missing"):
            Desk(disk)
        disk.capacity_bytes += int(found[1])
        again = Desk(disk)
        assert again.found() == desk.stored
    assert after_crash(disk) == desk.stored


def test_refused_start_on_full_disk_loses_nothing() -> None:
    disk, desk = big_journal()
    with capture_logs(), pytest.raises(StartError):
        Desk(disk)
    assert after_crash(disk) == desk.stored


def test_start_without_room_to_keep_a_torn_end_says_how_many_bytes_are_missing() -> None:
    disk, stored = stopped_and_full()
    path = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"
    fd = disk.open(path, 2)
    disk.capacity_bytes += 77
    disk.write(fd, b"\1" * 77, disk.size(fd))
    disk.close(fd)
    with capture_logs(), pytest.raises(StartError, match="77 bytes are missing"):
        Desk(disk)
    assert not [name for name in disk.names(path.parent) if "torn" in name]
    disk.capacity_bytes += 77
    with capture_logs():
        desk = Desk(disk)
        assert offsets_in(desk.log, 0) == stored[0]
