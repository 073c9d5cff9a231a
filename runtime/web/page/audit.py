"""The audit trail of the server, the newest line first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from ..paging import parse_page
from ..server_reading import format_place
from .row import Context, Sources

ALWAYS: Final = frozenset(
    {"time", "id", "kind", "principal", "host", "port", "operation", "resource", "reason", "api", "mechanism"}
)
"""Fields that are in columns, or mean little. The others are under "details"."""

VALUE_CHARACTERS_MAX: Final = 2000


class AuditRow(NamedTuple):
    """``what``: as in "delete Group:orders". ``details``: the other fields, by name, as texts."""

    time_ms: int
    kind: str
    who: str
    host: str
    what: str
    api: str
    reason: str
    details: Mapping[str, str]


async def show(sources: Sources, request: Request) -> Context:
    limit, after = parse_page(request.query_params.multi_items())
    page, kept = await sources.server.reading.read_audit(limit, after)
    return {
        "rows": [row_of(line) for line in page.lines],
        "after": format_place(page.after),
        "is_first": not after,
        "limit": limit,
        "kept": kept,
        "now_ms": sources.now_ms(),
    }


def row_of(line: Mapping[str, Any]) -> AuditRow:
    what = (line.get("operation"), line.get("resource")) if "operation" in line else (line.get("mechanism"),)
    details = {name: _text(value) for name, value in line.items() if name not in ALWAYS}
    return AuditRow(
        round(datetime.fromisoformat(str(line["time"])).timestamp() * 1000),
        str(line["kind"]),
        str(line.get("principal", "")),
        str(line.get("host", "")),
        " ".join(str(word) for word in what if word),
        str(line.get("api", "")),
        str(line.get("reason", "")),
        details,
    )


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."
