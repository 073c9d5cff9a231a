"""Files of lines that only grow, such as JSON lines."""

from __future__ import annotations

from contextlib import suppress

from .disk import Disk, write_all


def append_lines(disk: Disk, fd: int, size: int, lines: bytes) -> None:
    """Append all lines or none to a file of ``size`` bytes. A last line that a crash has cut off is ended first.

    Raises OSError.
    """
    start = b"" if not size or disk.read(fd, 1, size - 1) == b"\n" else b"\n"
    try:
        write_all(disk, fd, start + lines, size)
    except OSError:
        with suppress(OSError):
            disk.truncate(fd, size)
        raise
