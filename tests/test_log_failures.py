"""Disks that fill up or fail under the log: what was answered stays, what cannot be kept is refused, nothing is silent.

The disk is in memory and all of the log's work runs on the test's thread, so each failure comes exactly where it is
meant to. The real thing is in ``test_log_full_disk.py``.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from log_helpers import SALT, entry, fixed_salt, name_of, offsets_in
from structlog.testing import capture_logs

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended, Entry
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.faulty import Fault, FaultyDisk
from callboard.runtime.disk.threads import Inline
from callboard.runtime.log import journal
from callboard.runtime.log.offsets_log import OffsetsLog

ROOT = Path("/data")
PARTITIONS = 3
STORED, LATER, NEVER = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR
ROOM_ENDED, ROOM_AGAIN = "the log has no room", "the log has room again"
LONG_S = 1000.0  # a jump of the clock after which everything is due


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


class Desk:
    """A log on such a disk, its clock, and what was answered."""

    def __init__(self, disk: Disk, threads: Inline | None = None, root: Path = ROOT, **options: Any) -> None:
        self.now_s = 0.0
        self.threads = threads or Inline()
        options = {"new_salt": fixed_salt, **options}
        self.log = OffsetsLog(root, PARTITIONS, disk=disk, threads=self.threads, clock=lambda: self.now_s, **options)
        self.log.open()
        self.errors: list[ErrorCode] = []
        self.stored: dict[int, list[int]] = {number: offsets_in(self.log, number) for number in range(PARTITIONS)}
        self._next = 0

    def commit(self, *partitions: int) -> None:
        """Put a round that commits the next number in each of them."""
        number, self._next = self._next, self._next + 1
        entries = [entry(partition, number) for partition in partitions]
        self.log.append(entries, 1, lambda outcomes: self._answered(entries, number, outcomes))

    def _answered(self, entries: Sequence[Entry], number: int, outcomes: Sequence[Appended]) -> None:
        self.errors.append(outcomes[0].error)
        for one, outcome in zip(entries, outcomes, strict=True):
            if outcome.error is STORED:
                assert outcome.base_offset == len(self.stored[one.partition])
                self.stored[one.partition].append(number)

    def later(self, seconds: float = LONG_S) -> None:
        """Time goes by, and what is due is done."""
        self.now_s += seconds
        while self.threads.step():
            pass

    def found(self) -> dict[int, list[int]]:
        return {number: offsets_in(self.log, number) for number in range(PARTITIONS)}


def new_disk(seed: int = 1) -> FaultyDisk:
    """A disk with an empty data folder, whose own name is durable: that is not the log's business."""
    disk = FaultyDisk(seed)
    disk.make_folder(ROOT)
    disk.sync_folder(ROOT.parent)
    return disk


def after_crash(disk: FaultyDisk) -> dict[int, list[int]]:
    """What the next start finds when the power goes now."""
    with capture_logs():
        found_disk = disk.crash()
        found_disk.capacity_bytes = math.inf  # a start needs room
        desk = Desk(found_disk)
        found = desk.found()
        desk.log.close()
    return found


def events(lines: Sequence[Any]) -> list[str]:
    return [line["event"] for line in lines if line["log_level"] in ("warning", "error")]


# No room --------------------------------------------------------------------------------------------------------------


def full_desk(**options: Any) -> tuple[FaultyDisk, Desk]:
    """A log that has stored one commit, on a disk that has no free byte from now on."""
    disk = new_disk()
    desk = Desk(disk, **options)
    desk.commit(0)
    disk.capacity_bytes = disk.used_bytes()
    return disk, desk


def fill_journal(desk: Desk) -> int:
    """Commit until one is refused; how many were stored in the zeros that were there."""
    before = len(desk.errors)
    while desk.errors[-1] is STORED:
        desk.commit(0)
        assert len(desk.errors) < 100
    return len(desk.errors) - before - 1


def test_a_full_disk_refuses_commits_so_that_clients_come_again() -> None:
    disk, desk = full_desk()
    with capture_logs() as lines:
        assert fill_journal(desk) > 3
        desk.commit(0, 1)
        desk.commit(2)
    assert desk.errors[-3:] == [LATER] * 3
    assert events(lines) == [ROOM_ENDED]
    assert lines[0]["where"] == "journal" and "No space left" in lines[0]["reason"]
    assert desk.log.stats().full == ("journal",)
    assert after_crash(disk) == desk.stored


