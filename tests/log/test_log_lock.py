"""Two servers on one data folder: the locks of the folder and of ``.lock``, and their loss."""

from __future__ import annotations

import errno
import shutil
from math import inf
from pathlib import Path
from typing import Any

import pytest
from full_disk_program import commit, committed
from log_failure_helpers import FAILED, ROOT, STORED, LogHarness, new_faulty_disk, offsets_after_crash
from log_helpers import LazyDisk
from log_server_helpers import commit_until_refused
from peers.server import ServerProcess
from peers.wire import Wire
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import file_size
from callboard.runtime.log.folder import FolderLock, lock_folder
from callboard.runtime.log.journal import journal_number
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

LOCK = ROOT / ".lock"


def disk_without_folder_lock(error: int = errno.EBADF) -> FaultyDisk:
    disk = new_faulty_disk()
    disk.faults.fail(Fault("lock", error, str(ROOT), times=inf))
    return disk


def locked_log(disk: FaultyDisk, **options: Any) -> tuple[FolderLock, LogHarness, list[str]]:
    """A log that checks the lock of its folder, and the number of its reports that the lock is lost."""
    reports: list[str] = []
    lock = lock_folder(disk, ROOT)
    return lock, LogHarness(disk, lock=lock, on_lost=lambda: reports.append("lost"), **options), reports


def test_second_lock_after_removal_of_the_lock_file_is_refused() -> None:
    disk = new_faulty_disk()
    lock = lock_folder(disk, ROOT)
    disk.remove(LOCK)
    with pytest.raises(StartError, match="in use by process unknown"):
        lock_folder(disk, ROOT)
    assert disk.names(ROOT) == []
    lock.close()
    lock_folder(disk, ROOT).close()


def test_second_process_after_removal_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    disk = LazyDisk()
    lock = lock_folder(disk, tmp_path)
    (tmp_path / ".lock").unlink()
    with pytest.raises(StartError, match="in use by process unknown"):
        lock_folder(disk, tmp_path)
    lock.close()
    lock_folder(disk, tmp_path).close()


@pytest.mark.parametrize("error", [errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP])
def test_lock_file_alone_locks_where_a_folder_cannot_be_locked(error: int) -> None:
    disk = disk_without_folder_lock(error)
    with capture_logs() as lines:
        lock = lock_folder(disk, ROOT)
    assert not lock.is_folder_locked and "only .lock is locked" in lines[0]["event"]
    with capture_logs(), pytest.raises(StartError, match="in use by process"):
        lock_folder(disk, ROOT)


def test_other_error_of_the_folder_lock_is_raised() -> None:
    with pytest.raises(OSError, match="Input/output error"):
        lock_folder(disk_without_folder_lock(errno.EIO), ROOT)


def test_lock_is_checked_once_a_second_without_commits() -> None:
    disk = new_faulty_disk()
    _, harness, reports = locked_log(disk)
    harness.advance(0.9)
    disk.remove(LOCK)
    assert not harness.log.stats().failure
    with capture_logs() as lines:
        harness.advance(0.2)
    assert reports == ["lost"]
    assert f"{LOCK}: it was removed, moved or replaced" in lines[0]["reason"]
    harness.commit(0)
    assert harness.errors == [FAILED]


def test_lock_is_checked_before_each_new_journal_file() -> None:
    disk = new_faulty_disk()
    _, harness, reports = locked_log(disk, checkpoint_bytes=1)
    harness.commit(0)
    disk.remove(LOCK)
    with capture_logs():
        harness.advance(0.5)
    assert reports == ["lost"]
    assert [journal_number(name) for name in disk.names(ROOT / "journal")] == [0]


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
@pytest.mark.parametrize("is_folder_locked", [True, False])
def test_lost_lock_makes_acknowledged_commits_durable(sync: str, is_folder_locked: bool) -> None:
    for seed in range(5):
        disk = new_faulty_disk(seed) if is_folder_locked else disk_without_folder_lock()
        with capture_logs():
            _, harness, _ = locked_log(disk, sync=sync)
            harness.commit(0, 1)
            harness.commit(0)
            disk.remove(LOCK)
            harness.advance(1.5)
            harness.commit(2)
            assert harness.errors[-1] is FAILED
            assert offsets_after_crash(disk) == harness.stored


def test_partition_files_are_not_written_when_another_server_may_own_the_folder() -> None:
    disk = disk_without_folder_lock()
    with capture_logs():
        _, harness, _ = locked_log(disk)
        harness.commit(0)
        disk.remove(LOCK)
        other_lock = lock_folder(disk, ROOT)
        harness.advance(1.5)
        harness.log.close()
    assert disk.names(ROOT) == [".lock", "journal"]
    other_lock.close()
    assert offsets_after_crash(disk) == harness.stored


def test_folder_on_full_disk_is_locked() -> None:
    disk = new_faulty_disk()
    lock_folder(disk, ROOT).close()
    disk.capacity_bytes = 0
    lock_folder(disk, ROOT).close()
    assert file_size(disk, LOCK) == 0


def test_server_with_deleted_lock_file_stops_and_no_second_one_starts(tmp_path: Path) -> None:
    second_folder = tmp_path / "second"
    second_folder.mkdir()
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        second_server = ServerProcess(second_folder, options=("--topic", "t:1"))
        second_server.data = server.data
        with Wire(server.host, server.port) as client:
            assert commit(client, 1) == "NONE"
            (server.data / ".lock").unlink()
            last_acknowledged = commit_until_refused(client, 2)
        assert server.wait() == 3
        assert "another server may start in this folder, so this one stops" in server.log()
        with second_server, Wire(second_server.host, second_server.port) as client:
            assert committed(client) >= last_acknowledged
            with pytest.raises(AssertionError, match="ended with 2"):
                server.start()
            assert "in use by process" in server.log()


@pytest.mark.parametrize("is_recreated", [False, True])
def test_server_with_deleted_folder_stops_and_writes_nothing(tmp_path: Path, is_recreated: bool) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        with Wire(server.host, server.port) as client:
            assert commit(client, 1) == "NONE"
            shutil.rmtree(server.data, ignore_errors=True)
            if is_recreated:
                server.data.mkdir(exist_ok=True)
            commit_until_refused(client, 2)
        assert server.wait() == 3
        remaining_files = list(server.data.rglob("*.log")) if server.data.exists() else []
        assert remaining_files == []


def test_error_of_the_lock_check_counts_as_loss() -> None:
    disk = new_faulty_disk()
    _, harness, reports = locked_log(disk)
    harness.commit(0)
    disk.faults.fail(Fault("is_named", errno.EIO, str(LOCK), times=1))
    with capture_logs():
        harness.advance(1.5)
    assert (reports, harness.errors) == (["lost"], [STORED])
    assert "Input/output error" in harness.log.stats().failure
    assert offsets_after_crash(disk) == harness.stored
