"""The JSON files with the metadata of a history's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...runtime.common.errors import StartError
from ...runtime.disk.checksum import FIELD as CHECKSUM
from ...runtime.disk.checksum import verify_checksum, with_checksum
from ...runtime.disk.disk import Disk, read_file

VERSION = 2
"""1: without folders that were replaced by a merge."""
FILES_VERSION = 3
"""Of tables with the layout FILES."""


def to_json(version: int, fields: dict[str, Any]) -> bytes:
    """The content of a file with metadata."""
    return json.dumps(with_checksum({"version": version, **fields}), indent=1).encode() + b"\n"


def read_metadata(disk: Disk, path: Path) -> dict[str, Any]:
    """The fields of a file. Raises StartError for one that is damaged or of a newer version, OSError."""
    return parse_metadata(path, read_file(disk, path))


def parse_metadata(path: Path, content: bytes) -> dict[str, Any]:
    """The same for the content of a file."""
    try:
        fields = json.loads(content)
        version = fields["version"]
        if version in (1, VERSION, FILES_VERSION) and CHECKSUM in fields:  # older files have none
            verify_checksum(fields, VERSION)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise StartError(f"{path}: found no JSON of a history ({error!r}); restore a copy of this file") from None
    if version not in (1, VERSION, FILES_VERSION):
        raise StartError(
            f"{path}: found version {version}, expected at most {FILES_VERSION}; use the newer version of Callboard"
        )
    return dict(fields)


def parse_fields(path: Path, kind: Any, fields: dict[str, Any]) -> Any:
    """A named tuple of the class ``kind``. Raises StartError for a missing field."""
    try:
        return kind(**{name: fields[name] for name in kind._fields})
    except KeyError as missing:
        raise StartError(f"{path}: the field {missing} is missing; restore a copy of this file") from None
