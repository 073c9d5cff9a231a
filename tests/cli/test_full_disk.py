"""Commands on a disk that takes no more bytes: one line says where and what to do, and no half of a file is left.

The limit of a file's size stands for the full disk: a write fails after the same part of the file.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_helpers import command
from log_helpers import entry

from callboard.runtime.cli.backup import backup_command, restore_command
from callboard.runtime.cli.exchange import export
from callboard.runtime.cli.new_folder import make_new_folder
from callboard.runtime.disk.disk import Disk, describe_failure
from callboard.runtime.disk.modes import copy_owner_and_mode
from callboard.runtime.disk.output_file import new_output_file
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog

LIMIT_BYTES = 1000


@contextmanager
def file_size_limit(limit_bytes: int = LIMIT_BYTES) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder whose files are larger than the limit."""
    folder = tmp_path / "data"
    with DataFolder(folder, 1, 1):
        pass
    log = OffsetsLog(folder, 1, transactions_partitions=1)
    log.open()
    for number in range(LIMIT_BYTES // 20):
        log.append([entry(0, number)], 1, lambda _: None)
    log.close()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_backup_and_restore_name_the_file_and_leave_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup, restore = command(backup_command.main, capsys), command(restore_command.main, capsys)
    with file_size_limit():
        failed = backup(data, tmp_path / "backup")
    assert (failed.code, failed.out) == (1, "")
    assert f"callboard: {tmp_path}/backup.incomplete/" in failed.err
    assert failed.err.endswith(": File too large; raise the limit of a file's size (ulimit -f)\n")
    assert names(tmp_path) == ["data"]
    assert backup(data, tmp_path / "backup").code == 0
    with file_size_limit():
        failed = restore(tmp_path / "backup", tmp_path / "new")
    assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1)
    assert names(tmp_path) == ["backup", "data"]


def test_backup_and_restore_delete_no_folder_that_they_have_not_made(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup, restore = command(backup_command.main, capsys), command(restore_command.main, capsys)
    (tmp_path / "new.incomplete").mkdir()
    (tmp_path / "new.incomplete" / "mine").write_text("x")
    assert backup(data, tmp_path / "backup").code == 0
    for refused in (backup(data, tmp_path / "new"), restore(tmp_path / "backup", tmp_path / "new")):
        assert (refused.code, refused.out) == (2, "")
        assert "new.incomplete: found it, of a run that was killed or has not ended; remove it" in refused.err
    assert (tmp_path / "new.incomplete" / "mine").read_text() == "x"


def test_folder_that_cannot_be_replaced_is_refused_before_the_copy(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = command(backup_command.main, capsys)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert "bad DEST '.': found the current folder, which cannot be replaced" in backup(data, ".").err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "empty")
    refused = backup(data, "empty")
    assert (refused.code, refused.out) == (2, "")
    assert "bad DEST 'empty': found the mount point of a disk, which cannot be replaced" in refused.err
    assert names(tmp_path) == ["data", "empty"]


def test_failed_export_keeps_the_older_file_and_those_of_the_user(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = command(export.main, capsys), tmp_path / "offsets.csv"
    output.write_text("older")
    (tmp_path / "offsets.csv.new").write_text("mine")
    with file_size_limit(50):
        failed = run("--data", data, "--output", output)
    assert failed == (1, "", f"callboard: {output}: File too large; raise the limit of a file's size (ulimit -f)\n")
    assert (output.read_text(), (tmp_path / "offsets.csv.new").read_text()) == ("older", "mine")
    assert run("--data", data, "--output", output).code == 0
    assert output.read_text().startswith("group,topic,")
    assert names(tmp_path) == ["data", "offsets.csv", "offsets.csv.new"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_failed_output_of_a_query_keeps_the_older_file(name: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pip install 'callboard[spark]'")
    from callboard.spark.output import write_file

    (tmp_path / name).write_text("older")
    with file_size_limit(), pytest.raises(OSError, match=f"File too large: '{tmp_path / name}'$"):
        write_file(arrow.table({"offset": list(range(LIMIT_BYTES))}), tmp_path / name)
    assert ((tmp_path / name).read_text(), names(tmp_path)) == ("older", [name])


def test_output_file_of_a_failed_block_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_output_file(tmp_path / "new.csv") as path:
        path.write_text("half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_error_on_a_read_only_disk_names_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the removal of the temporary file fails, too."""

    def refuse(path: Path, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError) as caught, new_output_file(tmp_path / "new.csv") as path:
        refuse(path)
    assert caught.value.filename == str(tmp_path / "new.csv")


class NoFolderSync(Disk):
    """The names in a folder cannot be made durable."""

    def sync_folder(self, path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_new_folder_whose_name_is_not_durable_is_removed(tmp_path: Path) -> None:
    """Otherwise the command fails, and the next try is refused because the folder is there."""
    with (
        pytest.raises(OSError, match="Input/output error"),
        make_new_folder(NoFolderSync(), tmp_path / "new") as folder,
    ):
        (folder / "file").touch()
    assert names(tmp_path) == []


def test_failed_lock_has_the_path_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, flags: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", fail)
    disk = Disk()
    fd = disk.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError) as caught:
        disk.lock(fd)
    disk.close(fd)
    assert caught.value.filename == str(tmp_path / "file")


def test_error_of_an_open_file_has_its_path(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "file"
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        with file_size_limit(), pytest.raises(OSError, match="File too large") as caught:
            disk.write(fd, b"x", LIMIT_BYTES)
    finally:
        disk.close(fd)
    assert caught.value.filename == str(path)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "f"),
            "f: No space left on device; free some space, then try",
        ),
        (
            OSError(errno.EDQUOT, "Disk quota exceeded", "f"),
            "f: Disk quota exceeded; free some space, or raise the quota",
        ),
        (OSError(errno.EROFS, "Read-only file system", "f"), "f: Read-only file system; choose another folder"),
        (OSError(errno.EIO, "Input/output error", "f"), "f: Input/output error; check the disk and the folder's owner"),
        (OSError("the rows differ; try again"), "the rows differ; try again"),
    ],
)
def test_failure_is_described_with_what_to_do(error: OSError, text: str) -> None:
    assert describe_failure(error).startswith(text)


def test_refused_hard_link_is_described_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(PermissionError) as caught:
        Disk().link(tmp_path / "a", tmp_path / "b")
    assert f"{tmp_path / 'a'}: Operation not permitted: a hard link, which" in describe_failure(caught.value)


def test_mode_is_not_set_again_where_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without permissions refuses each change of a mode."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.touch()
    second.touch()

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(os, "chmod", refuse)
    copy_owner_and_mode(first, second)


def test_missing_temporary_folder_is_described_with_tmpdir() -> None:
    error = OSError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    assert describe_failure(error).endswith("; free some space there, or set TMPDIR to a folder that can be written to")
