"""Crashes of the log at every change of the disk: no acknowledged round is lost, and every start succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from log_helpers import CrashDisk, DiskSnapshot, LazyDisk, append, entry, offsets_in

from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.journal import SyncPolicy
from callboard.runtime.log.offsets_log import OffsetsLog

PARTITIONS = 3
ROUNDS = 14
FIRST_OF_FOUR_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))]


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps of zeros, so that snapshots of the disk are small and some rounds cross a step."""
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def open_log(root: Path, disk: Disk, sync: SyncPolicy = "always", threads: InlineThreads | None = None) -> OffsetsLog:
    """A log that rolls every few batches and makes a checkpoint every few rounds."""
    log = OffsetsLog(
        root,
        PARTITIONS,
        sync=sync,
        segment_bytes=400,
        flush_interval_ms=1,
        checkpoint_bytes=1500,
        disk=disk,
        threads=threads,
    )
    log.open()
    return log


def append_rounds(root: Path, disk: CrashDisk, sync: SyncPolicy) -> None:
    """Rounds that commit their number to partitions 0 and 1 always, and to 2 every third time."""
    log = open_log(root, disk, sync)
    for number in range(ROUNDS):
        outcomes = append(
            log, [entry(partition, number) for partition in (0, 1, 2) if partition < 2 or number % 3 == 0]
        )
        assert all(outcome.error == 0 for outcome in outcomes)
        disk.answered = number + 1
        if number % 4 == 3:
            offsets_in(log, 0)  # flushes all batches to the partition files
    log.close()


def distinct(snapshots: Sequence[DiskSnapshot]) -> list[DiskSnapshot]:
    """Of snapshots with the same files the one that has most acknowledged rounds: a sync changes no file."""
    newest = {frozenset(snapshot.files.items()): snapshot for snapshot in snapshots}
    return list(newest.values())


def expected_values(partition: int) -> list[int]:
    return [number for number in range(ROUNDS) if partition < 2 or number % 3 == 0]


def check_after_start(snapshot: DiskSnapshot, root: Path, durable: bool = True) -> None:
    """The records after a start are in the order of appends, without a gap, and include all acknowledged ones.

    Not ``durable``: the end may be lost.
    """
    snapshot.restore(root)
    log = open_log(root, LazyDisk(), threads=InlineThreads())
    for partition in range(PARTITIONS):
        actual = offsets_in(log, partition)
        expected = expected_values(partition)
        assert actual == expected[: len(actual)]
        assert not durable or len(actual) >= sum(number < snapshot.answered for number in expected)
    assert log.damages() == []
    outcome = append(log, [entry(0, 99)])[0]
    assert outcome.error == 0
    assert offsets_in(log, 0)[-1] == 99
    log.close()
    shutil.rmtree(root)


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
def test_kill_at_any_change_loses_no_acknowledged_round(tmp_path: Path, sync: SyncPolicy) -> None:
    """The process ends between any two calls, or during a write. The page cache is kept."""
    disk = CrashDisk(tmp_path / "log")
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", disk, sync)
    assert len(disk.snapshots_after_kill) > 80
    for number, snapshot in enumerate(distinct(disk.snapshots_after_kill)):
        check_after_start(snapshot, tmp_path / f"killed-{number}")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_power_loss_at_any_change_loses_no_acknowledged_round(tmp_path: Path, seed: int) -> None:
    """Unsynced data survives in part: some blocks, some names, in any order."""
    disk = CrashDisk(tmp_path / "log", seed)
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", disk, "always")
    for number, snapshot in enumerate(distinct(disk.snapshots_after_power_loss)):
        check_after_start(snapshot, tmp_path / f"dark-{number}")


@pytest.mark.parametrize(("sync", "seed"), [("interval", 0), ("none", 1)])
def test_power_loss_with_unsynced_policies_loses_only_the_end(tmp_path: Path, sync: SyncPolicy, seed: int) -> None:
    """The system writes unsynced data in any order; after a start nothing remains that followed a gap."""
    disk = CrashDisk(tmp_path / "log", seed)
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", disk, sync)
    for number, snapshot in enumerate(distinct(disk.snapshots_after_power_loss)):
        check_after_start(snapshot, tmp_path / f"dark-{number}", durable=False)


@pytest.mark.parametrize("seed", FIRST_OF_FOUR_SEEDS)
def test_second_crash_during_recovery_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Recovery itself is interrupted at every call, after a power loss."""
    first_disk = CrashDisk(tmp_path / "log", seed)
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", first_disk, "always")
    crash_during_recovery(
        [snapshot for snapshot in first_disk.snapshots_after_power_loss if snapshot.answered in (3, 9, ROUNDS)],
        tmp_path,
        seed,
    )


@pytest.mark.parametrize("seed", FIRST_OF_FOUR_SEEDS)
def test_power_loss_during_recovery_after_a_kill_loses_nothing(tmp_path: Path, seed: int) -> None:
    """The new process reads unsynced data from the page cache, and must not treat it as durable."""
    first_disk = CrashDisk(tmp_path / "log", seed)
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", first_disk, "always")
    crash_during_recovery(
        [snapshot for snapshot in first_disk.snapshots_after_kill if snapshot.answered in (4, 8, 12)],
        tmp_path,
        seed,
    )


def crash_during_recovery(snapshots: list[DiskSnapshot], tmp_path: Path, seed: int) -> None:
    """Begin with every sixteenth of the snapshots; each seed takes others."""
    chosen = snapshots[seed * 4 :: 16]
    assert chosen
    for number, snapshot in enumerate(chosen):
        root = tmp_path / f"again-{number}"
        snapshot.restore(root)
        disk = CrashDisk(root, seed, snapshot.synced)
        disk.answered = snapshot.answered
        open_log(root, disk).close()
        for second_number, second_snapshot in enumerate(distinct(disk.snapshots_after_power_loss)):
            check_after_start(second_snapshot, tmp_path / f"again-{number}-{second_number}")


def test_crash_snapshots_cover_all_stages(tmp_path: Path) -> None:
    """In some snapshots only the journal has acknowledged rounds; without these the tests above prove little."""
    disk = CrashDisk(tmp_path / "log", 1)
    (tmp_path / "log").mkdir()
    append_rounds(tmp_path / "log", disk, "always")
    without_journal = []
    for number, snapshot in enumerate(distinct(disk.snapshots_after_power_loss)):
        files = {name: content for name, content in snapshot.files.items() if not name.startswith(journal.FOLDER)}
        try:
            check_after_start(DiskSnapshot(files, snapshot.answered), tmp_path / f"bare-{number}")
        except Exception as error:
            without_journal.append(error)
    assert len(without_journal) > 20
