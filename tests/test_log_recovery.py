"""What a start finds after a crash: the journal is laid in, torn ends are left out, what does not fit is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from log_helpers import LazyDisk, TraceDisk, append, entry, offsets_in
from structlog.testing import capture_logs

from callboard.runtime.errors import StartError
from callboard.runtime.log import journal
from callboard.runtime.log.disk import Disk
from callboard.runtime.log.offsets_log import OffsetsLog

FIRST_SEGMENT = "00000000000000000000.log"
FIRST_JOURNAL = "00000000000000000000.journal"
SECOND_JOURNAL = "00000000000000000001.journal"


def opened(root: Path, partitions: int = 5, disk: Disk | None = None, **options: Any) -> OffsetsLog:
    log = OffsetsLog(root, partitions, disk=disk or LazyDisk(), **options)
    log.open()
    return log


def segment(root: Path, partition: int) -> Path:
    return root / f"__consumer_offsets-{partition}" / FIRST_SEGMENT


def killed(root: Path, count: int = 4) -> Path:
    """A copy of a log as a kill leaves it: answered, in the journal, partition files as ``lay_in`` left them."""
    log = opened(root / "live")
    for number in range(count):
        append(log, [entry(0, number), entry(1, number)])
    assert offsets_in(log, 0) == list(range(count))
    shutil.copytree(root / "live", root / "copy")
    log.close()
    return root / "copy"


def test_a_journal_that_is_not_laid_in_is_laid_in_and_told(tmp_path: Path) -> None:
    root = killed(tmp_path)
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        log = opened(root)
    assert [(line["event"], line["batches"], line["already_there"], line["torn_bytes"]) for line in lines] == [
        ("journal laid in", 4, 4, 0)
    ]
    assert (offsets_in(log, 0), offsets_in(log, 1), log.end_offset(1)) == ([0, 1, 2, 3], [0, 1, 2, 3], 4)
    assert sorted(path.name for path in (root / "journal").iterdir()) == [SECOND_JOURNAL]
    log.close()


def test_a_journal_laid_in_twice_is_laid_in_once(tmp_path: Path) -> None:
    """The process died again, after laying in and before the journal was removed."""
    root = killed(tmp_path)
    old = (root / "journal" / FIRST_JOURNAL).read_bytes()
    for _ in range(2):
        (root / "journal" / FIRST_JOURNAL).write_bytes(old)
        with capture_logs():
            log = opened(root)
        assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2, 3], [0, 1, 2, 3])
        log.close()


def test_half_of_a_lay_in_is_completed(tmp_path: Path) -> None:
    root = killed(tmp_path)
    data = segment(root, 0).read_bytes()
    for size in range(0, len(data), 7):
        again = tmp_path / f"half-{size}"
        shutil.copytree(root, again)
        segment(again, 0).write_bytes(data[:size])
        with capture_logs():
            log = opened(again)
        assert offsets_in(log, 0) == [0, 1, 2, 3]
        log.close()
        assert segment(again, 0).read_bytes() == data


def test_a_torn_frame_is_left_out_and_told(tmp_path: Path) -> None:
    """It was never answered, since its sync never ended."""
    root = killed(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    data = path.read_bytes()
    end = journal.measure(data).good_bytes
    path.write_bytes(data[: end - 3].ljust(len(data), b"\0"))
    for partition in (0, 1):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    with capture_logs() as lines:
        log = opened(root)
    assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2], [0, 1, 2])
    assert lines[0]["torn_bytes"] > 100
    log.close()


def test_a_gap_between_partition_and_journal_is_refused(tmp_path: Path) -> None:
    """Somebody took the partition's files away after a checkpoint; to go on would lose offsets without a word."""
    live = tmp_path / "live"
    disk = TraceDisk()
    log = opened(live, disk=disk, checkpoint_bytes=1)
    append(log, [entry(0, 0)])
    disk.wait_for("remove", FIRST_JOURNAL)
    log.close()
    reopened = opened(live)
    append(reopened, [entry(0, 1)])
    shutil.copytree(live, tmp_path / "copy")
    reopened.close()
    shutil.rmtree(tmp_path / "copy" / "__consumer_offsets-0")
    with pytest.raises(StartError, match="__consumer_offsets-0: ends at offset 0, expected 1 or more"):
        opened(tmp_path / "copy")


def test_a_partition_that_lost_its_end_is_refused_without_a_later_batch_too(tmp_path: Path) -> None:
    """A file that was cut at a batch looks whole; the journal knows that it was longer."""
    live = tmp_path / "live"
    log = opened(live)
    append(log, [entry(0, 0)])
    log.close()
    reopened = opened(live)
    shutil.copytree(live, tmp_path / "copy")
    reopened.close()
    shutil.rmtree(tmp_path / "copy" / "__consumer_offsets-0")
    with pytest.raises(StartError, match="__consumer_offsets-0: ends at offset 0, expected 1 or more"):
        opened(tmp_path / "copy")


def test_a_journal_of_more_partitions_is_refused(tmp_path: Path) -> None:
    root = killed(tmp_path)
    for partition in (0, 1):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    with pytest.raises(StartError, match="found a batch of partition 1, expected 0 to 0"):
        opened(root, 1)


def test_a_damaged_journal_with_a_later_one_is_refused(tmp_path: Path) -> None:
    """Only the last can be torn by a crash; another one that is damaged has lost what was answered."""
    root = killed(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    journal.Journal(LazyDisk(), path.parent, 1, {0: 4, 1: 4}).close()
    data = bytearray(path.read_bytes())
    data[journal.measure(bytes(data)).good_bytes - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StartError, match=f"{path}: damaged frame at byte .* later journal"):
        opened(root)
    assert path.read_bytes() == data
