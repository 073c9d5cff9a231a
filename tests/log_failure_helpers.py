"""Test harness for a log on a disk that fills up or fails: one thread, a manual clock, and the outcomes of commits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from log_helpers import entry, fixed_salt, offsets_in
from structlog.testing import capture_logs

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended, Entry
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.testing.disk.faulty import FaultyDisk

ROOT = Path("/data")
PARTITIONS = 3
STORED, RETRIABLE, FAILED = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR
NO_ROOM, ROOM_AGAIN = "the log has no room", "the log has room again"
LONG_TIME_S = 1000.0  # after this time all work is due


class LogHarness:
    """An open log, its clock, and the outcomes of its commits."""

    def __init__(self, disk: Disk, threads: InlineThreads | None = None, root: Path = ROOT, **options: Any) -> None:
        self.now_s = 0.0
        self.threads = threads or InlineThreads()
        options = {"new_salt": fixed_salt, **options}
        self.log = OffsetsLog(root, PARTITIONS, disk=disk, threads=self.threads, clock=lambda: self.now_s, **options)
        self.log.open()
        self.errors: list[ErrorCode] = []
        self.stored: dict[int, list[int]] = {number: offsets_in(self.log, number) for number in range(PARTITIONS)}
        self._next = 0

    def commit(self, *partitions: int) -> None:
        """Append a round that commits the next number in each partition."""
        number, self._next = self._next, self._next + 1
        entries = [entry(partition, number) for partition in partitions]
        self.log.append(entries, 1, lambda outcomes: self._answered(entries, number, outcomes))

    def _answered(self, entries: Sequence[Entry], number: int, outcomes: Sequence[Appended]) -> None:
        self.errors.append(outcomes[0].error)
        for appended, outcome in zip(entries, outcomes, strict=True):
            if outcome.error is STORED:
                assert outcome.base_offset == len(self.stored[appended.partition])
                self.stored[appended.partition].append(number)

    def advance(self, seconds: float = LONG_TIME_S) -> None:
        """Advance the clock and do all work that is due."""
        self.now_s += seconds
        while self.threads.step():
            self.log.check()

    def offsets(self) -> dict[int, list[int]]:
        return {number: offsets_in(self.log, number) for number in range(PARTITIONS)}


def new_faulty_disk(seed: int = 1) -> FaultyDisk:
    """A disk with an empty data folder, whose name is durable."""
    disk = FaultyDisk(seed)
    disk.make_folder(ROOT)
    disk.sync_folder(ROOT.parent)
    return disk


def offsets_after_crash(disk: FaultyDisk) -> dict[int, list[int]]:
    """Return the offsets after a power loss and a restart."""
    with capture_logs():
        crashed = disk.crash()
        crashed.capacity_bytes = math.inf  # a start needs room
        harness = LogHarness(crashed)
        offsets = harness.offsets()
        harness.log.close()
    return offsets


def problem_events(lines: Sequence[Any]) -> list[str]:
    return [line["event"] for line in lines if line["log_level"] in ("warning", "error")]


def harness_on_full_disk(**options: Any) -> tuple[FaultyDisk, LogHarness]:
    """A log with one stored commit, on a disk without a free byte."""
    disk = new_faulty_disk()
    harness = LogHarness(disk, **options)
    harness.commit(0)
    disk.capacity_bytes = disk.used_bytes()
    return disk, harness


def fill_journal(harness: LogHarness) -> int:
    """Commit until a commit is refused; return the number of those stored in the preallocated zeros."""
    before = len(harness.errors)
    while harness.errors[-1] is STORED:
        harness.commit(0)
        assert len(harness.errors) < 100
    return len(harness.errors) - before - 1
