"""Paths that a program or a configuration file gives. Python's own errors name neither the option nor the path."""

from __future__ import annotations

import os
from pathlib import Path

from ..common.errors import StartError


def parse_path(name: str, path: str | Path) -> Path:
    """``name``: of the option. Raises StartError for a path with characters that no file can have in its name."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise StartError(f"bad {name} {str(path)!r}: found half a character, expected a path in UTF-8") from None
    if b"\0" in encoded:
        raise StartError(f"bad {name} {str(path)!r}: found a NUL character, expected a path; remove the character")
    return Path(path)
