"""``callboard log dump --follow``: records that are written while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_helpers import CommandResult, command
from log_helpers import offset
from partition_helpers import plain

from callboard.runtime.cli.log import commands, follow
from callboard.runtime.cli.log.scan import LoggedRecord, LogPartition
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.partition import TOPIC, folder_name
from callboard.runtime.log.reading.segment import segment_name


class Partition:
    """The files of partition 3, which grow."""

    def __init__(self, data: Path) -> None:
        self.folder = data / folder_name(3)
        self.folder.mkdir(parents=True, exist_ok=True)

    def append(self, data: bytes, base: int = 0) -> None:
        with (self.folder / segment_name(base)).open("ab") as file:
            file.write(data)


def follower(partition: Partition, disk: Disk | None = None) -> follow.PartitionFollower:
    return follow.PartitionFollower(LogPartition(TOPIC, 3, partition.folder), disk or Disk())


def new_offsets(following: follow.PartitionFollower) -> list[int]:
    items = list(following.new_items())
    assert all(isinstance(item, LoggedRecord) for item in items), items
    return [item.offset for item in items if isinstance(item, LoggedRecord)]


def test_follower_returns_each_record_once_also_over_new_files(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.append(plain(0, offset("g", 1), offset("g", 2)))
    following = follower(partition)
    assert (new_offsets(following), new_offsets(following)) == ([0, 1], [])
    partition.append(plain(2, offset("g", 3)))
    partition.append(plain(3, offset("g", 4)), base=3)
    assert (new_offsets(following), new_offsets(following)) == ([2, 3], [])
    partition.append(plain(4, offset("g", 5)), base=3)
    assert new_offsets(following) == [4]


def test_follower_waits_for_the_rest_of_a_batch_that_is_being_written(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    whole = plain(1, offset("g", 2))
    partition.append(plain(0, offset("g", 1)) + whole[:40])
    following = follower(partition)
    assert (new_offsets(following), new_offsets(following)) == ([0], [])
    partition.append(whole[40:])
    assert new_offsets(following) == [1]


def test_follower_reads_only_new_bytes(tmp_path: Path) -> None:
    class CountingDisk(Disk):
        read_bytes = 0

        def read(self, fd: int, size: int, position: int) -> bytes:
            data = super().read(fd, size, position)
            self.read_bytes += len(data)
            return data

    partition, disk = Partition(tmp_path), CountingDisk()
    partition.append(b"".join(plain(base, offset("g", base)) for base in range(1000)))
    following = follower(partition, disk)
    assert len(new_offsets(following)) == 1000
    disk.read_bytes = 0
    last = plain(1000, offset("g", 1000))
    partition.append(last)
    assert new_offsets(following) == [1000]
    assert disk.read_bytes <= 2 * len(last)


def test_follower_reports_damage_between_records_once(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    damaged = bytearray(plain(1, offset("g", 2)))
    damaged[-1] ^= 1
    partition.append(plain(0, offset("g", 1)) + damaged)
    following = follower(partition)
    assert new_offsets(following) == [0]
    partition.append(plain(2, offset("g", 3)))
    [damage, record] = following.new_items()
    assert "checksum" in str(damage)
    assert isinstance(record, LoggedRecord)
    assert record.offset == 2
    assert new_offsets(following) == []


@pytest.fixture
def dump_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., CommandResult]:
    """Run ``log dump --follow``. Each wait takes one of the changes; the command is interrupted after the last one."""

    def run(changes: list[Callable[[], object]], *options: str) -> CommandResult:
        def wait(_seconds: float) -> None:
            if not changes:
                raise KeyboardInterrupt
            changes.pop(0)()

        monkeypatch.setattr(follow, "time", SimpleNamespace(sleep=wait))  # other threads sleep as usual
        return command(commands.main, capsys)("dump", "--data", tmp_path, "--follow", *options)

    return run


def test_dump_follow_shows_old_and_new_records_of_a_group_until_ctrl_c(
    tmp_path: Path, dump_while: Callable[..., CommandResult]
) -> None:
    DataFolder(tmp_path).close()
    partition = Partition(tmp_path)
    partition.append(plain(0, offset("g", 1), offset("h", 1)))
    changes = [lambda: None, lambda: partition.append(plain(2, offset("h", 2), offset("g", 2)))]
    shown = dump_while(changes, "--group", "g", "--json")
    assert (shown.code, shown.err) == (0, "")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(row["log_offset"], row["offset"]) for row in rows] == [(0, 1), (3, 2)]


def test_dump_follow_finds_partitions_that_are_created_later(
    tmp_path: Path, dump_while: Callable[..., CommandResult]
) -> None:
    DataFolder(tmp_path).close()
    shown = dump_while([lambda: Partition(tmp_path).append(plain(0, offset("g", 7)))])
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[1].endswith("g t-0 = 7")
