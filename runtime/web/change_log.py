"""ChangeLog: the last changes of the list of groups, numbered, so that a reader can go on where it was."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Final

CHANGES_KEPT: Final = 10_000


class ChangeLog:
    """``number``: that of the last change. ``kept``: how many names are kept."""

    def __init__(self, kept: int = CHANGES_KEPT) -> None:
        self.number = 0
        self._process = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._kept = kept
        self._names: deque[str] = deque(maxlen=kept)

    def add(self, names: Collection[str]) -> None:
        """Takes no longer for more names than are kept."""
        self.number += len(names)
        self._names.extend(islice(names, max(len(names) - self._kept, 0), None))

    def since(self, number: int) -> list[str] | None:
        """The names after a number, the oldest first. None if not all of them are kept."""
        missed = self.number - number
        if not 0 <= missed <= len(self._names):
            return None
        return list(islice(self._names, len(self._names) - missed, None))

    def format_id(self, number: int) -> str:
        return f"{self._process}-{number}"

    def parse_id(self, text: str) -> int | None:
        """The number in an id. None if it is not of this process."""
        process, _, digits = text.partition("-")
        if process != self._process or not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        return int(digits)
