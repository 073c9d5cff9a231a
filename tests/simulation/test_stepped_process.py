"""Tests of stepped processes: one disk operation at a time, and a kill between any two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.runtime.disk.disk import Disk, read_file, replace_file
from callboard.runtime.testing.disk.faulty import FaultyDisk, PowerLoss
from callboard.runtime.testing.simulation.stepped_process import SteppedProcess

FOLDER = Path("/data")
PATH = FOLDER / "lock"


def make_disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_folder(FOLDER)
    return disk


def write(disk: Disk) -> None:
    replace_file(disk, FOLDER / "name", b"content")


def lock(disk: Disk) -> None:
    fd = disk.open(PATH, os.O_RDWR | os.O_CREAT)
    try:
        disk.lock(fd)
        disk.names(FOLDER)
        disk.names(FOLDER)
    finally:
        disk.close(fd)


def lock_here(disk: FaultyDisk) -> None:
    fd = disk.open(PATH, os.O_RDWR | os.O_CREAT)
    disk.lock(fd)
    disk.close(fd)


def test_step_makes_changes_visible_one_by_one() -> None:
    disk, listings = make_disk(), []
    process = SteppedProcess(disk, write)
    while process.step():
        listings.append(disk.names(FOLDER))
    assert [] in listings and ["name.new"] in listings and listings[-1] == ["name"]
    assert read_file(disk, FOLDER / "name") == b"content"


def test_killed_process_releases_locks_and_stops() -> None:
    disk = make_disk()
    process = SteppedProcess(disk, lock)
    for _ in range(3):
        assert process.step()
    with pytest.raises(BlockingIOError):
        lock_here(disk)
    process.kill()
    changes = disk.faults.changes
    lock_here(disk)
    assert process.has_ended and disk.faults.changes == changes


def test_process_keeps_files_and_locks_when_coordinator_is_killed() -> None:
    disk = make_disk()
    process = SteppedProcess(disk, lock)
    for _ in range(3):
        process.step()
    disk_after_kill = disk.kill(process.disk.fds)
    process.disk.inner = disk_after_kill
    with pytest.raises(BlockingIOError):
        lock_here(disk_after_kill)
    while process.step():
        pass
    lock_here(disk_after_kill)


def test_step_after_power_loss_raises_power_loss() -> None:
    disk = make_disk()
    process = SteppedProcess(disk, write)
    process.step()
    disk.crash()
    with pytest.raises(PowerLoss):
        while process.step():
            pass
    assert process.has_ended


def test_step_raises_error_of_work() -> None:
    process = SteppedProcess(make_disk(), lambda disk: read_file(disk, FOLDER / "nothing"))
    assert process.step()
    with pytest.raises(FileNotFoundError):
        process.step()
