"""The audit trail, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from callboard.runtime.security.audit_file import FILE_NAME


def audit_lines(folder: Path) -> list[dict[str, Any]]:
    """``folder``: the data folder of the server."""
    return [json.loads(line) for line in (folder / FILE_NAME).read_bytes().splitlines()]
