"""Segments roll by size and by age, as Kafka's do, and no commit waits for a roll."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from log_helpers import WAIT_TIMEOUT_S, LazyDisk, TraceDisk, append, entry, fixed_salt, journal_file_name, offsets_in

from callboard.actors.ports import Appended
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.offsets_log import OffsetsLog

FOLDER = "__consumer_offsets-0"
FIRST_JOURNAL = journal_file_name(0)


def segments(root: Path) -> list[int]:
    """The base offsets of the partition's segments."""
    return sorted(int(path.stem) for path in (root / FOLDER).iterdir())


def segments_after_appends(root: Path, times_ms: Sequence[int], segment_ms: int) -> list[int]:
    log = OffsetsLog(root, 1, segment_ms=segment_ms, disk=LazyDisk(), threads=InlineThreads(), new_salt=fixed_salt)
    log.open()
    for number, time_ms in enumerate(times_ms):
        append(log, [entry(0, number)], time_ms)
    log.close()
    return segments(root)


def test_segment_rolls_when_its_first_record_is_old(tmp_path: Path) -> None:
    assert segments_after_appends(tmp_path, [1000, 1500, 2000, 2001, 2500, 3002], 1000) == [0, 3, 5]


def test_segment_age_is_read_after_a_restart(tmp_path: Path) -> None:
    assert segments_after_appends(tmp_path, [1000, 1500], 1000) == [0]
    assert segments_after_appends(tmp_path, [2001], 1000) == [0, 2]


def test_clock_set_back_rolls_no_segment(tmp_path: Path) -> None:
    assert segments_after_appends(tmp_path, [5000, 1000, 2], 1000) == [0]


def test_idle_partition_keeps_its_segment(tmp_path: Path) -> None:
    """As in Kafka, the age is checked at an append."""
    assert segments_after_appends(tmp_path, [0], 1) == [0]


class HangingDisk(TraceDisk):
    """The first sync of a segment, or of its folder, blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.go_on = threading.Event()

    def sync(self, fd: int) -> None:
        if self._names[fd].endswith(".log"):
            self.hangs.set()
            assert self.go_on.wait(WAIT_TIMEOUT_S)
        super().sync(fd)


def test_commits_are_acknowledged_during_a_roll(tmp_path: Path) -> None:
    """While the roll's sync hangs, later rounds are acknowledged."""
    disk = HangingDisk()
    log = OffsetsLog(tmp_path, 1, segment_bytes=200, disk=disk, new_salt=fixed_salt)
    log.open()
    rounds: list[Sequence[Appended]] = []
    for number in range(5):
        log.append([entry(0, number)], 1, rounds.append)
    assert disk.hangs.wait(WAIT_TIMEOUT_S)
    for number in range(5, 20):
        assert append(log, [entry(0, number)])[0].base_offset == number
    assert not disk.go_on.is_set()
    disk.go_on.set()
    assert offsets_in(log, 0) == list(range(20))
    assert len(segments(tmp_path)) > 5
    log.close()


def test_log_thread_does_not_access_partition_files(tmp_path: Path) -> None:
    disk = ThreadRecordingDisk()
    log = OffsetsLog(tmp_path, 1, segment_bytes=200, checkpoint_bytes=500, disk=disk, new_salt=fixed_salt)
    log.open()
    for number in range(30):
        append(log, [entry(0, number)])
    assert offsets_in(log, 0) == list(range(30))
    log.close()
    assert disk.seen["callboard-log"] == {".journal"}


class ThreadRecordingDisk(LazyDisk):
    """Records which thread writes which kind of file."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str]] = {}
        self._kinds: dict[int, str] = {}

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._kinds[fd] = path.suffix
        return fd

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        if threading.current_thread().name != "MainThread" and self._kinds[fd] in (".journal", ".log"):
            self.seen.setdefault(threading.current_thread().name, set()).add(self._kinds[fd])
        return super().write(fd, data, position)
