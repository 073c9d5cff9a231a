"""The clean-stop note: with it a start need not read the ends of partitions; a wrong note is detected."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_helpers import LazyDisk, TraceDisk, append, entry, fixed_salt, journal_file_name, offsets_in
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.recovery.clean_stop import NOTE_NAME
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

FIRST_SEGMENT = "00000000000000000000.log"


class ReadingDisk(LazyDisk):
    """Counts the bytes that are read from segments."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self._segments: set[int] = set()

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        (self._segments.add if path.suffix == ".log" else self._segments.discard)(fd)
        return fd

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.bytes_read += len(data) * (fd in self._segments)
        return data


def open_log(root: Path, disk: Disk | None = None) -> OffsetsLog:
    log = OffsetsLog(root, 3, disk=disk or LazyDisk(), threads=InlineThreads(), new_salt=fixed_salt)
    log.open()
    return log


def make_stopped_folder(root: Path, count: int = 4) -> Path:
    """A folder after a clean stop."""
    log = open_log(root)
    for number in range(count):
        append(log, [entry(0, number), entry(2, number)])
    log.close()
    return root


def bytes_read_at_start(root: Path) -> int:
    disk = ReadingDisk()
    log = open_log(root, disk)
    actual = disk.bytes_read
    assert (log.end_offset(0), log.end_offset(2)) == (4, 4)
    assert append(log, [entry(0, 4)])[0].base_offset == 4
    assert offsets_in(log, 0) == [0, 1, 2, 3, 4]
    return actual


def test_start_after_clean_stop_does_not_read_partition_ends(tmp_path: Path) -> None:
    root = make_stopped_folder(tmp_path)
    assert (root / NOTE_NAME).exists()
    assert bytes_read_at_start(root) == 0


def test_start_without_note_reads_partition_ends(tmp_path: Path) -> None:
    root = make_stopped_folder(tmp_path)
    (root / NOTE_NAME).unlink()
    assert bytes_read_at_start(root) > 0


def test_start_removes_the_note_before_the_first_append(tmp_path: Path) -> None:
    root = make_stopped_folder(tmp_path)
    disk = TraceDisk()
    log = open_log(root, disk)
    assert disk.trace[-2:] == [("remove", NOTE_NAME), ("sync_folder", tmp_path.name)]
    assert {name for operation, name in disk.trace if operation == "write"} == {journal_file_name(0)}
    assert not (root / NOTE_NAME).exists()
    log.close()
    assert (root / NOTE_NAME).exists()


def test_failed_start_keeps_the_note(tmp_path: Path) -> None:
    """Without room for a journal nothing changes, so the next start need not report a missing journal."""
    root = make_stopped_folder(tmp_path)
    disk = TraceDisk()
    disk.fails = lambda operation, name: operation == "write" and name.endswith(".journal")
    for _ in range(2):
        with pytest.raises(StartError):
            open_log(root, disk)
        assert (root / NOTE_NAME).exists()
    with capture_logs() as lines:
        assert bytes_read_at_start(root) == 0
    assert lines == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "[" * 100_000, '{"version": 1}', '{"version": 1, "partitions": {"x": [1]}}']
)
def test_start_with_unreadable_note_ignores_it(tmp_path: Path, text: str) -> None:
    root = make_stopped_folder(tmp_path)
    (root / NOTE_NAME).write_text(text)
    with capture_logs() as lines:
        assert bytes_read_at_start(root) > 0
    assert lines[0]["event"] == "clean-stop note cannot be read"


def test_start_with_note_of_later_version_ignores_it(tmp_path: Path) -> None:
    root = make_stopped_folder(tmp_path)
    (root / NOTE_NAME).write_text('{"version": 2, "what": "ever"}')
    assert bytes_read_at_start(root) > 0


def test_files_changed_after_a_clean_stop_are_checked(tmp_path: Path) -> None:
    """Other bytes were appended while the server was stopped."""
    root = make_stopped_folder(tmp_path)
    path = root / "__consumer_offsets-0" / FIRST_SEGMENT
    path.write_bytes(path.read_bytes() + b"torn")
    with capture_logs() as lines:
        assert bytes_read_at_start(root) > 0
    assert "torn tail cut" in [line["event"] for line in lines]


def test_start_with_only_compacted_files_of_a_partition_is_refused(tmp_path: Path) -> None:
    """A start would assign the offsets of the open segment again, without an error."""

    def open_rolling_log() -> OffsetsLog:
        log = OffsetsLog(tmp_path, 1, disk=LazyDisk(), threads=InlineThreads(), segment_bytes=300)
        log.open()
        return log

    log, folder = open_rolling_log(), tmp_path / "__consumer_offsets-0"
    for number in range(20):
        append(log, [entry(0, number)])
    log.close()
    assert compact(LazyDisk(), folder, CompactionSettings(0, "", -1.0)) is not None
    *_, open_segment = sorted(folder.glob("*.log"))
    moved_segment = open_segment.rename(tmp_path / "kept")
    for _ in range(2):
        with capture_logs(), pytest.raises(StartError, match=r"offsets-0: ends at offset 18, expected 20 or more by "):
            open_rolling_log()
    moved_segment.rename(open_segment)
    reopened = open_rolling_log()
    assert append(reopened, [entry(0, 20)])[0].base_offset == 20
    reopened.close()


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_stop_after_a_failure_writes_no_note(operation: str) -> None:
    root = Path("/data")
    for pattern in ("*.journal", "*.log"):
        disk = FaultyDisk(1)
        log = open_log(root, disk)
        disk.faults.fail(Fault(operation, errno.EIO, pattern))
        with capture_logs():
            append(log, [entry(0, 1)])
            log.close()
        assert NOTE_NAME not in disk.names(root)


def test_stop_that_cannot_write_the_note_loses_nothing(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = open_log(tmp_path, disk)
    append(log, [entry(0, 1), entry(2, 1)])
    disk.fails = lambda operation, name: name.startswith(NOTE_NAME)
    with capture_logs() as lines:
        log.close()
    assert [line["event"] for line in lines] == ["clean-stop note cannot be written"]
    reopened = open_log(tmp_path)
    assert offsets_in(reopened, 0) == [1]
    reopened.close()


def test_crash_in_any_step_of_stop_and_start_loses_nothing() -> None:
    """A note must not exist beside a newer log. Otherwise later acknowledged rounds would count as a torn end."""
    root = Path("/data")
    for change in range(1, 60):
        disk = FaultyDisk(change)
        disk.make_folder(root)
        disk.sync_folder(root.parent)
        acknowledged_count = 0
        disk.faults.crash_at(disk.faults.changes + change)
        try:
            for number in range(3):
                log = open_log(root, disk)
                append(log, [entry(0, number)])
                acknowledged_count = number + 1
                log.close()
        except BaseException as error:
            assert type(error).__name__ == "PowerLoss"
        with capture_logs():
            reopened = open_log(root, disk.crash())
            actual = offsets_in(reopened, 0)
        assert actual[:acknowledged_count] == list(range(acknowledged_count))
