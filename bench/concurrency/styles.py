"""How an engine looks, in every plot and table alike, and how figures are written.

The colours were searched so that any two stay apart for eyes that do not tell red from green, or blue from yellow, and
each has a contrast of 3 or more on white. No plot leans on colour alone: markers and dashes differ too.
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
    "pykka-threads": Style("#199F95", "^", "-"),
    "lock-group": Style("#111111", "D", "--"),
    "lock-global": Style("#8A1008", "X", "--"),
    "lock-striped": Style("#E9580E", "P", "--"),
    "asyncio-lock": Style("#B34BC8", "v", ":"),
    "loop-partition": Style("#808757", "*", "-."),
}
OTHER = Style("#6B6B6B", ".", "-")  # an engine that has no style yet

ACTORS = ("actor-loop", "actor-threads")  # ours; Pykka's own is another thing


def style(engine: str) -> Style:
    return STYLES.get(engine, OTHER)


def significant(value: float | None, digits: int = 3) -> str:
    """A figure to three digits that count, with commas: ``1,230``, ``0.0123``; nothing for None."""
    if value is None:
        return ""
    rounded = float(f"{value:.{digits - 1}e}")  # before its places are counted: 9.996 is 10.0
    if not rounded:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(places, 0)}f}"


def ms(us: float | None) -> str:
    """Microseconds as milliseconds."""
    return significant(None if us is None else us / 1e3)


def kb(size: float | None) -> str:
    """Bytes as kB. Less than nothing is the noise of a process's memory."""
    if size is None:
        return ""
    return "about 0" if size <= 0 else significant(size / 1e3)


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio: ``1.23``."""
    return "" if value is None else f"{value:.2f}"


def rate(value: float | None) -> str:
    """Requests a second, as far as digits mean something."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else significant(value)


def sentence(words: str) -> str:
    """Words that begin with a capital and end with a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "." if words else ""


def count(number: int, noun: str) -> str:
    """``1 group``, ``1,000 groups``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
