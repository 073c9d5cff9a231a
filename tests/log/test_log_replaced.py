"""A partition is compacted without a grace period while it is read, so that listed files are replaced.

Compacted files replace old files of the same name before the others are removed. A reader that listed the old ones
reads both, which do not match. That is not damage: the reader must list the files again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import FOLDER, START_MS, BatchSpec, RecordSpec, write_files

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction import publish as publishing
from callboard.runtime.log.compaction.publish import publish
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.errors import Damage
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.manifest import LogFiles, log_files
from callboard.runtime.log.reading import newest, newest_transactions
from callboard.runtime.log.reading import partition_reader as reading
from callboard.runtime.log.reading.newest import load_partition
from callboard.runtime.log.reading.newest_transactions import load_transactions_partition
from callboard.runtime.testing.disk.faulty import FaultyDisk

NOW_MS = START_MS + 1_000_000
SETTINGS = CompactionSettings(NOW_MS, "test", -1.0, delete_retention_ms=0)
KEYS, FILES = 3, 6


def commit_of(number: int) -> BatchSpec:
    key, value = encode(OffsetRecord("g", "t", number % KEYS, OffsetValue(number, -1, "", START_MS, -1)))
    return BatchSpec((RecordSpec(key, value),))


def group_id_of(number: int) -> str:
    return f"{number:08x}"


def compact_and_publish(disk: Disk, monkeypatch: pytest.MonkeyPatch, *, removes_old: bool) -> None:
    """Compact, and replace old files by new ones of the same names. ``removes_old``: remove the others, too."""
    if not removes_old:
        monkeypatch.setattr(publishing, "_remove_covered", lambda *_: 0)
    assert compact(disk, FOLDER, SETTINGS, lambda: NOW_MS, lambda: group_id_of(1)) is not None
    publish(disk, FOLDER, NOW_MS, 0, lambda: group_id_of(2))


def list_old_files_first(module: Any, old_files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> list[LogFiles]:
    """Make ``module`` list the old files at first; returns the lists that were not used yet."""
    lists = [old_files]

    def files(disk: Disk, folder: Path) -> LogFiles:
        return lists.pop() if lists else log_files(disk, folder)

    monkeypatch.setattr(module, "log_files", files)
    return lists


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    write_files(disk, [[commit_of(KEYS * file + key) for key in range(KEYS)] for file in range(FILES)])
    return disk


@pytest.mark.parametrize("removes_old", [False, True])
def test_loading_during_compaction_reports_no_damage(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, removes_old: bool
) -> None:
    old_files, loaded_before = log_files(disk, FOLDER), load_partition(FOLDER, disk)
    compact_and_publish(disk, monkeypatch, removes_old=removes_old)
    unused_lists = list_old_files_first(newest, old_files, monkeypatch)
    loaded = load_partition(FOLDER, disk)
    assert (unused_lists, loaded.damages) == ([], [])
    assert loaded.packed_groups == loaded_before.packed_groups
    assert loaded.records < loaded_before.records


@pytest.mark.parametrize("removes_old", [False, True])
def test_loading_transactional_ids_during_compaction_reports_no_damage(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, removes_old: bool
) -> None:
    old_files = log_files(disk, FOLDER)
    compact_and_publish(disk, monkeypatch, removes_old=removes_old)
    unused_lists = list_old_files_first(newest_transactions, old_files, monkeypatch)
    assert (load_transactions_partition(FOLDER, disk).damages, unused_lists) == ([], [])


def test_read_during_compaction_raises_to_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, folder = Disk(), tmp_path / FOLDER.name
    write_files(disk, [[commit_of(KEYS * file + key) for key in range(KEYS)] for file in range(FILES)], folder)
    old_files, offsets_before = log_files(disk, folder), reading.live_offsets(folder)
    monkeypatch.setattr(publishing, "_remove_covered", lambda *_: 0)
    assert compact(disk, folder, SETTINGS, lambda: NOW_MS, lambda: group_id_of(1)) is not None
    publish(disk, folder, NOW_MS, 0, lambda: group_id_of(2))
    damages: list[Damage] = []
    unused_lists = list_old_files_first(reading, old_files, monkeypatch)
    assert reading.live_offsets(folder, damages.append) == offsets_before
    assert (unused_lists, damages) == ([], [])


def test_replaced_file_is_not_read_at_positions_of_the_old_one(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is opened for the check and, if that fails, again for the details."""
    paths = [file.path for file in log_files(disk, FOLDER).files]
    opened: dict[Path, int] = {}
    open_file: Callable[[Path, int], int] = disk.open

    def replaced_in_between(path: Path, flags: int) -> int:
        opened[path] = opened.get(path, 0) + 1
        if path == paths[0] and opened[path] == 2:
            compact_and_publish(disk, monkeypatch, removes_old=False)
        return open_file(path, flags)

    loaded_before = load_partition(FOLDER, disk)
    monkeypatch.setattr(disk, "open", replaced_in_between)
    files = log_files(disk, FOLDER).files  # without the files in between, there seems to be a gap
    unused_lists = list_old_files_first(
        newest, LogFiles(log_files(disk, FOLDER).manifest, (files[0], files[-1])), monkeypatch
    )
    loaded = load_partition(FOLDER, disk)
    assert (unused_lists, loaded.damages, loaded.packed_groups) == ([], [], loaded_before.packed_groups)
