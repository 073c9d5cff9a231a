"""The list of the files in a folder of rows or of a snapshot, with their sizes. It is written before the commit.

Spark ignores an empty file, and a missing one is not noticed. So readers compare each folder with its list. The
content is checked by the checksums of Hadoop (``.crc``) and those of Parquet's pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, file_size, open_new_file, write_all
from .metadata import VERSION, parse_metadata, read_metadata, to_json

LIST_NAME = "_files.json"
"""Spark and other readers of such tables ignore names that begin with ``_`` or ``.``."""


WITHOUT_COPY = "or, to go on without its rows, move its folder away and run callboard history forget"


def write_list(disk: Disk, table: Path, folder: Path) -> None:
    """List the files of a new folder. The caller syncs the list as it syncs the files. Raises OSError."""
    fields = {"folder": str(folder.relative_to(table)), "bytes": _sizes(disk, folder)}
    fd = open_new_file(disk, folder / LIST_NAME)
    try:
        write_all(disk, fd, to_json(VERSION, fields), 0)
    finally:
        disk.close(fd)


def check_list(disk: Disk, table: Path, folder: Path) -> None:
    """Raise StartError if the files of a folder are not those of its list. Older versions have written no lists."""
    if LIST_NAME in disk.names(folder):
        compare_with_list(table, folder, read_metadata(disk, folder / LIST_NAME), _sizes(disk, folder))


def check_content_of_list(table: Path, path: Path, content: bytes, sizes: Mapping[str, int]) -> None:
    """The same for a list at ``path``, beside files of these sizes."""
    compare_with_list(table, path.parent, parse_metadata(path, content), sizes)


def compare_with_list(table: Path, folder: Path, fields: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raise StartError for the first file in a folder that is missing, of another size, or not in the list."""
    listed = fields.get("bytes", {})
    if (name := str(folder.relative_to(table))) != fields.get("folder", name):
        raise StartError(f"{folder}: found the rows of {fields['folder']}, expected those of {name}; rename it back")
    for name in sorted({*listed, *sizes}):
        check_size(folder / name, sizes.get(name), listed.get(name))


def check_size(path: Path, found: int | None, expected: int | None) -> None:
    """Raise StartError if a file of ``found`` bytes is not as it was written."""
    if found == expected:
        return
    if expected is None:
        raise StartError(f"{path}: found a file that callboard history has not written; remove it")
    what = "no file" if found is None else f"{found} bytes"
    raise StartError(
        f"{path}: found {what}, expected the {expected} bytes that callboard history has written; put a copy of this"
        f" file back, {WITHOUT_COPY}"
    )


def _sizes(disk: Disk, folder: Path) -> dict[str, int]:
    return {name: file_size(disk, folder / name) for name in disk.names(folder) if name[0] not in "._"}
