"""The files of the flight recorder: bounded, whole lines only, and no harm from a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from recorder.samples import record

from callboard import Coordinator, StartError
from callboard.actors.recorder.record import as_json
from callboard.runtime.cli.groups.explain import read_explanation
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.engine.clock import SystemClock
from callboard.runtime.node.event_files import EventFiles, read_records
from callboard.runtime.node.record_writer import WAITING_MAX, RecordWriter

DAY_MS = 86_400_000
LINE_BYTES = len(json.dumps(as_json(record()), separators=(",", ":"))) + 1


class Limits(NamedTuple):
    events_retention_bytes: int = 16 * 3 * LINE_BYTES
    events_retention_ms: int = 7 * DAY_MS


def skipped_nothing(path: Path, found: str) -> None:
    raise AssertionError(f"{path}: {found}")


def numbers(folder: Path, group: str = "orders") -> list[int]:
    """The records in the files, oldest first."""
    return [each.generation for each in read_records(folder, group, skipped_nothing)][::-1]


def test_records_are_appended_to_segments_and_read_back(tmp_path: Path) -> None:
    files = EventFiles(Disk(), tmp_path, Limits())
    records = [record()._replace(generation=number) for number in range(8)]
    for each in records:
        files.append([each], 1000)
    files.append([record()._replace(group_id="other", generation=99)], 1001)
    names = sorted(path.name for path in (tmp_path / "events").iterdir())
    assert names == [f"{number:020}.jsonl" for number in (1000, 1001, 1002)]  # three lines each
    assert list(read_records(tmp_path, "orders", skipped_nothing)) == records[::-1]
    assert numbers(tmp_path, "other") == [99]
    assert numbers(tmp_path, "absent") == []
    assert (tmp_path / "events" / names[0]).stat().st_mode & 0o777 == 0o600


def test_oldest_segments_are_deleted_at_the_limits(tmp_path: Path) -> None:
    files = EventFiles(Disk(), tmp_path, Limits())
    for number in range(100):
        files.append([record()._replace(generation=number % 10)], 1000 + number)
    size = sum(path.stat().st_size for path in (tmp_path / "events").iterdir())
    assert 40 * LINE_BYTES < size <= 48 * LINE_BYTES
    files.append([record()._replace(generation=7)], 8 * DAY_MS)
    assert numbers(tmp_path) == [9, 7]  # the last segment ended just now
    files.append([record()._replace(generation=8)], 16 * DAY_MS)
    files.append([record()._replace(generation=9)], 24 * DAY_MS)
    assert numbers(tmp_path) == [8, 9]


def test_damaged_lines_and_other_files_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    files = EventFiles(Disk(), tmp_path, Limits())
    files.append([record()._replace(generation=1)], 5)
    path = folder / f"{5:020}.jsonl"
    with path.open("ab") as file:
        file.write(b'{"group_id":"orders"}\n[1]\n\xff\xfe\nnull\n' + b'{"group_id":"orders","generation"')
    (folder / "notes.txt").write_text("mine")
    files.append([record()._replace(generation=2)], 6)
    assert numbers(tmp_path) == [1, 2]
    assert (folder / "notes.txt").exists()


class FailingDisk(Disk):
    is_full = True

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        if self.is_full and position:
            raise OSError(errno.ENOSPC, "no space")
        return super().write(fd, data[:3] if self.is_full else data, position)


class Timers:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def later(self, _delay_ms: int, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def fire(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def writer(disk: Disk, folder: Path, timers: Timers, **given: Any) -> RecordWriter:
    limits = given.pop("limits", Limits())
    sink, may_write = EventFiles(disk, folder, limits), given.pop("may_write", lambda: True)
    return RecordWriter(sink, InlineFileWork(), SystemClock(), timers.later, limits, may_write)


@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder"])
def test_what_is_no_file_is_left_out(tmp_path: Path, kind: str) -> None:
    """To open a FIFO, or to read it, would take for ever."""
    folder = tmp_path / "events"
    files = EventFiles(Disk(), tmp_path, Limits())
    files.append([record()._replace(generation=1)], 5)
    intruder = folder / f"{7:020}.jsonl"
    make_no_file(intruder, kind)
    files.append([record()._replace(generation=2)], 6)
    found: list[tuple[Path, str]] = []
    read = list(read_records(tmp_path, "orders", lambda *skipped: found.append(skipped)))
    assert ([each.generation for each in read], found) == ([2, 1], [(intruder, f"a {kind}")])


def make_no_file(path: Path, kind: str) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)  # to bind takes a path of at most 107 bytes
    else:
        path.mkdir()


def test_full_disk_loses_records_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk, timers = FailingDisk(), Timers()
    records = writer(disk, tmp_path, timers)
    for number in range(3):
        records.add(record()._replace(generation=number))
        timers.fire()
    assert [line.levelname for line in caplog.records if "rebalances" in str(line.msg)] == ["WARNING"]
    assert [path.stat().st_size for path in (tmp_path / "events").iterdir()] == [0]
    disk.is_full = False
    records.add(record()._replace(generation=3))
    records.add(record()._replace(generation=4))
    timers.fire()
    assert numbers(tmp_path) == [3, 4]


def test_folder_that_is_a_file_or_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("mine")
    timers = Timers()
    records = writer(Disk(), tmp_path, timers)
    records.add(record())
    timers.fire()
    assert (tmp_path / "events").read_text() == "mine"
    other = writer(Disk(), tmp_path / "other", timers, may_write=lambda: False)
    other.add(record())
    timers.fire()
    assert not (tmp_path / "other").exists()


def test_records_that_wait_are_bounded_and_may_be_turned_off(tmp_path: Path) -> None:
    timers = Timers()
    records = writer(Disk(), tmp_path, timers, limits=Limits(10**9))
    for number in range(WAITING_MAX + 5):
        records.add(record()._replace(generation=number))
    assert len(timers.waiting) == 1
    timers.fire()
    assert numbers(tmp_path)[-1] == WAITING_MAX - 1
    silent = writer(Disk(), tmp_path / "off", timers, limits=Limits(0))
    silent.add(record())
    timers.fire()
    assert not (tmp_path / "off").exists()


async def rebalance(data: Path) -> None:
    async with (
        asyncio.timeout(30),
        Coordinator(data, None, group_initial_rebalance_delay_ms=0) as coordinator,
        coordinator.member("jobs", resources={"orders": 4}) as member,
    ):
        await anext(aiter(member.assignments()))


def test_coordinator_writes_its_records_before_it_stops(tmp_path: Path) -> None:
    asyncio.run(rebalance(tmp_path))
    explanation = read_explanation("jobs", tmp_path, 10)
    assert explanation.sentence.startswith("Became empty at ")
    assert [each.outcome for each in explanation.rebalances] == ["empty", "stable"]
    with pytest.raises(StartError, match="no rebalance of group 'absent' is recorded in"):
        read_explanation("absent", tmp_path, 10)
    asyncio.run(rebalance(tmp_path))
    assert len(read_explanation("jobs", tmp_path, 10).rebalances) == 4
