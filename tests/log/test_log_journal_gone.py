"""Journal files or partition folders deleted while the log is open: acknowledged commits stay."""

from __future__ import annotations

import errno
import os
import shutil
from math import inf
from pathlib import Path

import pytest
from full_disk_program import commit, committed
from log_failure_helpers import (
    FAILED,
    PARTITIONS,
    ROOT,
    STORED,
    LogHarness,
    new_faulty_disk,
    offsets_after_crash,
    problem_events,
)
from log_helpers import LazyDisk
from log_server_helpers import commit_until_refused
from peers.server import ServerProcess
from peers.wire import Wire
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

JOURNAL = ROOT / "journal"


def delete_journal(disk: FaultyDisk) -> None:
    for name in disk.names(JOURNAL):
        disk.remove(JOURNAL / name)
    disk.sync_folder(JOURNAL)


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_commits_survive_deleted_journal_files(sync: str, seed: int) -> None:
    disk = new_faulty_disk(seed)
    harness = LogHarness(disk, sync=sync)
    harness.commit(0, 1)
    harness.advance()
    harness.commit(0, 2)
    delete_journal(disk)
    harness.commit(0, 1)
    with capture_logs() as lines:
        harness.advance()
        harness.commit(0)
        assert harness.errors == [STORED] * 3 + [FAILED]
        assert offsets_after_crash(disk) == harness.stored
    assert problem_events(lines)[0] == "the log has failed"


@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_commits_in_jobs_survive_deleted_journal_files(seed: int) -> None:
    """Some wait in memory, some in a job that has not begun."""
    disk = new_faulty_disk(seed)
    choices = iter([0] * 6)
    harness = LogHarness(disk, InlineThreads(lambda count: next(choices, count - 1)))
    for _ in range(6):
        harness.commit(0, 1)
    for _ in range(3):
        harness.threads.step()
    harness.now_s += 1
    harness.threads.step()
    delete_journal(disk)
    with capture_logs():
        harness.advance()
        harness.commit(2)
        harness.advance()
        assert FAILED in harness.errors
        assert offsets_after_crash(disk) == harness.stored


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
@pytest.mark.parametrize("is_written_to_again", [True, False])
def test_acknowledged_commits_survive_a_truncated_journal_file(sync: str, is_written_to_again: bool) -> None:
    disk = new_faulty_disk()
    harness = LogHarness(disk, sync=sync)
    harness.commit(0, 1)
    fd = disk.open(next(JOURNAL / name for name in disk.names(JOURNAL)), os.O_RDWR)
    disk.truncate(fd, 0)
    disk.close(fd)
    if is_written_to_again:
        harness.commit(0, 2)
    with capture_logs() as lines:
        harness.advance()
        harness.commit(0)
        assert harness.errors[-1] == FAILED
        assert offsets_after_crash(disk) == harness.stored
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["the log has failed"]
    assert "it was truncated while the log was open, found" in lines[0]["reason"]


def test_partitions_have_all_commits_when_the_journal_cannot_be_restored() -> None:
    disk = new_faulty_disk(2)
    harness = LogHarness(disk)
    harness.commit(0, 1)
    delete_journal(disk)
    disk.faults.fail(Fault("open", errno.EIO, "*.journal.new", times=inf))
    with capture_logs() as lines:
        harness.advance()
        harness.log.close()
    assert problem_events(lines) == ["the log has failed", "the journal file cannot be restored"]
    assert offsets_after_crash(disk) == harness.stored == {0: [0], 1: [0], 2: []}


@pytest.mark.parametrize("fault", [Fault("sync", errno.EIO, "*-1/*"), Fault("write", errno.ENOSPC, "*-1/*", times=inf)])
def test_deleted_journal_is_restored_for_a_failed_partition(fault: Fault) -> None:
    disk = new_faulty_disk(4)
    harness = LogHarness(disk, checkpoint_bytes=10**6)
    harness.commit(0, 1)
    disk.faults.fail(fault)
    with capture_logs():
        harness.advance(0.5)
        harness.commit(0, 1)
        delete_journal(disk)
        harness.advance()
        harness.log.close()
    assert harness.errors == [STORED] * 2
    assert offsets_after_crash(disk) == harness.stored


def test_partitions_are_synced_at_once_when_the_journal_fails() -> None:
    """The partitions are synced before a stop, because the server may be killed and the power may fail."""
    disk = new_faulty_disk(5)
    harness = LogHarness(disk, sync="none")
    harness.commit(0, 1)
    disk.faults.fail(Fault("write", errno.EIO, "*.journal"))
    with capture_logs():
        harness.commit(0)
        harness.advance(0.1)
        assert offsets_after_crash(disk) == harness.stored


def test_flush_on_full_disk_after_failure_is_retried() -> None:
    disk = new_faulty_disk(6)
    harness = LogHarness(disk)
    harness.commit(0, 1)
    delete_journal(disk)
    disk.faults.fail(Fault("open", errno.ENOSPC, "*.journal.new", times=inf))
    disk.faults.fail(Fault("write", errno.ENOSPC, "*.log", times=inf))
    with capture_logs():
        harness.advance(1)
        disk.faults.clear()
        harness.advance(2)
        assert offsets_after_crash(disk) == harness.stored


@pytest.mark.parametrize("action", ["files cut", "folder deleted", "folder moved"])
def test_server_with_deleted_journal_has_all_commits_after_a_kill(tmp_path: Path, action: str) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        journal = server.data / "journal"
        with Wire(server.host, server.port) as client:
            assert commit(client, 1) == "NONE"
            if action == "files cut":
                for path in journal.iterdir():
                    os.truncate(path, 0)
            elif action == "folder deleted":
                shutil.rmtree(journal)
            else:
                journal.rename(tmp_path / "elsewhere")
            last_acknowledged = commit_until_refused(client, 2)
            assert last_acknowledged > 1
            assert committed(client) == last_acknowledged
        server.kill()
        server.start()
        with Wire(server.host, server.port) as client:
            assert committed(client) == last_acknowledged
            assert commit(client, last_acknowledged + 1) == "NONE"
        assert server.stop() == 0


def test_deleted_partition_folder_keeps_its_commits_in_the_journal(tmp_path: Path) -> None:
    """The next start is refused and names the empty file with which the journal's commits are served."""
    root = tmp_path / "data"
    harness = LogHarness(LazyDisk(), root=root, checkpoint_bytes=1)
    harness.commit(0, 1)
    harness.advance()
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        for _ in range(3):
            harness.commit(0, 1)
            harness.advance()
        harness.log.close()
    assert problem_events(lines) == ["a partition of the log has failed"]
    assert harness.errors == [STORED] * 4
    with capture_logs(), pytest.raises(StartError, match="create the empty file") as error:
        LogHarness(LazyDisk(), root=root)
    empty_file = Path(str(error.value).rsplit(" ", 1)[1])
    empty_file.parent.mkdir()
    empty_file.touch()
    with capture_logs():
        log = OffsetsLog(root, PARTITIONS, disk=LazyDisk(), threads=InlineThreads())
        log.open()
    values = [record.value.offset for _, _, record in log.read(1)]  # type: ignore[union-attr]
    assert values == [1, 2, 3]
    log.close()
