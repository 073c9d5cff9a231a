"""The list of groups: its parameters, its filters, its order and its cursor. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ...actors.group.kinds import KINDS
from ...actors.text import did_you_mean
from .group_rows import GroupRow, Pacer
from .group_table import COLUMNS, TEXT_COLUMNS, Cursor, GroupTable, Mask

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 1000
COUNT_MAX: Final = 2**63 - 1
STATES: Final = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.state_names))
TYPES: Final = ("classic", "consumer")


class BadParameter(ValueError):
    """A parameter is invalid. The text names the value, and says what was expected."""


class GroupQuery(NamedTuple):
    """``states`` and ``types`` are lower case; nothing there means all. ``sort``: a column, after "-" if descending.

    ``contains``: a part of the name, in lower or upper case. ``guarded``: whether a reset is guarded; None for all.
    ``after``: the last row of the previous page.
    """

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    prefix: str = ""
    contains: str = ""
    topic: str = ""
    guarded: bool | None = None
    min_lag: int | None = None
    sort: str = "group"
    limit: int = LIMIT_DEFAULT
    after: Cursor | None = None


class GroupsPage(NamedTuple):
    """Rows in the order of the query. ``after``: the cursor of the next page; None on the last one."""

    rows: Sequence[GroupRow]
    after: str | None


SORTS: Final = (*COLUMNS, *(f"-{name}" for name in COLUMNS))


def parse_query(parameters: Iterable[tuple[str, str]]) -> GroupQuery:
    """Each parameter at most once. Raises BadParameter."""
    found: dict[str, Any] = {}
    cursor = ""
    for name, value in parameters:
        if name in found or (name == "after" and cursor):
            raise BadParameter(f"{name}={value[:100]!r}: the parameter is there twice, expected it once")
        if name == "after":
            cursor = value
        elif name in _PARSERS:
            field, parse = _PARSERS[name]
            found[name] = (field, parse(value))
        else:
            known = (*_PARSERS, "after")
            raise BadParameter(
                f"unknown parameter {name[:100]!r};{did_you_mean(name, known)} expected some of {', '.join(known)}"
            )
    query = GroupQuery(**dict(found.values()))
    return query._replace(after=_parse_cursor(cursor, query.sort)) if cursor else query


def select(table: GroupTable, query: GroupQuery, now_ms: int) -> GroupsPage:
    """The page that a query asks for. ``now_ms``: since 1970. It computes for long, so it is called in a thread."""
    order = table.order(query.sort)
    wanted = _wanted(table, query, now_ms)
    positions = order[wanted[order]][: query.limit + 1]
    rows = [table.rows[position] for position in positions]
    if len(rows) <= query.limit:
        return GroupsPage(rows, None)
    return GroupsPage(rows[: query.limit], _format_cursor(query.sort, rows[query.limit - 1]))


def _wanted(table: GroupTable, query: GroupQuery, now_ms: int) -> Mask:
    wanted = table.everything()
    if query.states:
        wanted &= table.has_word("state", query.states)
    if query.types:
        wanted &= table.has_word("type", query.types)
    if query.prefix:
        wanted &= table.has_prefix(query.prefix)
    if query.contains:
        wanted &= table.contains(query.contains, Pacer())
    if query.guarded is not None:
        wanted &= table.is_guarded(now_ms) == query.guarded
    if query.min_lag is not None:
        wanted &= table.lags >= query.min_lag
    if query.after is not None:
        wanted &= table.is_after(query.sort, query.after)
    if query.topic:
        wanted &= table.has_topic(query.topic)
    return wanted


# The cursor ----------------------------------------------------------------------------------------------------------


def _format_cursor(sort: str, row: GroupRow) -> str:
    value = COLUMNS[sort.removeprefix("-")](row)
    return base64.urlsafe_b64encode(json.dumps([sort, value, row.group]).encode()).decode().rstrip("=")


def _parse_cursor(text: str, sort: str) -> Cursor:
    """Raises BadParameter, also for the cursor of another order."""
    try:
        padded = text + "=" * (-len(text) % 4)
        cursor_sort, value, group = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        raise _bad_cursor(text) from None
    if cursor_sort in SORTS and cursor_sort != sort:
        raise BadParameter(f"after={text[:100]!r}: a cursor of sort={cursor_sort}, expected one of sort={sort}")
    is_text = sort.removeprefix("-") in TEXT_COLUMNS
    is_count = type(value) is int and 0 <= value <= COUNT_MAX
    if type(group) is not str or not (isinstance(value, str) if is_text else value is None or is_count):
        raise _bad_cursor(text)
    return Cursor(value, group)


def _bad_cursor(text: str) -> BadParameter:
    return BadParameter(f"after={text[:100]!r}: expected the value of `after` in the previous page")


# Parameters ----------------------------------------------------------------------------------------------------------


def parse_number(name: str, value: str, lowest: int, highest: int) -> int:
    """Raises BadParameter."""
    if not (value.isascii() and value.isdigit() and len(value) <= 19 and lowest <= int(value) <= highest):
        raise BadParameter(f"{name}={value[:100]!r}: expected a whole number from {lowest} to {highest}")
    return int(value)


def _words(name: str, allowed: Sequence[str]) -> Callable[[str], frozenset[str]]:
    def parse(value: str) -> frozenset[str]:
        lower = {word.lower() for word in allowed}
        words = value.split(",")
        for word in words:
            if word.lower() not in lower:
                hint = did_you_mean(word, allowed)
                raise BadParameter(f"{name}={word[:100]!r}:{hint} expected some of {', '.join(allowed)}, with commas")
        return frozenset(word.lower() for word in words)

    return parse


def _text(name: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not value:
            raise BadParameter(f"{name}='': expected a text, or leave the parameter out")
        return value

    return parse


def _parse_guarded(value: str) -> bool:
    if value not in ("true", "false"):
        raise BadParameter(f"guarded={value[:100]!r}: expected true or false")
    return value == "true"


def _parse_sort(value: str) -> str:
    if value not in SORTS:
        raise BadParameter(
            f"sort={value[:100]!r}:{did_you_mean(value, SORTS)} expected one of {', '.join(COLUMNS)}, after a - for"
            " descending"
        )
    return value


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "state": ("states", _words("state", STATES)),
    "type": ("types", _words("type", TYPES)),
    "prefix": ("prefix", _text("prefix")),
    "contains": ("contains", _text("contains")),
    "topic": ("topic", _text("topic")),
    "guarded": ("guarded", _parse_guarded),
    "min_lag": ("min_lag", lambda value: parse_number("min_lag", value, 0, COUNT_MAX)),
    "sort": ("sort", _parse_sort),
    "limit": ("limit", lambda value: parse_number("limit", value, 1, LIMIT_MAX)),
}
"""By parameter: the field of the query, and the function that parses its value."""
