"""Where the lines of the audit trail go: to a file that is rotated by its size, or to standard output."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from ..disk.disk import Disk, file_size
from ..disk.line_files import append_lines

FILE_NAME: Final = "audit.jsonl"


class AuditSink(Protocol):
    def append(self, lines: bytes, *, is_durable: bool) -> None:
        """Write lines. They are durable afterwards if ``is_durable``. Blocks. Raises OSError."""


class AuditLimits(Protocol):
    """The settings of the file."""

    @property
    def audit_file_max_bytes(self) -> int: ...

    @property
    def audit_files_max(self) -> int: ...


class AuditFile:
    """``audit.jsonl`` in a folder; ``audit.jsonl.1`` is the newest of the older files.

    The file is opened for each write, so it may be moved away by others.
    """

    def __init__(self, disk: Disk, folder: Path, limits: AuditLimits) -> None:
        self._disk = disk
        self._path = folder / FILE_NAME
        self._limits = limits

    def append(self, lines: bytes, *, is_durable: bool) -> None:
        if self._is_full(len(lines)):
            self._rotate()
        fd = self._open()
        try:
            append_lines(self._disk, fd, self._disk.size(fd), lines)
            if is_durable:
                self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def _is_full(self, new_bytes: int) -> bool:
        """Whether the file has lines, and no room for so many bytes more."""
        with suppress(FileNotFoundError):
            size = file_size(self._disk, self._path)
            return size > 0 and size + new_bytes > self._limits.audit_file_max_bytes
        return False

    def _open(self) -> int:
        return self._disk.open(self._path, os.O_RDWR | os.O_CREAT)

    def _rotate(self) -> None:
        """Number the files anew: the oldest one beyond ``audit_files_max`` goes."""
        folder, last = self._path.parent, self._limits.audit_files_max - 1
        names = set(self._disk.names(folder))
        for number in range(last, -1, -1):
            name = f"{FILE_NAME}.{number}" if number else FILE_NAME
            if name in names and number == last:
                self._disk.remove(folder / name)
            elif name in names:
                self._disk.rename(folder / name, folder / f"{FILE_NAME}.{number + 1}")
        self._disk.sync_folder(folder)


class AuditStream:
    """Lines on standard output, for a program that reads them there."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def append(self, lines: bytes, *, is_durable: bool) -> None:
        self._stream.write(lines)
        self._stream.flush()