def test_writing_resumes_by_itself_when_there_is_room() -> None:
    disk, desk = full_desk()
    with capture_logs() as lines:
        fill_journal(desk)
        for _ in range(3):
            desk.later()
            desk.commit(1)
        assert desk.errors[-3:] == [LATER] * 3
        disk.capacity_bytes += 100_000
        desk.later()
        desk.commit(1)
        desk.commit(0, 2)
    assert desk.errors[-2:] == [STORED] * 2
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert desk.found() == desk.stored == after_crash(disk)


def test_a_full_disk_is_looked_at_at_a_bounded_pace() -> None:
    """Whoever comes in between is refused without a touch of the disk."""
    disk, desk = full_desk()
    fill_journal(desk)
    disk.capacity_bytes += 100_000
    before = disk.changes
    for _ in range(100):
        desk.commit(0)
    assert (disk.changes, set(desk.errors[-100:])) == (before, {LATER})


def test_rounds_behind_a_refused_one_leave_no_gap() -> None:
    """They had their offsets already when it was refused."""
    disk = new_disk()
    desk = Desk(disk, Inline(lambda n: 0))
    for _ in range(3):
        desk.commit(0, 1)
    disk.fail(Fault("write", errno.ENOSPC, "*.journal", times=1))
    desk.commit(0, 1, 2)
    while desk.threads.step():
        pass
    assert desk.errors == [LATER] * 4
    desk.later()
    desk.commit(1, 2)
    desk.log.close()
    assert desk.errors[-1] is STORED
    assert after_crash(disk) == desk.stored


def test_what_was_written_short_is_cut_back() -> None:
    """The half of a frame must not be behind the next one, which may be shorter."""
    disk, desk = full_desk()
    fill_journal(desk)
    path = ROOT / "journal" / name_of(0)
    fd = disk.open(path, 0)
    scan = journal.scan_journal(disk.read(fd, disk.size(fd), 0), SALT)
    assert scan.torn_bytes == 0
    desk.log.close()


def test_a_full_disk_at_the_lay_in_keeps_what_waits() -> None:
    disk, desk = full_desk()
    with capture_logs() as lines:
        desk.later()
        desk.commit(0)
        with pytest.raises(OSError, match="no room to write"):
            desk.log.read(0)
        assert desk.errors == [STORED] * 2
        assert after_crash(disk) == desk.stored
    assert events(lines)[0] == ROOM_ENDED


def test_the_lay_in_goes_on_when_there_is_room() -> None:
    disk, desk = full_desk()
    with capture_logs() as lines:
        desk.later()
        desk.commit(0, 1)
        desk.later()
        disk.capacity_bytes += 100_000
        desk.later()
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert desk.found() == desk.stored == {0: [0, 1], 1: [1], 2: []}
    desk.log.close()


def test_memory_is_bounded_while_nothing_can_be_laid_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.writer.WAITING_BYTES", 1000)
    disk = new_disk()
    desk = Desk(disk)
    disk.fail(Fault("write", errno.ENOSPC, "*.log", times=math.inf))
    with capture_logs() as lines:
        for _ in range(40):
            desk.commit(0)
            desk.later(2.0)
        assert 0 < desk.errors.count(STORED) < 15 and desk.errors[-1] is LATER
        assert desk.log.stats().waiting_bytes < 1500
        disk.mend()
        desk.later()
        desk.commit(0)
    assert desk.errors[-1] is STORED
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert desk.found() == desk.stored == after_crash(disk)


def test_without_room_for_the_next_journal_the_old_one_goes_on() -> None:
    disk = new_disk()
    desk = Desk(disk, checkpoint_bytes=300)
    disk.fail(Fault("write", errno.ENOSPC, "*1-*.journal", times=math.inf))
    with capture_logs() as lines:
        for _ in range(10):
            desk.commit(0)
            desk.later(0.5)
    assert desk.errors == [STORED] * 10
    assert events(lines) == [ROOM_ENDED]
    assert disk.names(ROOT / "journal") == [name_of(0)]
    assert desk.found() == desk.stored == after_crash(disk.kill())


