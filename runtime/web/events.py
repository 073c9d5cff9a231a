"""Changes of groups as server-sent events. A reader that falls behind is told so, and its stream ends."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .backend import Unavailable
from .group_list import BadParameter
from .group_table import GroupTable
from .json_replies import encode
from .replies import row_json
from .snapshots import Snapshots

MEDIA_TYPE: Final = "text/event-stream"
STREAMS_MAX: Final = 8
"""Streams at a time. Of the connections that the server accepts, the rest is for pages and requests."""

INTERVAL_S: Final = 1.0
SILENCE_MAX: Final = 15
"""After so many intervals without a change a comment is sent."""

EVENTS_MAX: Final = 500
"""Events that are sent in one piece. While a client does not read them, none are made for it."""

RETRY_MS: Final = 3000


class GroupEvents:
    """Counts the streams that are open."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._open = 0

    async def open(self, request: Request) -> Response:
        """Raises BadParameter, and Unavailable if there are too many streams."""
        for name in request.query_params:
            raise BadParameter(f"unknown parameter {name[:100]!r}: expected none")
        if self._open >= STREAMS_MAX:
            raise Unavailable(f"{STREAMS_MAX} streams of events are open, and no more are allowed")
        await self._snapshots.get()
        return StreamingResponse(self._counted(request.headers.get("last-event-id")), media_type=MEDIA_TYPE)

    async def _counted(self, last_id: str | None) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            async for piece in self._pieces(last_id):
                yield piece
        finally:
            self._open -= 1

    async def _pieces(self, last_id: str | None) -> AsyncIterator[bytes]:
        log = self._snapshots.log
        at = log.number if last_id is None else log.parse_id(last_id)
        yield b"retry: %d\n\n" % RETRY_MS
        if at is None or log.since(at) is None:  # of another process, or too old
            at = log.number
            yield _event("missed", log.format_id(at), {"detail": "changes were missed: read the list of groups again"})
        silence = 0
        while True:
            names = log.since(at)
            if names is None:
                yield _event(
                    "behind",
                    None,
                    {"detail": "the client reads too slowly, or too many groups changed at once: the stream ends"},
                )
                return
            if names:
                at += len(names[:EVENTS_MAX])
                table = (await self._snapshots.get()).table
                yield _changes(table, dict.fromkeys(names[:EVENTS_MAX]), log.format_id(at))
                silence = 0
                continue
            silence += 1
            if silence > SILENCE_MAX:
                yield b":\n\n"
                silence = 0
            await asyncio.sleep(INTERVAL_S)
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._snapshots.get()
        except Unavailable:
            """There are no changes meanwhile."""


def _changes(table: GroupTable, names: dict[str, None], id_: str) -> bytes:
    """Groups as they are now. Only the last event has the id: a piece that came in part is sent again."""
    events = [_event(*_change(table, name)) for name in names]
    return b"".join(events[:-1]) + f"id: {id_}\n".encode() + events[-1]


def _change(table: GroupTable, name: str) -> tuple[str, None, dict[str, object]]:
    position = bisect_left(table.names, name)
    if table.names[position : position + 1] == [name]:
        return "group", None, row_json(table.rows[position])
    return "deleted", None, {"group": name}


def _event(name: str, id_: str | None, data: dict[str, object]) -> bytes:
    first = "" if id_ is None else f"id: {id_}\n"
    return f"{first}event: {name}\n".encode() + b"data: " + encode(data) + b"\n\n"
