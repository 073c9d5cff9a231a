"""Styles of the engines in plots and tables, and number formats.

The colours are distinguishable with red-green and blue-yellow colour blindness, and have a contrast of at least 3 on
white. Markers and dashes differ too.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Style(NamedTuple):
    """Colour, matplotlib's marker and matplotlib's line style."""

    colour: str
    marker: str
    dash: str


STYLES = {
    "actor-loop": Style("#1450F5", "o", "-"),
    "actor-threads": Style("#0F3969", "s", "-"),
    "plain-loop": Style("#C2185B", "p", "-"),
    "pykka-threads": Style("#199F95", "^", "-"),
    "lock-group": Style("#111111", "D", "--"),
    "lock-global": Style("#8A1008", "X", "--"),
    "lock-striped": Style("#E9580E", "P", "--"),
    "asyncio-lock": Style("#B34BC8", "v", ":"),
    "loop-partition": Style("#808757", "*", "-."),
}
OTHER = Style("#6B6B6B", ".", "-")  # an engine without a style

ACTORS = ("actor-loop", "actor-threads")  # Callboard's, without pykka's own


def style(engine: str) -> Style:
    return STYLES.get(engine, OTHER)


def significant(value: float | None, digits: int = 3) -> str:
    """A figure with three significant digits and commas: ``1,230``, ``0.0123``; empty for None."""
    if value is None:
        return ""
    rounded = float(f"{value:.{digits - 1}e}")  # rounded before counting places: 9.996 is 10.0
    if not rounded:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def ms(us: float | None) -> str:
    """Microseconds as milliseconds."""
    return significant(None if us is None else us / 1e3)


def kb(size: float | None) -> str:
    """Bytes as kB. Negative values are measurement noise."""
    if size is None:
        return ""
    return "about 0" if size <= 0 else significant(size / 1e3)


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio: ``1.23``."""
    return "" if value is None else f"{value:.2f}"


def rate(value: float | None) -> str:
    """Requests per second, with significant digits."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else significant(value)


def sentence(words: str) -> str:
    """The text with a capital first letter and a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "." if words else ""


def count(number: int, noun: str) -> str:
    """``1 group``, ``1,000 groups``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
