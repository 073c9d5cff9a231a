"""Denials and refused clients are folded: one line a minute for those that are alike, so that nobody fills the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Final

ALIKE_MAX: Final = 1000
"""Lines of one kind in a minute. What is beyond is counted in one more line."""

OTHERS: Final = "(others)"


class Folding:
    """Counts events that are alike. ``ms``: wall-clock time."""

    def __init__(self) -> None:
        self._fields: dict[Hashable, dict[str, Any]] = {}
        self._lines = Counter[str]()  # by kind

    def __bool__(self) -> bool:
        return bool(self._fields)

    def add(self, kind: str, alike: Hashable, fields: Mapping[str, Any], ms: int) -> None:
        """Count an event. ``fields`` of the first of those that are ``alike`` are kept."""
        key: Hashable = kind, alike
        if key not in self._fields:
            if self._lines[kind] >= ALIKE_MAX:
                key, fields = (kind, OTHERS), {"kind": kind, "resource": OTHERS}
            else:
                self._lines[kind] += 1
        kept = self._fields.setdefault(key, {**fields, "count": 0, "first_ms": ms})
        kept["count"] += 1
        kept["last_ms"] = ms

    def take(self) -> list[dict[str, Any]]:
        """The fields of each line, with ``count``, ``first_ms`` and ``last_ms``, and forget them."""
        taken, self._fields = list(self._fields.values()), {}
        self._lines.clear()
        return taken
