"""The list of groups. Its address has all that it shows: the filters, the order and the place in the list."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

from ..group_list import STATES, TYPES, GroupQuery, parse_query, select
from .row import Context, Sources


class Column(NamedTuple):
    """A column that the list can be sorted by. ``is_number``: the greatest first, when it is clicked first."""

    name: str
    title: str
    is_number: bool = False


COLUMNS: Final = (
    Column("group", "Group"),
    Column("state", "State"),
    Column("type", "Type"),
    Column("protocol_type", "Protocol"),
    Column("members", "Members", is_number=True),
    Column("topics", "Topics", is_number=True),
    Column("lag", "Lag", is_number=True),
    Column("expires_at", "Offsets expire in"),
)

FILTERS: Final = ("contains", "prefix", "state", "type", "topic", "min_lag", "guarded")


class Header(NamedTuple):
    """A column with the address that sorts by it. ``order``: as in ``aria-sort``."""

    column: Column
    href: str
    order: str


async def show(sources: Sources, request: Request) -> Context:
    given = [(name, value) for name, value in request.query_params.multi_items() if value]
    query = parse_query(given)
    snapshot = await sources.snapshots.get()
    table = snapshot.table
    page = await asyncio.to_thread(select, table, query, snapshot.now_ms)
    names, now_ms = [row.group for row in page.rows], sources.now_ms()
    last = await sources.backend.last_rebalances(names)
    trends = sources.lag_trends
    trends.note({row.group: row.lag for row in page.rows}, now_ms)
    return {
        "query": dict(given),
        "is_filtered": any(name in FILTERS for name, _ in given),
        "headers": headers(query, dict(given)),
        "rows": page.rows,
        "rebalances": last,
        "trends": {row.group: trends.per_minute(row.group, row.lag, now_ms) for row in page.rows},
        "counts": table.counts("state"),
        "total": len(table.rows),
        "incomplete": snapshot.incomplete,
        "states": STATES,
        "types": TYPES,
        "first": link(dict(given), after="") if query.after else None,
        "next": link(dict(given), after=page.after) if page.after else None,
        "now_ms": now_ms,
    }


def headers(query: GroupQuery, given: dict[str, str]) -> list[Header]:
    sorted_by = query.sort.removeprefix("-")
    is_descending = query.sort.startswith("-")
    found = []
    for column in COLUMNS:
        is_sorted = column.name == sorted_by
        descending = not is_descending if is_sorted else column.is_number
        order = ("descending" if is_descending else "ascending") if is_sorted else "none"
        found.append(
            Header(column, link(given, sort=f"-{column.name}" if descending else column.name, after=""), order)
        )
    return found


def link(given: dict[str, str], **changes: str) -> str:
    """The address of the list with other parameters; those that are "" are left out."""
    return "?" + urlencode({name: value for name, value in {**given, **changes}.items() if value})