def test_checkpoints_go_on_when_there_is_room() -> None:
    disk = new_disk()
    desk = Desk(disk, checkpoint_bytes=300)
    disk.fail(Fault("write", errno.ENOSPC, "*1-*.journal", times=2))
    with capture_logs() as lines:
        for _ in range(10):
            desk.commit(0)
            desk.later()
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert disk.names(ROOT / "journal") != [name_of(0)]
    assert after_crash(disk) == desk.stored


def test_a_journal_that_takes_the_room_is_dropped_by_a_checkpoint() -> None:
    """Nobody has to make room where the old journal is what takes it; and where it is not, no files pile up."""
    disk, desk = full_desk()
    desk.later()
    fill_journal(desk)
    disk.capacity_bytes = disk.used_bytes() + 1000  # no step of zeros; the partition file, and the head of a journal
    with capture_logs():
        for _ in range(3):
            desk.later(2.0)
            desk.commit(0)
    assert desk.errors[-1] is STORED
    assert disk.names(ROOT / "journal") == [name_of(1)]
    disk.capacity_bytes += 10_000
    assert desk.found() == desk.stored == after_crash(disk)


def test_no_journals_pile_up_on_a_full_disk() -> None:
    disk, desk = full_desk()
    fill_journal(desk)
    disk.capacity_bytes += 300
    with capture_logs():
        for _ in range(10):
            desk.later(2.0)
            desk.commit(0)
    assert len(disk.names(ROOT / "journal")) <= 2
    assert after_crash(disk) == desk.stored


def test_without_room_for_the_next_segment_the_old_one_goes_on() -> None:
    disk = new_disk()
    desk = Desk(disk, segment_bytes=200)
    desk.commit(0)
    desk.later()
    disk.fail(Fault("open", errno.ENOSPC, "*/__consumer_offsets-0/*", times=math.inf))
    for _ in range(5):
        desk.commit(0)
        desk.later()
    assert disk.names(ROOT / "__consumer_offsets-0") == ["00000000000000000000.log"]
    disk.mend()
    desk.commit(0)
    assert desk.found() == desk.stored
    assert len(disk.names(ROOT / "__consumer_offsets-0")) == 2
    assert after_crash(disk) == desk.stored


