"""Replaces functions that the tables and the deadlines of classic groups name, for planted bugs.

Existing groups are affected too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.actors.group.dispatch import DEADLINES, FUNCTIONS, TABLES


def patch_function(patch: pytest.MonkeyPatch, name: str, make: Callable[[Any], Any]) -> None:
    """Replace the function ``name`` in all cells of the tables by ``make(function)``."""
    original = FUNCTIONS[name]
    replacement = make(original)
    rows: list[Any] = [*TABLES.requests.values(), *TABLES.transitions.values()]
    for row in rows:
        for key, cell in list(row.items()):
            if original in cell:
                patch.setitem(row, key, type(cell)(*(replacement if part is original else part for part in cell)))


def patch_deadline_handler(patch: pytest.MonkeyPatch, kind: str, handler: Callable[..., None]) -> None:
    patch.setitem(DEADLINES._kinds, kind, DEADLINES._kinds[kind]._replace(handler=handler))
