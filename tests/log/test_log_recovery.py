"""A start after a crash: the journal is replayed, torn ends are skipped, inconsistent folders are refused."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from log_helpers import (
    SALT,
    LazyDisk,
    TraceDisk,
    append,
    entry,
    fixed_salt,
    journal_file_name,
    new_journal,
    offset,
    offsets_in,
)
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.format.batch import encode_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.journal import SyncPolicy
from callboard.runtime.log.journal_frames import FRAME_HEAD_BYTES, encode_frame
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.recovery import recovery
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk, PowerLoss

FIRST_SEGMENT = "00000000000000000000.log"
FIRST_JOURNAL = journal_file_name(0)
SECOND_JOURNAL = journal_file_name(1)


def open_log(root: Path, partitions: int = 5, disk: Disk | None = None, **options: Any) -> OffsetsLog:
    log = OffsetsLog(root, partitions, disk=disk or LazyDisk(), **options, new_salt=fixed_salt)
    log.open()
    return log


def segment(root: Path, partition: int) -> Path:
    return root / f"__consumer_offsets-{partition}" / FIRST_SEGMENT


def copy_of_killed_log(root: Path, count: int = 4) -> Path:
    """A copy of a killed log: all rounds are in the journal, and the partition files as ``flush`` left them."""
    log = open_log(root / "live")
    for number in range(count):
        append(log, [entry(0, number), entry(1, number)])
    assert offsets_in(log, 0) == list(range(count))
    shutil.copytree(root / "live", root / "copy")
    log.close()
    return root / "copy"


def test_start_replays_the_journal_and_logs_it(tmp_path: Path) -> None:
    root = copy_of_killed_log(tmp_path)
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        log = open_log(root)
    assert [(line["event"], line["batches"], line["skipped"], line["torn_bytes"]) for line in lines] == [
        ("journal replayed", 4, 4, 0)
    ]
    assert (offsets_in(log, 0), offsets_in(log, 1), log.end_offset(1)) == ([0, 1, 2, 3], [0, 1, 2, 3], 4)
    assert sorted(path.name for path in (root / "journal").iterdir()) == [SECOND_JOURNAL]
    log.close()


def test_second_replay_of_a_journal_adds_nothing(tmp_path: Path) -> None:
    """The process ended again, after the replay and before the journal was removed."""
    root = copy_of_killed_log(tmp_path)
    journal_bytes = (root / "journal" / FIRST_JOURNAL).read_bytes()
    for _ in range(2):
        (root / "journal" / FIRST_JOURNAL).write_bytes(journal_bytes)
        with capture_logs():
            log = open_log(root)
        assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2, 3], [0, 1, 2, 3])
        log.close()


def test_interrupted_flush_is_completed_by_replay(tmp_path: Path) -> None:
    root = copy_of_killed_log(tmp_path)
    data = segment(root, 0).read_bytes()
    for size in range(0, len(data), 7):
        copy = tmp_path / f"half-{size}"
        shutil.copytree(root, copy)
        segment(copy, 0).write_bytes(data[:size])
        with capture_logs():
            log = open_log(copy)
        assert offsets_in(log, 0) == [0, 1, 2, 3]
        log.close()
        assert segment(copy, 0).read_bytes() == data


def test_torn_frame_is_skipped_and_logged(tmp_path: Path) -> None:
    """The round was never acknowledged, because its sync did not complete."""
    root = copy_of_killed_log(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    data = path.read_bytes()
    end = journal.scan_journal(data, SALT).valid_bytes
    path.write_bytes(data[: end - 3].ljust(len(data), b"\0"))
    for partition in (0, 1):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    with capture_logs() as lines:
        log = open_log(root)
    assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2], [0, 1, 2])
    assert lines[0]["torn_bytes"] > 100
    log.close()


def test_start_with_gap_between_partition_and_journal_is_refused(tmp_path: Path) -> None:
    """The partition's files were removed after a checkpoint; a start would lose offsets without an error."""
    live_root = tmp_path / "live"
    disk = TraceDisk()
    log = open_log(live_root, disk=disk, checkpoint_bytes=1)
    append(log, [entry(0, 0)])
    disk.wait_for("remove", FIRST_JOURNAL)
    log.close()
    reopened = open_log(live_root)
    append(reopened, [entry(0, 1)])
    shutil.copytree(live_root, tmp_path / "copy")
    reopened.close()
    shutil.rmtree(tmp_path / "copy" / "__consumer_offsets-0")
    with pytest.raises(StartError, match="__consumer_offsets-0: ends at offset 0, expected 1 or more"):
        open_log(tmp_path / "copy")


def test_start_with_lost_partition_end_and_no_later_batch_is_refused(tmp_path: Path) -> None:
    """A file truncated at a batch looks complete; the journal states a higher end."""
    live_root = tmp_path / "live"
    log = open_log(live_root)
    append(log, [entry(0, 0)])
    log.close()
    reopened = open_log(live_root)
    shutil.copytree(live_root, tmp_path / "copy")
    reopened.close()
    shutil.rmtree(tmp_path / "copy" / "__consumer_offsets-0")
    with pytest.raises(StartError, match="__consumer_offsets-0: ends at offset 0, expected 1 or more"):
        open_log(tmp_path / "copy")


