"""A process beside a simulated coordinator: one operation of its disk at a time, and it may die between any two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.runtime.disk.disk import Disk, read_file, replace_file
from callboard.runtime.disk.faulty import FaultyDisk, PowerLoss
from callboard.runtime.testing.simulation.beside import Beside

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


def test_between_two_steps_others_see_what_is_done_so_far() -> None:
    disk, seen = make_disk(), []
    one = Beside(disk, write)
    while one.step():
        seen.append(disk.names(FOLDER))
    assert [] in seen and ["name.new"] in seen and seen[-1] == ["name"]
    assert read_file(disk, FOLDER / "name") == b"content"


def test_who_is_killed_holds_no_lock_and_does_nothing_any_more() -> None:
    disk = make_disk()
    one = Beside(disk, lock)
    for _ in range(3):
        assert one.step()
    with pytest.raises(BlockingIOError):
        lock_here(disk)
    one.kill()
    changes = disk.changes
    lock_here(disk)
    assert one.is_over and disk.changes == changes


def test_it_outlives_a_process_that_is_killed_with_its_files_and_locks() -> None:
    disk = make_disk()
    one = Beside(disk, lock)
    for _ in range(3):
        one.step()
    found = disk.kill(one.disk.fds)
    one.disk.inner = found
    with pytest.raises(BlockingIOError):
        lock_here(found)
    while one.step():
        pass
    lock_here(found)


def test_it_ends_with_the_power() -> None:
    disk = make_disk()
    one = Beside(disk, write)
    one.step()
    disk.crash()
    with pytest.raises(PowerLoss):
        while one.step():
            pass
    assert one.is_over


def test_its_errors_are_those_of_the_step() -> None:
    one = Beside(make_disk(), lambda disk: read_file(disk, FOLDER / "nothing"))
    assert one.step()
    with pytest.raises(FileNotFoundError):
        one.step()
