"""What ``callboard cluster check`` finds in the settings of an engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, NamedTuple


class Level(StrEnum):
    """``ERROR``: the cluster would lose acknowledged commits, or not work. ``UNKNOWN``: nobody can look from here."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    level: Level
    text: str


Check = Callable[[str, bool], Coroutine[Any, Any, list[Finding]]]
"""``check(url, is_single)``. ``is_single``: the user accepts that the data is on one machine."""
