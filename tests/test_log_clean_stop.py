"""The note of a clean stop: a start that finds it need not read the ends of partitions, and never trusts too much."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_helpers import LazyDisk, TraceDisk, append, entry, fixed_salt, name_of, offsets_in
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.faulty import Fault, FaultyDisk
from callboard.runtime.disk.threads import Inline
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.recovery.clean_stop import NAME

FIRST_SEGMENT = "00000000000000000000.log"


class ReadingDisk(LazyDisk):
    """Counts the bytes that are read of segments."""

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


def opened(root: Path, disk: Disk | None = None) -> OffsetsLog:
    log = OffsetsLog(root, 3, disk=disk or LazyDisk(), threads=Inline(), new_salt=fixed_salt)
    log.open()
    return log


def stopped(root: Path, count: int = 4) -> Path:
    """A folder after a clean stop."""
    log = opened(root)
    for number in range(count):
        append(log, [entry(0, number), entry(2, number)])
    log.close()
    return root


def bytes_read_at_start(root: Path) -> int:
    disk = ReadingDisk()
    log = opened(root, disk)
    found = disk.bytes_read
    assert (log.end_offset(0), log.end_offset(2)) == (4, 4)
    assert append(log, [entry(0, 4)])[0].base_offset == 4
    assert offsets_in(log, 0) == [0, 1, 2, 3, 4]
    return found


def test_the_ends_are_not_read_after_a_clean_stop(tmp_path: Path) -> None:
    root = stopped(tmp_path)
    assert (root / NAME).exists()
    assert bytes_read_at_start(root) == 0


def test_the_ends_are_read_without_the_note(tmp_path: Path) -> None:
    root = stopped(tmp_path)
    (root / NAME).unlink()
    assert bytes_read_at_start(root) > 0


def test_the_note_is_gone_before_anything_is_appended(tmp_path: Path) -> None:
    root = stopped(tmp_path)
    disk = TraceDisk()
    log = opened(root, disk)
    assert disk.trace[-2:] == [("remove", NAME), ("sync_folder", tmp_path.name)]
    assert {name for operation, name in disk.trace if operation == "write"} == {name_of(0)}
    assert not (root / NAME).exists()
    log.close()
    assert (root / NAME).exists()


def test_a_start_that_fails_leaves_the_note_to_the_next(tmp_path: Path) -> None:
    """Without room for a journal nothing has changed: the next start need not warn of a journal that is missing."""
    root = stopped(tmp_path)
    disk = TraceDisk()
    disk.fails = lambda operation, name: operation == "write" and name.endswith(".journal")
    for _ in range(2):
        with pytest.raises(StartError):
            opened(root, disk)
        assert (root / NAME).exists()
    with capture_logs() as lines:
        assert bytes_read_at_start(root) == 0
    assert lines == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "[" * 100_000, '{"version": 1}', '{"version": 1, "partitions": {"x": [1]}}']
)
def test_a_note_that_cannot_be_read_is_no_note(tmp_path: Path, text: str) -> None:
    root = stopped(tmp_path)
    (root / NAME).write_text(text)
    with capture_logs() as lines:
        assert bytes_read_at_start(root) > 0
    assert lines[0]["event"] == "the note of a clean stop cannot be read"


def test_a_note_of_a_later_version_is_no_note(tmp_path: Path) -> None:
    root = stopped(tmp_path)
    (root / NAME).write_text('{"version": 2, "what": "ever"}')
    assert bytes_read_at_start(root) > 0


def test_files_that_were_changed_meanwhile_are_checked(tmp_path: Path) -> None:
    """Somebody put other bytes behind the end while the server was stopped."""
    root = stopped(tmp_path)
    path = root / "__consumer_offsets-0" / FIRST_SEGMENT
    path.write_bytes(path.read_bytes() + b"torn")
    with capture_logs() as lines:
        assert bytes_read_at_start(root) > 0
    assert "torn tail cut" in [line["event"] for line in lines]


def test_a_partition_of_which_only_what_was_compacted_is_left_is_refused(tmp_path: Path) -> None:
    """The start would give out the offsets of what was in the open segment again, and say nothing of it."""

    def rolling() -> OffsetsLog:
        log = OffsetsLog(tmp_path, 1, disk=LazyDisk(), threads=Inline(), segment_bytes=300)
        log.open()
        return log

    log, folder = rolling(), tmp_path / "__consumer_offsets-0"
    for number in range(20):
        append(log, [entry(0, number)])
    log.close()
    assert compact(LazyDisk(), folder, CompactionSettings(0, "", -1.0)) is not None
    *_, open_segment = sorted(folder.glob("*.log"))
    kept = open_segment.rename(tmp_path / "kept")
    for _ in range(2):
        with capture_logs(), pytest.raises(StartError, match=r"offsets-0: ends at offset 18, expected 20 or more by "):
            rolling()
    kept.rename(open_segment)
    again = rolling()
    assert append(again, [entry(0, 20)])[0].base_offset == 20
    again.close()


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_after_a_failure_there_is_no_note(operation: str) -> None:
    root = Path("/data")
    for where in ("*.journal", "*.log"):
        disk = FaultyDisk(1)
        log = opened(root, disk)
        disk.fail(Fault(operation, errno.EIO, where))
        with capture_logs():
            append(log, [entry(0, 1)])
            log.close()
        assert NAME not in disk.names(root)


def test_a_note_that_cannot_be_written_is_missed_and_no_more(tmp_path: Path) -> None:
    disk = TraceDisk()
    log = opened(tmp_path, disk)
    append(log, [entry(0, 1), entry(2, 1)])
    disk.fails = lambda operation, name: name.startswith(NAME)
    with capture_logs() as lines:
        log.close()
    assert [line["event"] for line in lines] == ["the note of a clean stop could not be written"]
    again = opened(tmp_path)
    assert offsets_in(again, 0) == [1]
    again.close()


def test_a_crash_in_any_step_of_stop_and_start_is_survived() -> None:
    """Never a note beside a log that went on: what was answered after it would be taken for a torn end."""
    root = Path("/data")
    for change in range(1, 60):
        disk = FaultyDisk(change)
        disk.make_folder(root)
        disk.sync_folder(root.parent)
        answered = 0
        disk.crash_at(disk.changes + change)
        try:
            for number in range(3):
                log = opened(root, disk)
                append(log, [entry(0, number)])
                answered = number + 1
                log.close()
        except BaseException as error:
            assert type(error).__name__ == "PowerLoss"
        with capture_logs():
            again = opened(root, disk.crash())
            found = offsets_in(again, 0)
        assert found[:answered] == list(range(answered))
