"""``backup.json``: the files of a backup, with sizes and checksums. It is written last, so it means a whole backup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...common.errors import StartError
from ...common.json_files import parse_json
from ...disk.checksum import verify_checksum, with_checksum
from ...disk.disk import Disk, read_file, replace_file

FILE_NAME = "backup.json"
VERSION = 1


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
            files = {name: CopiedFile(*file) for name, file in fields["files"].items()}
            return BackupContents(fields["cluster_id"], fields["began_ms"], fields["ended_ms"], files)
        problem = f"version {fields['version']}, expected {VERSION}; use the newer version of Callboard"
    except (FileNotFoundError, NotADirectoryError):
        problem = "no such file, expected a folder made by callboard backup; check the path"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"no contents of a backup ({error!r}); use another backup"
    raise StartError(f"{path}: found {problem}")
