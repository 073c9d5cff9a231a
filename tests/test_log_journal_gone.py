"""Journal files or partition folders that are deleted while the log is open: what was acknowledged stays."""

from __future__ import annotations

import errno
import os
import shutil
from math import inf
from pathlib import Path

import pytest
from full_disk_program import commit, committed
from log_helpers import LazyDisk
from peers.server import ServerProcess
from peers.wire import Wire
from structlog.testing import capture_logs
from test_log_failures import NEVER, PARTITIONS, ROOT, STORED, Desk, after_crash, events, new_disk
from test_log_folder_gone import commit_until_refused

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.faulty import Fault, FaultyDisk
from callboard.runtime.disk.threads import Inline
from callboard.runtime.log.offsets_log import OffsetsLog

JOURNAL = ROOT / "journal"


def delete_journal(disk: FaultyDisk) -> None:
    for name in disk.names(JOURNAL):
        disk.remove(JOURNAL / name)
    disk.sync_folder(JOURNAL)


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_commits_survive_deleted_journal_files(sync: str, seed: int) -> None:
    disk = new_disk(seed)
    desk = Desk(disk, sync=sync)
    desk.commit(0, 1)
    desk.later()
    desk.commit(0, 2)
    delete_journal(disk)
    desk.commit(0, 1)
    with capture_logs() as lines:
        desk.later()
        desk.commit(0)
        assert desk.errors == [STORED] * 3 + [NEVER]
        assert after_crash(disk) == desk.stored
    assert events(lines)[0] == "the log has failed"


@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_commits_in_jobs_survive_deleted_journal_files(seed: int) -> None:
    """Some wait in memory, some in a job that was handed out and has not begun."""
    disk = new_disk(seed)
    picks = iter([0] * 6)
    desk = Desk(disk, Inline(lambda n: next(picks, n - 1)))
    for _ in range(6):
        desk.commit(0, 1)
    for _ in range(3):
        desk.threads.step()
    desk.now_s += 1
    desk.threads.step()
    delete_journal(disk)
    with capture_logs():
        desk.later()
        desk.commit(2)
        desk.later()
        assert NEVER in desk.errors
        assert after_crash(disk) == desk.stored


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
@pytest.mark.parametrize("is_written_to_again", [True, False])
def test_acknowledged_commits_survive_a_journal_file_that_is_cut(sync: str, is_written_to_again: bool) -> None:
    disk = new_disk()
    desk = Desk(disk, sync=sync)
    desk.commit(0, 1)
    fd = disk.open(next(JOURNAL / name for name in disk.names(JOURNAL)), os.O_RDWR)
    disk.truncate(fd, 0)
    disk.close(fd)
    if is_written_to_again:
        desk.commit(0, 2)
    with capture_logs() as lines:
        desk.later()
        desk.commit(0)
        assert desk.errors[-1] == NEVER
        assert after_crash(disk) == desk.stored
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["the log has failed"]
    assert "it was truncated while the log was open, found" in lines[0]["reason"]


def test_partitions_hold_everything_when_the_journal_cannot_be_written_again() -> None:
    disk = new_disk(2)
    desk = Desk(disk)
    desk.commit(0, 1)
    delete_journal(disk)
    disk.fail(Fault("open", errno.EIO, "*.journal.new", times=inf))
    with capture_logs() as lines:
        desk.later()
        desk.log.close()
    assert events(lines) == ["the log has failed", "the journal file cannot be restored"]
    assert after_crash(disk) == desk.stored == {0: [0], 1: [0], 2: []}


@pytest.mark.parametrize("fault", [Fault("sync", errno.EIO, "*-1/*"), Fault("write", errno.ENOSPC, "*-1/*", times=inf)])
def test_deleted_journal_is_written_again_for_a_partition_that_cannot_be(fault: Fault) -> None:
    disk = new_disk(4)
    desk = Desk(disk, checkpoint_bytes=10**6)
    desk.commit(0, 1)
    disk.fail(fault)
    with capture_logs():
        desk.later(0.5)
        desk.commit(0, 1)
        delete_journal(disk)
        desk.later()
        desk.log.close()
    assert desk.errors == [STORED] * 2
    assert after_crash(disk) == desk.stored


def test_partitions_are_synced_at_once_when_the_journal_fails() -> None:
    """Not only when the server stops: it may be killed, and then the system lose its power."""
    disk = new_disk(5)
    desk = Desk(disk, sync="none")
    desk.commit(0, 1)
    disk.fail(Fault("write", errno.EIO, "*.journal"))
    with capture_logs():
        desk.commit(0)
        desk.later(0.1)
        assert after_crash(disk) == desk.stored


def test_full_disk_at_the_flush_is_tried_again_until_there_is_room() -> None:
    disk = new_disk(6)
    desk = Desk(disk)
    desk.commit(0, 1)
    delete_journal(disk)
    disk.fail(Fault("open", errno.ENOSPC, "*.journal.new", times=inf))
    disk.fail(Fault("write", errno.ENOSPC, "*.log", times=inf))
    with capture_logs():
        desk.later(1)
        disk.mend()
        desk.later(2)
        assert after_crash(disk) == desk.stored


@pytest.mark.parametrize("deed", ["files deleted", "files cut", "folder deleted", "folder moved"])
def test_server_with_deleted_journal_has_all_commits_after_a_kill(tmp_path: Path, deed: str) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        journal = server.data / "journal"
        with Wire(server.host, server.port) as wire:
            assert commit(wire, 1) == "NONE"
            if deed == "files deleted":
                for path in journal.iterdir():
                    path.unlink()
            elif deed == "files cut":
                for path in journal.iterdir():
                    os.truncate(path, 0)
            elif deed == "folder deleted":
                shutil.rmtree(journal)
            else:
                journal.rename(tmp_path / "elsewhere")
            last = commit_until_refused(wire, 2)
            assert last > 1
            assert committed(wire) == last
        server.kill()
        server.start()
        with Wire(server.host, server.port) as wire:
            assert committed(wire) == last
            assert commit(wire, last + 1) == "NONE"
        assert server.stop() == 0


def test_deleted_partition_folder_keeps_its_commits_in_the_journal(tmp_path: Path) -> None:
    """The next start is refused and names the empty file with which the journal's commits are served."""
    root = tmp_path / "data"
    desk = Desk(LazyDisk(), root=root, checkpoint_bytes=1)
    desk.commit(0, 1)
    desk.later()
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        for _ in range(3):
            desk.commit(0, 1)
            desk.later()
        desk.log.close()
    assert events(lines) == ["a partition of the log has failed"]
    assert desk.errors == [STORED] * 4
    with capture_logs(), pytest.raises(StartError, match="create the empty file") as refused:
        Desk(LazyDisk(), root=root)
    empty = Path(str(refused.value).rsplit(" ", 1)[1])
    empty.parent.mkdir()
    empty.touch()
    with capture_logs():
        log = OffsetsLog(root, PARTITIONS, disk=LazyDisk(), threads=Inline())
        log.open()
    values = [record.value.offset for _, _, record in log.read(1)]  # type: ignore[union-attr]
    assert values == [1, 2, 3]
    log.close()
