"""The targets of a reset in the body of a request. A new kind that is an object is a function, and a row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from ..embed.results import OffsetsOf, ShiftBy, Target
from .problems import BadBody

EXPECTED: Final = (
    'expected an offset, earliest, latest, null for no offset, or an object as in {"time": "2026-01-31T08:00:00Z"},'
    ' {"shift": -100} or {"group": "orders-copy"}'
)


def parse_target(to: Any) -> Target | None:
    """Raises BadBody."""
    if to in (None, "earliest", "latest") or (type(to) is int and 0 <= to < 2**63):
        target: Target | None = to
        return target
    if isinstance(to, dict) and len(to) == 1:
        [(name, value)] = to.items()
        if name in OBJECTS:
            return OBJECTS[name](value)
    raise BadBody(f"to {to!r:.100}: {EXPECTED}")


def _time(value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        time = datetime.min
    if time.tzinfo is None:
        raise BadBody(f"time {value!r:.100}: expected ISO 8601 with a zone, as in 2026-01-31T08:00:00Z")
    return time


def _shift(value: Any) -> ShiftBy:
    if type(value) is not int or abs(value) >= 2**63:
        raise BadBody(f"shift {value!r:.100}: expected a number of records, negative to go back")
    return ShiftBy(value)


def _group(value: Any) -> OffsetsOf:
    if not isinstance(value, str) or not value:
        raise BadBody(f"group {value!r:.100}: expected the id of another group")
    return OffsetsOf(value)


OBJECTS: Final[Mapping[str, Callable[[Any], Target]]] = {"time": _time, "shift": _shift, "group": _group}
