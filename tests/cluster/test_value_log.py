"""The value logs of a local store: power losses, processes that died, failed syncs, files that are moved."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callboard.runtime.cluster.engines import value_log
from callboard.runtime.cluster.engines.value_log import ValueLog
from callboard.runtime.disk.disk import Disk
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk, PowerLoss

FOLDER = Path("/data/cluster/wal/s1")
SEEDS = range(8)
NAMES = [f"{number:010d}" for number in range(5)]


def made_disk(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    disk.make_folder(FOLDER)
    for folder in (FOLDER, *FOLDER.parents):
        disk.sync_folder(folder)
    return disk


def value_of(name: str) -> bytes:
    return name.encode() * 40


def create(log: ValueLog, _disk: FaultyDisk, name: str) -> None:
    assert log.create(name, value_of(name))


def create_in_parts(log: ValueLog, disk: FaultyDisk, name: str) -> None:
    """The caller syncs, where that is possible: not the first value of a file."""
    begun = log.begin_create(name, value_of(name))
    assert (begun is None) == (name == NAMES[0])
    if begun is None:
        create(log, disk, name)
    else:
        disk.sync(begun.fd)
        begun.end(None)


Way = Callable[[ValueLog, FaultyDisk, str], None]
WAYS = pytest.mark.parametrize("way", [create, create_in_parts])


def create_all(log: ValueLog, disk: FaultyDisk, way: Way = create) -> list[str]:
    """The names of the values whose creation was answered before a power loss."""
    answered = []
    try:
        for name in NAMES:
            way(log, disk, name)
            answered.append(name)
    except PowerLoss:
        pass
    return answered


def changes_of_all(seed: int, way: Way) -> int:
    disk = made_disk(seed)
    before = disk.faults.changes
    create_all(ValueLog(FOLDER, disk), disk, way)
    return disk.faults.changes - before


@WAYS
@pytest.mark.parametrize("seed", SEEDS)
def test_answered_value_survives_a_power_loss_and_an_unanswered_one_is_whole_or_absent(seed: int, way: Way) -> None:
    for change in range(1, changes_of_all(seed, way) + 1):
        disk = made_disk(seed)
        disk.faults.crash_at(change)
        answered = create_all(ValueLog(FOLDER, disk), disk, way)
        after = ValueLog(FOLDER, disk.crash())
        found = dict(zip(NAMES, after.get(NAMES), strict=True))
        assert all(value in (None, value_of(name)) for name, value in found.items())
        assert all(found[name] is not None for name in answered), change
        assert [name for name in NAMES if after.create(name, value_of(name))] == [n for n in NAMES if found[n] is None]
        assert after.get(NAMES) == [value_of(name) for name in NAMES]


@WAYS
@pytest.mark.parametrize("seed", SEEDS)
def test_log_goes_on_after_a_process_has_died_in_the_middle_of_a_change(seed: int, way: Way) -> None:
    for change in range(1, changes_of_all(seed, way) + 1):
        disk = made_disk(seed)
        disk.faults.crash_at(change)
        answered = create_all(ValueLog(FOLDER, disk), disk, way)
        after = ValueLog(FOLDER, disk.kill())
        found = dict(zip(NAMES, after.get(NAMES), strict=True))
        assert all(found[name] == value_of(name) for name in answered)
        for name in NAMES:
            after.create(name, b"other")
        assert after.get(NAMES) == [found[name] or b"other" for name in NAMES]


def test_value_whose_sync_failed_is_not_read_by_anybody() -> None:
    """After the error the system takes the pages for written, so another sync would prove nothing."""
    disk = made_disk()
    log = ValueLog(FOLDER, disk)
    log.create(NAMES[0], value_of(NAMES[0]))
    disk.faults.fail(Fault("sync", errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log.create(NAMES[1], value_of(NAMES[1]))
    assert log.get([NAMES[1]]) == ValueLog(FOLDER, disk).get([NAMES[1]]) == [None]
    assert log.create(NAMES[1], value_of(NAMES[1]))
    assert ValueLog(FOLDER, disk.crash()).get(NAMES[:2]) == [value_of(name) for name in NAMES[:2]]


def test_value_whose_sync_by_the_caller_failed_is_not_read_by_anybody() -> None:
    disk = made_disk()
    log = ValueLog(FOLDER, disk)
    log.create(NAMES[0], value_of(NAMES[0]))
    begun = log.begin_create(NAMES[1], value_of(NAMES[1]))
    assert begun is not None
    begun.end(OSError(errno.EIO, "Input/output error"))
    assert log.get([NAMES[1]]) == ValueLog(FOLDER, disk).get([NAMES[1]]) == [None]
    assert log.begin_create(NAMES[1], b"") is None, "the file has no allocated space any more"
    assert log.create(NAMES[1], value_of(NAMES[1]))
    assert ValueLog(FOLDER, disk.crash()).get(NAMES[:2]) == [value_of(name) for name in NAMES[:2]]


def test_value_that_is_being_created_is_seen_by_nobody_and_nobody_changes_the_file_meanwhile(tmp_path: Path) -> None:
    log, other = ValueLog(tmp_path, Disk()), ValueLog(tmp_path, Disk())
    log.create(NAMES[0], b"value")
    begun = log.begin_create(NAMES[1], b"value")
    assert begun is not None
    assert log.begin_create(NAMES[2], b"value") is None
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(each.get, NAMES[:2]) for each in (log, other)]
        won = threads.submit(other.create, NAMES[1], b"other")
        assert not won.done()
        assert not any(future.done() for future in found)
        begun.end(None)
        assert [future.result() for future in found] == [[b"value", b"value"]] * 2
        assert won.result() is False
    assert log.begin_create(NAMES[1], b"again") is None
    assert other.create(NAMES[2], b"other")
    assert log.begin_create(NAMES[3], b"value") is None, "another process has changed the file"
    assert log.create(NAMES[3], b"value")
    assert log.begin_create(NAMES[4], bytes(value_log.SHORT_BYTES)) is None, "writing it takes long"
    log.close()
    assert log.begin_create(NAMES[4], b"value") is None
    other.close()


def test_log_whose_failed_value_cannot_be_removed_is_not_used_any_more() -> None:
    disk = made_disk()
    log = ValueLog(FOLDER, disk)
    log.create(NAMES[0], value_of(NAMES[0]))
    disk.faults.fail(Fault("sync", errno.EIO))
    disk.faults.fail(Fault("truncate", errno.EIO))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.create(NAMES[1], value_of(NAMES[1]))


def test_processes_see_the_values_of_each_other_and_each_name_is_created_once() -> None:
    disk = made_disk()
    logs = [ValueLog(FOLDER, disk) for _ in range(3)]
    for number, name in enumerate(NAMES):
        wins = [log.create(name, str(place).encode()) for place, log in enumerate(logs[number % 3 :] + logs)]
        assert wins == [True] + [False] * (len(wins) - 1)
        assert all(log.get([name]) == [b"0"] for log in logs)


def test_deleted_values_are_gone_for_all_and_their_space_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_log, "DELETED_BYTES_MAX", 2_000)
    disk = made_disk()
    log, other = ValueLog(FOLDER, disk), ValueLog(FOLDER, disk)
    for number in range(100):
        name = f"{number:010d}"
        log.create(name, value_of(name))
        assert other.get([name]) == [value_of(name)]
        log.delete([f"{number - 1:010d}"])
    assert other.names() == log.names() == ["0000000099"]
    assert log.create("0000000001", b"again")
    assert len(disk.names(FOLDER)) == 2, "the lock and one file"
    assert disk.used_bytes() < 20_000
    assert ValueLog(FOLDER, disk.crash()).get(["0000000099", "0000000001"]) == [value_of("0000000099"), b"again"]


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_while_the_values_are_moved_loses_none(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_log, "DELETED_BYTES_MAX", 100)
    disk = made_disk(seed)
    log = ValueLog(FOLDER, disk)
    create_all(log, disk)
    before = disk.faults.changes
    log.delete(NAMES[:-1])
    for change in range(1, disk.faults.changes - before + 1):
        disk = made_disk(seed)
        log = ValueLog(FOLDER, disk)
        create_all(log, disk)
        disk.faults.crash_at(change)
        with pytest.raises(PowerLoss):
            log.delete(NAMES[:-1])
        after = ValueLog(FOLDER, disk.crash())
        assert after.get(NAMES[-1:]) == [value_of(NAMES[-1])]
        assert after.create("other", b"x")
        assert after.get([NAMES[-1], "other"]) == [value_of(NAMES[-1]), b"x"]