def test_start_with_journal_of_more_partitions_is_refused(tmp_path: Path) -> None:
    root = copy_of_killed_log(tmp_path)
    for partition in (0, 1):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    with pytest.raises(StartError, match=r"found 5 and 0 partitions, expected 1 and 0 partitions by .*callboard.json"):
        open_log(root, 1)


@pytest.mark.parametrize(("offsets", "transactions"), [(6, 0), (4, 0), (5, 1)])
def test_start_with_other_partition_counts_than_the_journal_is_refused_and_changes_nothing(
    tmp_path: Path, offsets: int, transactions: int
) -> None:
    root = copy_of_killed_log(tmp_path)
    files_before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    log = OffsetsLog(root, offsets, transactions_partitions=transactions, disk=LazyDisk())
    with pytest.raises(StartError) as error:
        log.open()
    for expected_text in (
        f"{root}/journal/{FIRST_JOURNAL}: found 5 and 0 partitions",
        f"expected {offsets} and {transactions} partitions by {root}/callboard.json",
        f"callboard log repair --data {root} --partitions 5 --transaction-partitions",
    ):
        assert expected_text in str(error.value)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == files_before


def test_start_with_other_partition_counts_in_one_of_two_journal_files_is_refused(tmp_path: Path) -> None:
    root = copy_of_killed_log(tmp_path)
    later = new_journal(LazyDisk(), root / "journal", 1, {}, counts=PartitionCounts(5, 1))
    later.close()
    with pytest.raises(StartError, match=f"{later.path}: found 5 and 1 partitions, expected 5 and 0"):
        open_log(root)


def test_start_with_damaged_first_frame_replays_later_rounds(tmp_path: Path) -> None:
    """Only that frame is lost, because the salt is in the file's name."""
    root = copy_of_killed_log(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    data = bytearray(path.read_bytes())
    data[:24] = bytes(24)
    path.write_bytes(data)
    for partition in (0, 1):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    with capture_logs():
        log = open_log(root)
    assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2, 3], [0, 1, 2, 3])
    log.close()


