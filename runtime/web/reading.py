"""The handlers of GET: the list of groups, one group, the groups of a topic, lag and settings."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.recorder.flight_recorder import RECORDS_KEPT
from ...actors.recorder.record import as_json
from ..embed.results import CommittedOffset, GroupDescription, TopicPartition
from ..node.group_figures import TopicRanges
from .backend import Backend
from .commit_times import CommitTimes, read_commit_times
from .group_list import BadParameter, parse_number, parse_query, select
from .json_replies import JsonResponse, items_response
from .paging import format_after, parse_page
from .replies import description_json, listed_json, member_json, offsets_json, topic_row_json, total_lag
from .snapshots import Snapshots

GROUPS_MAX: Final = 100
"""Groups of one question about lag."""


REBALANCES_MAX: Final = 10
"""Records of an explanation."""


class FoundOffsets(NamedTuple):
    """The committed offsets of a group, the offsets of the topics that they are of, and when both were made."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    ranges: TopicRanges
    times: CommitTimes

    def rows(self) -> list[dict[str, Any]]:
        return list(self.iterate())

    def iterate(self) -> Iterator[dict[str, Any]]:
        return offsets_json(self.offsets, self.ranges, self.times)


class Reading:
    """``backend`` answers about one group, ``snapshots`` about all groups. Answers are made outside of its loop."""

    def __init__(self, backend: Backend, snapshots: Snapshots) -> None:
        self._backend = backend
        self._snapshots = snapshots

    async def groups(self, request: Request) -> Response:
        query = parse_query(request.query_params.multi_items())
        snapshot = await self._snapshots.get()
        page = await asyncio.to_thread(select, snapshot.table, query, snapshot.now_ms)
        last = await self._backend.last_rebalances([row.group for row in page.rows])
        items = (listed_json(row, last.get(row.group)) for row in page.rows)
        return await items_response(items, after=page.after, age_ms=snapshot.age_ms, incomplete=snapshot.incomplete)

    async def group(self, request: Request) -> Response:
        group = path_text(request, "group")

        async def ask() -> tuple[GroupDescription, FoundOffsets]:
            return await self._backend.admin.describe(group), await self._offsets(group)

        described, found = await self._backend.ask(ask)
        return JsonResponse(await asyncio.to_thread(lambda: description_json(described, found.rows())))

    async def explain(self, request: Request) -> Response:
        group = path_text(request, "group")
        explained = await self._backend.ask(lambda: self._backend.admin.explain(group, limit=REBALANCES_MAX))
        return JsonResponse(explained.as_json())

    async def rebalances(self, request: Request) -> Response:
        group = path_text(request, "group")
        limit = _parse_limit(request.query_params.multi_items())
        found = await self._backend.ask(lambda: self._backend.admin.rebalances(group, limit=limit))
        return await items_response(map(as_json, found))

    async def members(self, request: Request) -> Response:
        group = path_text(request, "group")
        described = await self._backend.ask(lambda: self._backend.admin.describe(group))
        return await items_response(map(member_json, described.members))

    async def offsets(self, request: Request) -> Response:
        group = path_text(request, "group")

        async def ask() -> FoundOffsets:
            await self._backend.admin.describe(group)  # it raises GROUP_ID_NOT_FOUND
            return await self._offsets(group)

        found = await self._backend.ask(ask)
        return await items_response(found.iterate())

    async def topic_groups(self, request: Request) -> Response:
        topic = path_text(request, "topic")
        limit, after = parse_page(request.query_params.multi_items())
        snapshot = await self._snapshots.get()
        positions = snapshot.table.positions(topic)
        if not positions and topic not in snapshot.ranges:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise CoordinatorError(code, f"topic {topic!r}: {code.name}, and no group has offsets of it")
        rows = snapshot.table.rows
        first = bisect_right(positions, after, key=lambda position: rows[position].group) if after else 0
        page = [rows[position] for position in positions[first : first + limit]]
        next_page = format_after(page[-1].group) if first + limit < len(positions) else None
        items = (topic_row_json(row, topic) for row in page)
        return await items_response(items, after=next_page, age_ms=snapshot.age_ms, incomplete=snapshot.incomplete)

    async def lag(self, request: Request) -> Response:
        groups = _parse_groups(request.query_params.multi_items())

        async def ask() -> list[FoundOffsets]:
            return [await self._offsets(group) for group in groups]

        found = await self._backend.ask(ask)
        return await items_response(_lag_json(*each) for each in zip(groups, found, strict=True))

    async def _offsets(self, group: str) -> FoundOffsets:
        """On the coordinator's loop."""
        offsets = await self._backend.admin.offsets(group)
        topics = dict.fromkeys(topic for topic, _ in offsets)
        times = await read_commit_times(self._backend.node(), group, offsets)
        return FoundOffsets(offsets, await self._backend.ranges(topics), times)


def _lag_json(group: str, found: FoundOffsets) -> dict[str, Any]:
    rows = found.rows()
    return {"group": group, "lag": total_lag(rows), "partitions": rows}


def path_text(request: Request, name: str) -> str:
    """A name in the path. Raises BadParameter."""
    quoted: str = request.path_params[name]
    try:
        return unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        raise BadParameter(f"{name} {quoted[:100]!r} in the path: expected UTF-8, percent-encoded") from None


def _parse_limit(parameters: Iterable[tuple[str, str]]) -> int:
    """Raises BadParameter."""
    limit = RECORDS_KEPT
    for name, value in parameters:
        if name != "limit":
            raise BadParameter(f"unknown parameter {name[:100]!r}: expected limit")
        limit = parse_number(name, value, 1, RECORDS_KEPT)
    return limit


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
