"""Tests of an export to Kafka's folders that fails or is killed: they have the old content or the new one."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from command_helpers import Command, run_export
from kafka_folder_helpers import GROUPS, content, data, kafka
from log_helpers import offset
from partition_helpers import plain

from callboard.runtime.cli.exchange import export_run, kafka_export
from callboard.runtime.cli.exchange.kafka_export import CHECKPOINTS, FINISHED, UNFINISHED
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading.segment import segment_name

fixtures = data, kafka, run_export

KEPT = folder_name(2)
"""A partition in which Kafka has a record."""


class Killed(BaseException):
    """The process is killed: nothing that follows runs."""


class FailingDisk(Disk):
    """Fails at the n-th rename, once, or with ``is_killed`` at this one and all later ones."""

    def __init__(self, renames: int, *, is_killed: bool = False) -> None:
        super().__init__()
        self.left = renames
        self._is_killed = is_killed

    def rename(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left < 0 and self._is_killed:
            raise Killed
        if self.left == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(source))
        super().rename(source, target)


@pytest.fixture
def used(kafka: Path) -> Path:
    """Kafka's folders with a record."""
    (kafka / KEPT / segment_name(0)).write_bytes(plain(0, offset(GROUPS[2], 9)))
    return kafka


def partitions_of(folder: Path) -> dict[str, bytes]:
    """Without checkpoints, whose lines Kafka adds again."""
    return {name: data for name, data in content(folder).items() if name not in (*CHECKPOINTS, ".lock")}


def backups_of(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{folder.name}.replaced-*"))


def test_export_whose_disk_fails_restores_kafkas_folders_and_leaves_no_backup(
    data: Path, used: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = partitions_of(used)
    for renames in range(1000):
        disk = FailingDisk(renames)
        monkeypatch.setattr(export_run, "Disk", lambda disk=disk: disk)
        result = run_export("--data", data, "--kafka-dir", used, "--replace")
        if result.code == 0:
            break
        assert result.code == 1 and "Input/output error; check the disk" in result.err
        if FINISHED in result.err:  # everything is written, and the backup is kept
            assert f"Kafka does not start while {UNFINISHED} or {FINISHED}" in result.err
        else:
            assert (partitions_of(used), backups_of(used)) == (original, [])
    assert 10 < renames < 999


def test_error_of_an_export_that_cannot_be_undone_says_what_to_do(
    data: Path, used: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(used / "new"))

    with monkeypatch.context() as patch:
        patch.setattr(export_run, "swap_folders", fail)
        patch.setattr(export_run, "undo_export", fail)
        result = run_export("--data", data, "--kafka-dir", used, "--replace")
    assert result.code == 1
    assert f"Kafka does not start while {UNFINISHED} is in one of them; run this command again" in result.err


def test_next_export_removes_the_backup_of_a_killed_one(
    data: Path, used: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_run, "undo_export", lambda plan, disk: None)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(export_run, "Disk", lambda: FailingDisk(8, is_killed=True))
        run_export("--data", data, "--kafka-dir", used, "--replace")
    [left] = backups_of(used)
    assert (left / KEPT).is_dir() and (used / UNFINISHED).is_dir()
    assert run_export("--data", data, "--kafka-dir", used).code == 2
    assert backups_of(used) == [] and not (used / UNFINISHED).exists()


def test_export_that_was_killed_after_its_last_step_is_not_undone_in_some_folders(
    data: Path, kafka: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With several log.dirs, the first one is complete, and the others have all but the last rename."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").touch()
    shutil.move(kafka / folder_name(1), other)
    arguments = ("--data", data, "--kafka-dir", kafka, "--kafka-dir", other)
    disk = FailingDisk(1000)
    monkeypatch.setattr(export_run, "Disk", lambda: disk)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_export, "_remove", lambda folder, disk: None)
        patch.setattr(disk, "rename", _rename_until(other / FINISHED))
        with pytest.raises(Killed):
            run_export(*arguments)
    assert (kafka / FINISHED).is_dir() and (other / UNFINISHED).is_dir()
    result = run_export(*arguments)
    assert result.code == 2 and "the last export was complete except for its own folder" in result.err
    assert not [folder for folder in (kafka, other) for name in (UNFINISHED, FINISHED) if (folder / name).exists()]
    for folder in (kafka / folder_name(3), other / folder_name(1)):
        exported = {name: file for name, file in content(folder).items() if name.endswith(".log")}
        assert exported == content(data / folder.name)


def _rename_until(last: Path) -> object:
    def rename(source: Path, target: Path) -> None:
        if target == last:
            raise Killed
        source.rename(target)

    return rename


def test_exports_in_the_same_second_keep_both_backups(
    data: Path, used: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one must not overwrite what Kafka had before the first."""

    class OneSecond(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> OneSecond:
            return cls(2026, 1, 1, tzinfo=tz)

    monkeypatch.setattr(kafka_export, "datetime", OneSecond)
    original = content(used / KEPT)
    for _ in range(2):
        assert run_export("--data", data, "--kafka-dir", used, "--replace").code == 0
    assert [path.name for path in backups_of(used)] == [
        f"{used.name}.replaced-20260101T000000Z",
        f"{used.name}.replaced-20260101T000000Z-2",
    ]
    assert content(backups_of(used)[0] / KEPT) == original