def test_start_with_a_journal_file_whose_name_lost_its_salt_is_refused(tmp_path: Path) -> None:
    root = copy_of_killed_log(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    path.rename(path.with_name(f"{0:020d}.journal"))
    with pytest.raises(StartError, match=r"without the salt in its name, expected .*-<16 hex digits>\.journal"):
        open_log(root)
    path.with_name(f"{0:020d}.journal").rename(path)
    open_log(root).close()


@pytest.mark.parametrize("has_partition", [True, False])
def test_bad_end_of_older_journal_is_reported_if_offsets_are_missing(tmp_path: Path, has_partition: bool) -> None:
    """The bytes may be a refused round whose removal was not synced. The next file has the partitions' end offsets."""
    root = copy_of_killed_log(tmp_path)
    path = root / "journal" / FIRST_JOURNAL
    later = new_journal(LazyDisk(), path.parent, 1, {0: 4, 1: 4})
    later.close()
    data = bytearray(path.read_bytes())
    scan = journal.scan_journal(bytes(data), SALT)
    data[scan.valid_bytes - 1] ^= 1
    path.write_bytes(data)
    if not has_partition:
        shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs():
        log = open_log(root)
    assert offsets_in(log, 1) == ([0, 1, 2, 3] if has_partition else [0, 1, 2])
    actual = [(damage.path, damage.lost) for damage in log.damages()]
    assert actual == ([] if has_partition else [(later.path, "3 to 3")])
    start = scan.rounds[-1][0] - FRAME_HEAD_BYTES
    quarantined = path.with_name(f"{path.name}.torn-{start}")
    assert quarantined.read_bytes() == data[start : scan.valid_bytes].rstrip(b"\0")
    log.close()


@pytest.mark.parametrize("sync", ["interval", "none"])
def test_unsynced_rounds_are_lost_from_the_end_of_each_partition(tmp_path: Path, sync: SyncPolicy) -> None:
    """Later blocks were written before earlier ones. The policy allows this, so it is logged once and is not damage."""
    live_log = open_log(tmp_path / "live", sync=sync)
    for number in range(6):
        append(live_log, [entry(0, number), entry(1, number)])
    assert offsets_in(live_log, 1) == list(range(6))
    root = tmp_path / "copy"
    shutil.copytree(tmp_path / "live", root)
    live_log.close()
    path = root / "journal" / FIRST_JOURNAL
    data = path.read_bytes()
    scan = journal.scan_journal(data, SALT)
    start, end = scan.rounds[2]
    data_with_hole = data[:start] + bytes(end - start) + data[end:]
    path.write_bytes(data_with_hole)
    file = segment(root, 1).read_bytes()
    size = len(file) // 6
    segment(root, 1).write_bytes(file[: 2 * size] + bytes(size) + file[3 * size :])
    with capture_logs() as lines:
        log = open_log(root)
    assert log.damages() == []
    assert (offsets_in(log, 0), offsets_in(log, 1)) == ([0, 1, 2, 3, 4, 5], [0, 1]), (
        "the file of one partition has all rounds"
    )
    (log_line,) = [line for line in lines if "not synced" in line["event"]]
    assert (log_line["sync"], log_line["rounds"], log_line["batches"]) == (sync, 3, 3)
    quarantined = path.with_name(f"{path.name}.torn-{start - FRAME_HEAD_BYTES}").read_bytes()
    assert quarantined == data_with_hole[start - FRAME_HEAD_BYTES : scan.valid_bytes]
    assert segment(root, 1).with_name(f"{FIRST_SEGMENT}.torn-2").read_bytes() == bytes(size) + file[3 * size :]
    assert append(log, [entry(1, 99)])[0].base_offset == 2
    log.close()
    with capture_logs() as lines:
        log = open_log(root)
    assert (offsets_in(log, 0), offsets_in(log, 1), lines) == ([0, 1, 2, 3, 4, 5], [0, 1, 99], [])
    log.close()


# Many journal files --------------------------------------------------------------------------------------------------

FILES = 12
FILE_BYTES = 256 * 1024


def write_journal_files(root: Path, *files: Sequence[int]) -> None:
    """The journal files after the failure of a partition: batches of partition 0, by base offset."""
    (root / "journal").mkdir(parents=True)
    for number, offsets in enumerate(files):
        starts = {0: offsets[0]} if number and offsets[0] else {}
        file = new_journal(Disk(), root / "journal", number, starts)
        for base in offsets:
            file.write(encode_frame([(0, encode_batch(base, 1, 1, [RecordEncoder().frame(offset("g", base), 0)]))]))
        file.sync()
        file.close()


@pytest.mark.parametrize("kept_bytes", [recovery.CACHED_BYTES_MAX, 0])
def test_salvaged_batches_are_replayed_between_those_of_other_files(
    tmp_path: Path, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last file is of an interrupted start: batches that were after a flaw in the partition's file."""
    monkeypatch.setattr(recovery, "CACHED_BYTES_MAX", kept_bytes)
    write_journal_files(tmp_path, (0, 1, 3), (5, 7), (8, 9, 12), (2, 4, 6, 10, 11, 13))
    log = open_log(tmp_path, threads=InlineThreads())
    assert offsets_in(log, 0) == list(range(14))
    assert log.damages() == []
    log.close()


def test_replay_memory_is_bounded_by_one_journal_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds however long a partition had failed before."""
    monkeypatch.setattr(recovery, "CACHED_BYTES_MAX", FILE_BYTES)
    disk = FaultyDisk(1)
    disk.faults.fail(Fault("write", errno.EIO, "*/__consumer_offsets-0/*"))
    log = OffsetsLog(
        Path("/data"), 1, disk=disk, threads=InlineThreads(), checkpoint_bytes=FILE_BYTES, clock=lambda: 0.0
    )
    log.open()
    with capture_logs():
        while log.stats().journal_files < FILES:
            append(log, [entry(0, number, "x" * 100) for number in range(50)])
    log.halt()
    for name in disk.names(Path("/data/journal")):
        (tmp_path / "journal").mkdir(exist_ok=True)
        (tmp_path / "journal" / name).write_bytes(read_file(disk, Path("/data/journal") / name))
    tracemalloc.start()
    try:
        log = open_log(tmp_path, 1, Disk(), threads=InlineThreads())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert log.end_offset(0) > 50 * FILES
    log.close()
    assert peak_bytes < FILES / 2 * FILE_BYTES


def test_power_loss_during_replay_keeps_the_round_that_a_killed_process_did_not_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise parts of the round remain in a partition file only, where bytes of a client may look like a batch."""
    monkeypatch.setattr(journal, "ZEROS", bytes(4096))
    outcomes = [
        outcome for seed in range(10) for change in range(1, 12) for outcome in outcomes_of_replay(seed, change)
    ]
    assert any(is_replayed for is_replayed, _ in outcomes)
    assert all(read == [0] for is_replayed, read in outcomes if is_replayed)


def outcomes_of_replay(seed: int, change: int) -> Iterator[tuple[bool, list[int]]]:
    """Whether bytes of the round are in the partition's file, and the offsets that the next start reads.

    A process is killed before the sync of its only round. The power is lost at a change of the disk by the next start.
    """
    disk = FaultyDisk(seed, sector_bytes=16)
    disk.make_folder(Path("/data"))
    disk.sync_folder(Path("/"))
    log = open_log(Path("/data"), 1, disk, threads=InlineThreads())
    disk.faults.crash_at(2)  # the sync of the journal; the write was the first change
    with suppress(PowerLoss):
        append(log, [entry(0, 0)])
    disk = disk.kill()
    disk.faults.crash_at(change)
    with suppress(PowerLoss):
        open_log(Path("/data"), 1, disk, threads=InlineThreads())
    for _ in range(3):
        image = disk.crash()
        path = segment(Path("/data"), 0)
        is_replayed = image.kind(path) == "file" and any(read_file(image, path))
        yield is_replayed, offsets_in(open_log(Path("/data"), 1, image, threads=InlineThreads()), 0)
