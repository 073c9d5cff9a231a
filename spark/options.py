"""The options of the data source: what they mean, and what is refused.

They take the place of pushed-down filters, with which Spark counts wrongly: it keeps one reader for all queries of a
DataFrame, so the filter of the first would hold for the second. An option is part of the DataFrame, and cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .columns import ALL, KINDS

RECORDS, LIVE = "records", "live"
FAILFAST, PERMISSIVE = "failfast", "permissive"
EARLIEST, LATEST = "earliest", "latest"
PARTITION_MAX = 1_000_000  # more partitions than any topic has: a larger number is a slip


class Options(NamedTuple):
    """What a reader is to read. None where everything is meant.

    ``live``: only the newest record of each key, none that is deleted. ``since_ms``: records from that time on, in ms
    since 1970. ``is_patient``: damage gives a row that names it, and not an error. ``rows_per_trigger`` counts log
    offsets of a stream, all partitions together.
    """

    path: str
    live: bool = False
    partitions: frozenset[int] | None = None
    groups: frozenset[str] | None = None
    since_ms: int | None = None
    kinds: frozenset[str] = frozenset(KINDS)
    columns: tuple[str, ...] = tuple(ALL)
    is_patient: bool = False
    from_latest: bool = False
    rows_per_trigger: int | None = None


def parse(given: Mapping[str, str]) -> Options:
    """ValueError names the option, what was found and what was expected. Names of options do not mind their case."""
    lower = {name.lower(): text for name, text in given.items()}
    unknown = sorted(lower.keys() - _PARSERS.keys() - {"path"})
    if unknown:
        raise ValueError(f"unknown option '{unknown[0]}'; expected some of {', '.join(_PARSERS)}")
    if not lower.get("path"):
        raise ValueError("no path was given; expected .load(DIR) with a data folder, or with a log folder of Kafka's")
    return Options(lower["path"], **dict(_PARSERS[name](text) for name, text in lower.items() if name != "path"))


def _choice(field: str, name: str, no: str, yes: str) -> Callable[[str], tuple[str, Any]]:
    def parse(text: str) -> tuple[str, Any]:
        if text.lower() not in (no, yes):
            raise ValueError(f"bad {name} '{text}': expected {no} or {yes}")
        return field, text.lower() == yes

    return parse


def _partitions(text: str) -> tuple[str, Any]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first, first]
        if not all(number.isdecimal() and int(number) < PARTITION_MAX for number in numbers):
            raise ValueError(f"bad partitions '{part.strip()}': expected numbers and ranges, as in 0,3-5")
        found.update(range(int(numbers[0]), int(numbers[1]) + 1))
    return "partitions", frozenset(found)


def _groups(text: str) -> tuple[str, Any]:
    """Names with a comma in them need the JSON form."""
    if not text.lstrip().startswith("["):
        return "groups", frozenset(text.split(","))
    try:
        names = json.loads(text)
    except ValueError as error:
        raise ValueError(f"bad groups '{text}': {error}; expected a JSON list, or names with commas between") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"bad groups '{text}': expected strings in the list")
    return "groups", frozenset(names)


def _since(text: str) -> tuple[str, Any]:
    if text.strip().isdecimal():
        return "since_ms", int(text)
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"bad since '{text}': expected 2026-11-21T08:00:00Z, or ms since 1970") from None
    return "since_ms", round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _some_of(field: str, name: str, known: tuple[str, ...]) -> Callable[[str], tuple[str, Any]]:
    def parse(text: str) -> tuple[str, Any]:
        asked = [part.strip() for part in text.split(",")]
        for one in asked:
            if one not in known:
                raise ValueError(f"bad {name} '{one}': expected some of {', '.join(known)}")
        return field, tuple(dict.fromkeys(asked)) if field == "columns" else frozenset(asked)

    return parse


def _rows(text: str) -> tuple[str, Any]:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"bad rowsPerTrigger '{text}': expected a number from 1 on")
    return "rows_per_trigger", int(text)


_PARSERS: dict[str, Callable[[str], tuple[str, Any]]] = {
    "mode": _choice("live", "mode", RECORDS, LIVE),
    "partitions": _partitions,
    "groups": _groups,
    "since": _since,
    "kind": _some_of("kinds", "kind", KINDS),
    "columns": _some_of("columns", "columns", tuple(ALL)),
    "damage": _choice("is_patient", "damage", FAILFAST, PERMISSIVE),
    "startingoffsets": _choice("from_latest", "startingOffsets", EARLIEST, LATEST),
    "rowspertrigger": _rows,
}
