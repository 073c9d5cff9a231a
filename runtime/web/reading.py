"""The handlers of GET: the list of groups, one group, the groups of a topic, lag and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import JSONResponse

from ...actors.errors import CoordinatorError, ErrorCode
from ..embed.explaining import explain_group
from ..node.group_page import read_ranges
from ..settings.table import SETTINGS, Settings
from .backend import Backend
from .group_list import BadParameter, parse_query, select
from .replies import description_json, member_json, offsets_json, row_json, topic_row_json, total_lag
from .snapshots import Snapshots

GROUPS_MAX: Final = 100
"""Groups of one question about lag."""


REBALANCES_MAX: Final = 10
"""Records of an explanation."""


class Reading:
    """``backend`` answers about one group, ``snapshots`` about all groups."""

    def __init__(self, backend: Backend, snapshots: Snapshots) -> None:
        self._backend = backend
        self._snapshots = snapshots

    async def groups(self, request: Request) -> JSONResponse:
        query = parse_query(request.query_params.multi_items())
        snapshot = await self._snapshots.get()
        page = await asyncio.to_thread(select, snapshot.table, query)
        items = [row_json(row) for row in page.rows]
        return JSONResponse({"items": items, "after": page.after, "age_ms": snapshot.age_ms})

    async def group(self, request: Request) -> JSONResponse:
        group = path_text(request, "group")

        async def ask() -> dict[str, Any]:
            described = await self._backend.admin.describe(group)
            return description_json(described, await self._offsets(group))

        return JSONResponse(await self._backend.ask(ask))

    async def explain(self, request: Request) -> JSONResponse:
        group = path_text(request, "group")
        explained = await self._backend.ask(
            lambda: explain_group(self._backend.admin._requests(), group, REBALANCES_MAX)
        )
        return JSONResponse(explained.as_json())

    async def members(self, request: Request) -> JSONResponse:
        group = path_text(request, "group")
        described = await self._backend.ask(lambda: self._backend.admin.describe(group))
        return JSONResponse({"items": [member_json(member) for member in described.members]})

    async def offsets(self, request: Request) -> JSONResponse:
        group = path_text(request, "group")

        async def ask() -> list[dict[str, Any]]:
            await self._backend.admin.describe(group)  # it raises GROUP_ID_NOT_FOUND
            return await self._offsets(group)

        return JSONResponse({"items": await self._backend.ask(ask)})

    async def topic_groups(self, request: Request) -> JSONResponse:
        topic = path_text(request, "topic")
        snapshot = await self._snapshots.get()
        table = snapshot.table
        items = [topic_row_json(table.rows[position], topic) for position in table.positions(topic)]
        if not items and topic not in snapshot.ranges:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise CoordinatorError(code, f"topic {topic!r}: {code.name}, and no group has offsets of it")
        return JSONResponse({"items": items, "age_ms": snapshot.age_ms})

    async def lag(self, request: Request) -> JSONResponse:
        groups = _parse_groups(request.query_params.multi_items())

        async def ask() -> list[dict[str, Any]]:
            items = []
            for group in groups:
                offsets = await self._offsets(group)
                items.append({"group": group, "lag": total_lag(offsets), "partitions": offsets})
                await asyncio.sleep(0)
            return items

        return JSONResponse({"items": await self._backend.ask(ask)})

    async def settings(self, request: Request) -> JSONResponse:
        async def ask() -> list[dict[str, Any]]:
            node = self._backend.node()
            changed = {**node.configs.all_brokers, **node.configs.broker}
            return settings_json(node.settings, {**node.services.options.given, **dict.fromkeys(changed, "dynamic")})

        return JSONResponse({"items": await self._backend.ask(ask)})

    async def _offsets(self, group: str) -> list[dict[str, Any]]:
        """On the coordinator's loop."""
        node = self._backend.node()
        offsets = await self._backend.admin.offsets(group)
        topics = dict.fromkeys(topic for topic, _ in offsets)
        return offsets_json(offsets, await read_ranges(node.topics.get(topic) for topic in topics))


def settings_json(settings: Settings, sources: dict[str, str]) -> list[dict[str, Any]]:
    """All settings with their source: "default", "--set" or a file's name, or "dynamic" for those changed since."""
    return [
        {
            "name": setting.name,
            "value": getattr(settings, setting.name),
            "default": setting.default,
            "source": sources.get(setting.name, "default"),
            "is_dynamic": setting.is_dynamic,
            "doc": setting.doc,
        }
        for setting in SETTINGS
    ]


def path_text(request: Request, name: str) -> str:
    """A name in the path. Raises BadParameter."""
    quoted: str = request.path_params[name]
    try:
        return unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        raise BadParameter(f"{name} {quoted[:100]!r} in the path: expected UTF-8, percent-encoded") from None


def _parse_groups(parameters: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Raises BadParameter."""
    found = list(parameters)
    for name, _ in found:
        if name != "group":
            raise BadParameter(f"unknown parameter {name[:100]!r}: expected group, once for each group")
    groups = tuple(dict.fromkeys(value for _, value in found))
    if not 1 <= len(groups) <= GROUPS_MAX:
        raise BadParameter(f"{len(groups)} groups: expected 1 to {GROUPS_MAX}, as in lag?group=a&group=b")
    return groups
