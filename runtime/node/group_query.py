"""The query of /metrics/groups: which groups, in which order, and with whose names. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from .group_figures import GroupFigures
from .group_series import STYLES
from .topic_regexes import InvalidRegex, compile_regex

DEFAULT_TOP = 200
TOP_MAX = 1000
"""Groups on a page."""

REGEX_CHARACTERS_MAX = 256

ORDERS: dict[str, Callable[[GroupFigures], Any]] = {
    "lag": lambda group: (-group.known_lag, group.group_id),
    "members": lambda group: (-group.members, group.group_id),
    "name": lambda group: group.group_id,
}
"""The values of ``by``: the groups with the lowest keys are on the page."""


class InvalidQuery(Exception):
    """The text says what was expected."""


class GroupQuery(NamedTuple):
    """``group``: a regular expression that matches a whole group id; "" for all groups. ``top``: how many groups."""

    style: str = "kafka_exporter"
    group: str = ""
    top: int = DEFAULT_TOP
    by: str = "lag"


def parse_query(text: str) -> GroupQuery:
    """Raises InvalidQuery."""
    query = GroupQuery()
    try:
        fields = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=8)
    except ValueError:
        raise InvalidQuery(f"the query {text[:200]!r}: expected fields such as style=kminion&top=50") from None
    for name, value in fields:
        parse = _FIELDS.get(name)
        if parse is None:
            raise InvalidQuery(f"unknown field {name[:40]!r}, expected one of {', '.join(_FIELDS)}")
        query = query._replace(**{name: parse(value)})
    return query


def _parse_top(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and 1 <= int(value) <= TOP_MAX):
        raise InvalidQuery(f"top={value[:40]!r}: expected a number from 1 to {TOP_MAX}")
    return int(value)


def _parse_group(value: str) -> str:
    if len(value) > REGEX_CHARACTERS_MAX:
        raise InvalidQuery(f"group= has {len(value)} characters, expected at most {REGEX_CHARACTERS_MAX}")
    return value


def _choice(name: str, choices: dict[str, Any]) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise InvalidQuery(f"{name}={value[:40]!r}: expected one of {', '.join(choices)}")
        return value

    return parse


_FIELDS: dict[str, Callable[[str], Any]] = {
    "style": _choice("style", STYLES),
    "group": _parse_group,
    "top": _parse_top,
    "by": _choice("by", ORDERS),
}


def matcher(regex: str) -> Callable[[str], Any]:
    """The result is true for a group id that matches as a whole. Raises InvalidQuery.

    The library's time is proportional to the length of the id, whatever the expression is.
    """
    if not regex:
        return bool
    try:
        return compile_regex(regex)
    except ImportError:
        raise InvalidQuery("group= needs the package google-re2: pip install 'callboard[regex]'") from None
    except InvalidRegex as error:
        raise InvalidQuery(f"group= is not a valid regular expression: {error}") from None
