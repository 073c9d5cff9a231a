"""Parsing of ``--file-mode``, the permissions of new files."""

from __future__ import annotations

import re

from ..common.errors import StartError

OCTAL = re.compile(r"(0o)?[0-7]{3,5}")
FILE_MODES = frozenset(0o600 | group << 3 | other for group in (0, 4, 6) for other in (0, 4, 6))


def parse_file_mode(value: str | int) -> int:
    """Parse octal permissions of new files, such as 0640. Raises StartError for modes that cannot work."""
    is_number = type(value) is int and value >= 0
    text = f"{value:04o}" if is_number else str(value)
    mode = int(text, 8) if OCTAL.fullmatch(text) else -1
    if mode not in FILE_MODES:
        decimal = f" (decimal {value})" if is_number else ""
        raise StartError(
            f"bad file mode '{text}'{decimal}: expected octal permissions with read and write for the owner,"
            " without execute, and without write permission for anybody who cannot read, as in 0600, 0640 or 0660"
        )
    return mode
