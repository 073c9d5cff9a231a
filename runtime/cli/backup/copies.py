"""Copies files, durably, and computes their checksums on the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...disk.crc import crc32c
from ...disk.disk import PRIVATE, Disk, open_new_file, read_at, write_all
from ...security.store import FILE_NAME as SECURITY_NAME
from .contents import CopiedFile

PIECE_BYTES = 8 * 1024 * 1024


def copy_file(
    source_disk: Disk, source: Path, disk: Disk, target: Path, after_piece: Callable[[], None] = lambda: None
) -> CopiedFile:
    """Copy a file up to its size when it is opened. Raises OSError."""
    fd = source_disk.open(source, os.O_RDONLY)
    try:
        size = source_disk.size(fd)
        return write_pieces(
            disk, target, size, lambda at: read_at(source_disk, fd, min(PIECE_BYTES, size - at), at), after_piece
        )
    finally:
        source_disk.close(fd)


def write_file(disk: Disk, target: Path, data: bytes) -> CopiedFile:
    """Write a new file, durably, with the folders that it needs. Raises OSError."""
    return write_pieces(disk, target, len(data), lambda at: data[at : at + PIECE_BYTES])


def write_pieces(
    disk: Disk, target: Path, size: int, read: Callable[[int], bytes], after_piece: Callable[[], None] = lambda: None
) -> CopiedFile:
    """``read`` returns the bytes from a position on, at most ``PIECE_BYTES``. A file that shrinks is copied so far."""
    disk.make_folder(target.parent)
    fd = open_new_file(disk, target, os.O_WRONLY | (PRIVATE if target.name == SECURITY_NAME else 0))
    at = checksum = 0
    try:
        while at < size and (data := read(at)):
            write_all(disk, fd, data, at)
            checksum = crc32c(data, checksum)
            at += len(data)
            after_piece()
        disk.sync(fd)
    finally:
        disk.close(fd)
    return CopiedFile(at, checksum)


def sync_folders(disk: Disk, root: Path) -> None:
    """Make the names in a folder and in all folders below it durable. Raises OSError."""
    for folder, _, _ in os.walk(root):
        disk.sync_folder(Path(folder))
