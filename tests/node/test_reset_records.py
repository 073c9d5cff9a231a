"""The records of resets in a data folder: which are kept, and which are found."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from zlib import crc32

import pytest

from callboard.runtime.disk.disk import Disk, replace_file
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.node import reset_records
from callboard.runtime.node.reset_records import FOLDER, RemovedMember, ResetPartition, ResetRecord, ResetRecords

DATA = Path("/data")


def record(number: int, group: str = "g", partitions: int = 1) -> ResetRecord:
    return ResetRecord(
        f"{number:08}-0000-4000-8000-000000000000",
        group,
        1_800_000_000_000 + number,
        "User:ann",
        "why",
        tuple(ResetPartition("jobs", partition, None, number) for partition in range(partitions)),
        (RemovedMember("a-1", None, "a\ud800", "/10.0.0.1"),),
        {"jobs": "00" * 16},
    )


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(DATA)
    return disk


@pytest.fixture
def records(disk: MemoryDisk) -> ResetRecords:
    return ResetRecords(disk, DATA, InlineFileWork())


def test_record_is_found_as_it_was_kept(records: ResetRecords) -> None:
    async def check() -> None:
        assert await records.find(record(1).change_id) is None
        await records.keep(record(1))
        assert await records.find(record(1).change_id) == record(1)
        assert await records.find("..") is None

    asyncio.run(check())


def test_records_of_a_group_are_listed_newest_first(records: ResetRecords, disk: MemoryDisk) -> None:
    async def check() -> None:
        for number, group in ((2, "g"), (1, "g"), (3, "other"), (4, "a\ud800")):
            await records.keep(record(number, group))
        replace_file(disk, DATA / FOLDER / f"{5:020}-{'0' * 8}-{'0' * 36}.json", b"{}")  # damaged
        replace_file(disk, DATA / FOLDER / "notes.txt", b"mine")
        assert await records.of_group("g") == [record(2), record(1)]
        assert await records.of_group("a\ud800") == [record(4, "a\ud800")]
        assert await records.of_group("none") == []
        assert await records.find("0" * 36) is None

    asyncio.run(check())


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    """A FIFO with the name of a record, which nobody writes to."""
    records = ResetRecords(Disk(), tmp_path, InlineFileWork())
    (tmp_path / FOLDER).mkdir()
    os.mkfifo(tmp_path / FOLDER / f"{5:020}-{crc32(b'g'):08x}-{'0' * 36}.json")
    asyncio.run(records.keep(record(1)))
    assert asyncio.run(records.of_group("g")) == [record(1)]


def test_oldest_records_are_deleted(records: ResetRecords, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        monkeypatch.setattr(reset_records, "RECORDS_MAX", 3)
        for number in range(5):
            await records.keep(record(number))
        assert [each.made_ms % 10 for each in await records.of_group("g")] == [4, 3, 2]
        monkeypatch.setattr(reset_records, "BYTES_MAX", 5000)
        await records.keep(record(5, partitions=1000))
        assert [each.made_ms % 10 for each in await records.of_group("g")] == [5, 4, 3]
        await records.keep(record(6))  # the large one is over the limit by itself
        assert [each.made_ms % 10 for each in await records.of_group("g")] == [6]
        assert len(disk.names(DATA / FOLDER)) == 1

    asyncio.run(check())
