"""``backup.json``: the files of a backup, with sizes and checksums. It is written last, so it means a whole backup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...common.errors import StartError
from ...common.json_files import parse_json
from ...disk.checksum import verify_checksum, with_checksum
from ...disk.disk import Disk, read_file, replace_file

FILE_NAME = "backup.json"
VERSION = 1
LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last time that can be shown."""


class CopiedFile(NamedTuple):
    """The size of a file in bytes, and the CRC-32C of its content."""

    size: int
    crc32c: int


class BackupContents(NamedTuple):
    """``began_ms``: in ms since 1970; what was acknowledged before is in the backup. ``files``: by relative path."""

    cluster_id: str
    began_ms: int
    ended_ms: int
    files: Mapping[str, CopiedFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


def write_contents(disk: Disk, folder: Path, contents: BackupContents) -> None:
    """Write ``backup.json``, durably. Raises OSError."""
    fields = with_checksum({"version": VERSION, **contents._asdict()})
    replace_file(disk, folder / FILE_NAME, json.dumps(fields, indent=1).encode() + b"\n")


def read_contents(disk: Disk, folder: Path) -> BackupContents:
    """Raises StartError for a folder that is not a whole backup."""
    path = folder / FILE_NAME
    try:
        fields = parse_json(read_file(disk, path))
        if fields["version"] == VERSION:
            verify_checksum(fields, VERSION)
            return _checked(fields)
        problem = f"version {fields['version']}, expected {VERSION}; use the newer version of Callboard"
    except (FileNotFoundError, NotADirectoryError):
        problem = "no such file, expected a folder made by callboard backup; check the path"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"no contents of a backup ({error!r}); use another backup"
    raise StartError(f"{path}: found {problem}")


def _checked(fields: Mapping[str, Any]) -> BackupContents:
    """The contents. Raises ValueError, KeyError, TypeError or AttributeError if a value is another than a backup has.

    The checksum is no secret, so anybody can write such a file. A name must not lead out of the folder that is made.
    """
    files = {}
    for name, (size, checksum) in fields["files"].items():
        if not _is_below_a_folder(name):
            raise ValueError(f"a file {name!r}, expected a path below the folder")
        files[name] = CopiedFile(*_whole_numbers(size, checksum))
    times = _whole_numbers(fields["began_ms"], fields["ended_ms"])
    for time_ms in times:
        if not 0 <= time_ms <= LAST_MS:
            raise ValueError(f"a time of {time_ms} ms, expected at most {LAST_MS}")
    return BackupContents(str(fields["cluster_id"]), *times, files)


def _is_below_a_folder(name: str) -> bool:
    return bool(name) and "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _whole_numbers(first: object, second: object) -> tuple[int, int]:
    for value in (first, second):
        if type(value) is not int:
            raise TypeError(f"{value!r}, expected a whole number")
    return first, second  # type: ignore[return-value]
