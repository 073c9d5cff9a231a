"""Long tables, a page at a time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ..group_list import parse_number

ROWS_MAX: Final = 500
"""Rows of one page."""

PAGES_MAX: Final = 1_000_000


class Piece(NamedTuple):
    """A page of rows. ``first``: the index of the first one. ``previous`` and ``next``: addresses of its neighbours."""

    rows: Sequence[Any]
    first: int
    total: int
    previous: str | None
    next: str | None


def parse_page(value: str | None) -> int:
    """The number of a page, from 1. Raises BadParameter."""
    return 1 if value is None else parse_number("page", value, 1, PAGES_MAX)


def piece_of(rows: Sequence[Any], page: int, **parameters: str) -> Piece:
    """A page that is not there any more is the last one. ``parameters``: the others of the address."""
    last = max(1, -(-len(rows) // ROWS_MAX))
    page = min(page, last)
    first = (page - 1) * ROWS_MAX

    def link(number: int) -> str:
        return "?" + urlencode({**parameters, "page": number})

    before = link(page - 1) if page > 1 else None
    after = link(page + 1) if page < last else None
    return Piece(rows[first : first + ROWS_MAX], first, len(rows), before, after)
