"""The file of the audit trail: appended, rotated by its size, whole lines only."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import NamedTuple

import pytest

from callboard.runtime.disk.disk import Disk
from callboard.runtime.security.audit_file import FILE_NAME, AuditFile, AuditStream
from callboard.runtime.security.audit_reading import read_audit


class Limits(NamedTuple):
    audit_file_max_bytes: int = 20
    audit_files_max: int = 3


class FullDisk(Disk):
    """Writes only the first bytes."""

    is_full = True

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        if not self.is_full:
            return super().write(fd, data, position)
        if position:
            raise OSError(errno.ENOSPC, "no space")
        return super().write(fd, data[:3], position)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_lines_are_appended_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = AuditFile(Disk(), tmp_path, Limits())
    file.append(b"one\n", is_durable=True)
    file.append(b"two\nthree\n", is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b"one\ntwo\nthree\n"}
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_line_that_is_nested_too_deeply_is_skipped(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"id": "a", "kind": "x"}\n' + b"[" * 200_000 + b"\n")
    assert [line["id"] for line in read_audit(Disk(), tmp_path, 10).lines] == ["a"]


def test_file_is_replaced_at_its_size_and_the_oldest_one_goes(tmp_path: Path) -> None:
    file = AuditFile(Disk(), tmp_path, Limits())
    for number in range(5):
        file.append(b"%d" % number * 15 + b"\n", is_durable=False)
    assert contents(tmp_path) == {
        FILE_NAME: b"4" * 15 + b"\n",
        f"{FILE_NAME}.1": b"3" * 15 + b"\n",
        f"{FILE_NAME}.2": b"2" * 15 + b"\n",
    }


def test_one_file_is_emptied_at_its_size(tmp_path: Path) -> None:
    file = AuditFile(Disk(), tmp_path, Limits(audit_files_max=1))
    for line in (b"1" * 15 + b"\n", b"2" * 15 + b"\n"):
        file.append(line, is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b"2" * 15 + b"\n"}


def test_file_that_was_moved_away_is_made_again(tmp_path: Path) -> None:
    file = AuditFile(Disk(), tmp_path, Limits())
    file.append(b"one\n", is_durable=False)
    (tmp_path / FILE_NAME).rename(tmp_path / "moved")
    file.append(b"two\n", is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b"two\n", "moved": b"one\n"}


def test_line_that_a_crash_has_cut_off_is_ended(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"time')
    AuditFile(Disk(), tmp_path, Limits()).append(b"one\n", is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b'{"time\none\n'}


def test_failed_write_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    disk = FullDisk()
    file = AuditFile(disk, tmp_path, Limits())
    with pytest.raises(OSError, match="no space"):
        file.append(b"one\n", is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b""}
    disk.is_full = False
    file.append(b"one\n", is_durable=False)
    assert contents(tmp_path) == {FILE_NAME: b"one\n"}


def test_stream_gets_lines_at_once() -> None:
    stream = io.BytesIO()
    AuditStream(stream).append(b"one\n", is_durable=True)
    assert stream.getvalue() == b"one\n"
