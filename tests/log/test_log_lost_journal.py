"""A served data folder with neither a journal nor a clean-stop note is damaged; a crash never causes this."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from log_helpers import LazyDisk, append, entry, fixed_salt, offsets_in
from structlog.testing import capture_logs

from callboard.runtime.cli.log import commands
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.journal import journal_names
from callboard.runtime.log.lost_journal import find_lost_journal
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.recovery.clean_stop import NOTE_NAME, has_note
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

ROOT = Path("/data")


def open_log(root: Path, disk: Disk | None = None) -> OffsetsLog:
    disk = disk or LazyDisk()
    DataFolder(root, 1, 1, disk=disk).close()
    log = OffsetsLog(root, 1, transactions_partitions=1, disk=disk, threads=InlineThreads(), new_salt=fixed_salt)
    log.open()
    return log


def make_killed_folder(root: Path, disk: Disk | None = None) -> Path:
    """A folder with offset 0 in its partitions and offset 1 in its journal."""
    log = open_log(root, disk)
    append(log, [entry(0, 0)])
    log.close()
    log = open_log(root, disk)
    append(log, [entry(0, 1)])
    log.halt()
    return root


def verify(root: Path) -> int:
    try:
        return commands.main(["verify", "--data", str(root)])
    except SystemExit as error:
        assert isinstance(error.code, int | None)
        return error.code or 0


@pytest.mark.parametrize("loss", ["file deleted", "file emptied", "folder deleted"])
def test_journal_lost_after_kill_is_reported_as_damage(
    loss: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_killed_folder(tmp_path / "data")
    [path] = (root / "journal").iterdir()
    if loss == "folder deleted":
        shutil.rmtree(root / "journal")
    elif loss == "file deleted":
        path.unlink()
    else:
        path.write_bytes(b"")
    assert verify(root) == 3
    output = capsys.readouterr()
    assert f"{root}/journal: it has no used file, there is no .clean_shutdown" in output.err
    assert "all is well" not in output.out
    with capture_logs() as lines:
        log = open_log(root)
    assert offsets_in(log, 0) == [0]
    assert [damage.path for damage in log.damages()] == [root / "journal"]
    [line] = [line for line in lines if line["event"] == "damage in the log"]
    assert line["log_level"] == "error"
    assert "acknowledged since the last checkpoint" in line["consequence"]
    assert "put back the journal folder" in line["advice"]
    log.close()
    assert verify(root) == 0


@pytest.mark.parametrize("content", [b"", b"{}", None])
def test_damaged_note_without_journal_is_not_a_lost_journal(content: bytes | None, tmp_path: Path) -> None:
    """Without a note a lost journal cannot be excluded; with a damaged note it can."""
    root = tmp_path / "data"
    log = open_log(root)
    append(log, [entry(0, 0)])
    log.close()
    if content is None:
        (root / NOTE_NAME).unlink()
    else:
        (root / NOTE_NAME).write_bytes(content)
    assert (find_lost_journal(Disk(), root) is not None) == (content is None)
    log = open_log(root)
    assert bool(log.damages()) == (content is None)
    assert offsets_in(log, 0) == [0]
    log.close()


class WatchingDisk(FaultyDisk):
    """Records when, after a removal, there is neither a journal file nor a note."""

    def __init__(self) -> None:
        super().__init__()
        self.removed = 0
        self.lost: list[str] = []

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.removed += 1
        if not has_note(self, ROOT) and not journal_names(self.names(ROOT / "journal")):
            self.lost.append(str(path))


def test_start_and_stop_leave_a_journal_or_a_note_at_every_step() -> None:
    disk = WatchingDisk()
    make_killed_folder(ROOT, disk)
    open_log(ROOT, disk).close()
    make_killed_folder(ROOT, disk)
    open_log(ROOT, disk).halt()
    assert disk.removed > 6
    assert disk.lost == []


def test_stop_that_cannot_write_the_note_keeps_the_journal() -> None:
    disk = FaultyDisk()
    log = open_log(ROOT, disk)
    append(log, [entry(0, 0)])
    disk.faults.fail(Fault("rename", errno.EIO, f"*{NOTE_NAME}*"))
    with capture_logs() as lines:
        log.close()
    assert [line["event"] for line in lines] == ["clean-stop note cannot be written"]
    assert not has_note(disk, ROOT)
    reopened = open_log(ROOT, disk)
    assert reopened.damages() == []
    assert offsets_in(reopened, 0) == [0]


def test_copied_partition_folders_without_callboard_json_are_not_damage(tmp_path: Path) -> None:
    """This includes a kill of the first server before it has a journal."""
    root, copy = tmp_path / "data", tmp_path / "copy"
    log = open_log(root)
    append(log, [entry(0, 0)])
    log.close()
    copy.mkdir()
    for folder in root.glob("__*"):
        shutil.copytree(folder, copy / folder.name)
    DataFolder(copy, 1, 1).close()
    assert find_lost_journal(Disk(), copy) is None
    log = open_log(copy)
    assert log.damages() == []
    assert offsets_in(log, 0) == [0]
    log.close()