def test_a_start_without_room_to_go_on_behind_damage_is_refused() -> None:
    """In the damaged segment it may be that nobody finds what would be appended."""
    disk = new_disk()
    desk = Desk(disk)
    for _ in range(3):
        desk.commit(0)
    desk.log.close()
    path = ROOT / "__consumer_offsets-0" / "00000000000000000000.log"
    fd = disk.open(path, os.O_RDWR)
    disk.truncate(fd, disk.size(fd) // 2)
    disk.close(fd)
    disk.fail(Fault("open", errno.ENOSPC, "*/00000000000000000003.log"))
    with capture_logs(), pytest.raises(StartError, match=r"No space left on device.*0003\.log"):
        Desk(disk)
    with capture_logs() as lines:
        log = OffsetsLog(ROOT, PARTITIONS, disk=disk, threads=Inline())
        log.open()
    assert (events(lines), log.end_offset(0)) == (["damage in the log"], 3)
    log.close()


# The journal fails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "error"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_a_failed_journal_stops_commits_for_good(operation: str, error: int) -> None:
    """Also a sync for which there is no room: what it should have written is forgotten by the system."""
    disk = new_disk(3)
    desk = Desk(disk)
    desk.commit(0, 1)
    disk.fail(Fault(operation, error, "*.journal", times=1))
    with capture_logs() as lines:
        for _ in range(3):
            desk.commit(0)
            desk.later()
    assert desk.errors[1:] == [NEVER] * 3
    assert events(lines) == ["the log has failed"]
    assert desk.log.stats().failure
    assert desk.found() == desk.stored  # reads go on
    desk.log.close()
    assert disk.names(ROOT / "journal") == [name_of(0)]
    found = after_crash(disk)
    assert {number: found[number][: len(desk.stored[number])] for number in found} == desk.stored


def test_a_failed_journal_is_read_again_by_the_next_process() -> None:
    """It finds the failed round in the system's memory. That is no answer that was given, so it may keep it, or not."""
    for seed in range(20):
        disk = new_disk(seed)
        desk = Desk(disk)
        desk.commit(0)
        disk.fail(Fault("sync", errno.EIO, "*.journal", times=1))
        with capture_logs():
            desk.commit(0)
            desk.log.close()
            again = Desk(second := disk.kill())
            again.commit(1)
        assert again.stored[0][:1] == [0]
        assert after_crash(second) == again.stored


# A partition's file fails ---------------------------------------------------------------------------------------------


def failing_desk(seed: int, operation: str = "sync") -> tuple[FaultyDisk, Desk]:
    """A log with a checkpoint at each look, of which partition 1 cannot be synced."""
    disk = new_disk(seed)
    desk = Desk(disk, checkpoint_bytes=1)
    desk.commit(0, 1)
    desk.later()
    disk.fail(Fault(operation, errno.EIO, "*/__consumer_offsets-1/*"))
    desk.commit(0, 1)
    desk.later()
    return disk, desk


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_failed_partition_file_stops_its_checkpoints_and_nothing_else(operation: str) -> None:
    with capture_logs() as lines:
        disk, desk = failing_desk(3, operation)
        disk.mend()
        for _ in range(4):
            desk.commit(0, 2)
            desk.later()
        desk.commit(1)
        desk.later()
    assert set(desk.errors) == {STORED}
    assert [(line["event"], line["partition"]) for line in lines] == [
        ("a partition of the log has failed", "__consumer_offsets-1")
    ]
    assert list(desk.log.stats().failures) == ["__consumer_offsets-1"]
    assert (offsets_in(desk.log, 0), offsets_in(desk.log, 2)) == (desk.stored[0], desk.stored[2])
    with pytest.raises(OSError, match="__consumer_offsets-1 has failed"):
        desk.log.read(1)
    assert len(disk.names(ROOT / "journal")) == 3  # two hold something of partition 1, one is written
    assert after_crash(disk) == desk.stored


def test_a_failed_partition_keeps_its_journal_over_a_clean_stop() -> None:
    with capture_logs():
        disk, desk = failing_desk(3)
        desk.log.close()
    assert disk.names(ROOT / "journal")
    assert after_crash(disk) == desk.stored


@pytest.mark.parametrize("seed", range(20))
def test_the_next_process_does_not_trust_what_only_seems_to_be_there(seed: int) -> None:
    """The sync failed, the system kept what it could not write, and the next process reads it. Then the power goes.

    Had it taken that for durable, it would have dropped the journal, and with it the only copy.
    """
    with capture_logs():
        disk, desk = failing_desk(seed)
        second = disk.kill()
        second.mend()
        again = Desk(second)
        assert again.found() == desk.stored
    assert after_crash(second) == desk.stored


def test_a_failed_folder_fails_the_partitions_that_need_it() -> None:
    disk = new_disk(3)
    desk = Desk(disk, checkpoint_bytes=1)
    desk.commit(0)
    desk.later()
    disk.fail(Fault("sync_folder", errno.EIO, str(ROOT), times=1))
    desk.commit(1, 2)
    with capture_logs():
        desk.later()
    assert sorted(desk.log.stats().failures) == ["__consumer_offsets-1", "__consumer_offsets-2"]
    assert after_crash(disk) == desk.stored


# All together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_fails_what_was_answered_is_there(seed: int) -> None:
    """Disks that fill up and have room again, syncs and writes that fail, all where a seed says, and then a crash."""
    chance = random.Random(seed)
    disk = new_disk(seed)
    with capture_logs():
        desk = Desk(disk, Inline(chance.randrange), checkpoint_bytes=600, segment_bytes=300)
        for _ in range(60):
            desk.commit(*chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS)))
            disk.capacity_bytes = disk.used_bytes() + chance.choice((0, 50, 500, 10**6, 10**6))
            if chance.random() < 0.02:
                where = chance.choice(("*.journal", "*.log"))
                disk.fail(Fault(chance.choice(("sync", "write")), errno.EIO, where, times=1))
            for _ in range(chance.randint(0, 4)):
                desk.threads.step()
            desk.now_s += chance.choice((0.0, 0.1, 2.0))
        found = after_crash(disk)
    for number, stored in desk.stored.items():
        assert found[number][: len(stored)] == stored
