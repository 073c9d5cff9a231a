"""The handlers of GET about the server: its actors, its log, its audit trail."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ..engine.stats import Stats
from ..node.log_figures import LogFigures, PartitionFigures, copy_log, read_log, sync_quantile_s
from ..security.audit_reading import AuditPage, Place, PlaceGone, read_audit
from .backend import Backend
from .group_list import BadParameter
from .json_replies import JsonResponse, items_response
from .paging import format_after, parse_page

RATE_INTERVAL_MIN_S: Final = 1.0
RATE_INTERVAL_MAX_S: Final = 60.0
"""Rates are over a time between these two. They are not known before somebody has asked twice."""

_PLACE: Final = re.compile(r"([0-9a-f-]{1,64}):(\d{1,18})", re.ASCII)


class Handled(NamedTuple):
    """How many messages the actors of each class had handled, and when, by the monotonic clock."""

    at_s: float
    by_class: Mapping[str, int]


class ActorsReading:
    """The statistics of actors. Keeps older ones for rates. ``clock_s``: monotonic."""

    def __init__(self, backend: Backend, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock_s = clock_s
        self._older: Handled | None = None
        self._newer: Handled | None = None

    async def read(self) -> tuple[Stats, Handled | None, float]:
        """The statistics, what had been handled some time before, None if that is not known, and the time of now."""
        system = await self._backend.ask(self._system)
        stats, now_s = await asyncio.to_thread(system.stats), self._clock_s()
        newer = self._newer
        if newer is None or now_s - newer.at_s >= RATE_INTERVAL_MIN_S:
            self._older, self._newer = newer, Handled(now_s, {row.name: row.handled for row in stats.classes})
        older = self._older
        return stats, older if older and now_s - older.at_s <= RATE_INTERVAL_MAX_S else None, now_s

    async def _system(self) -> Any:
        return self._backend.node().actors.system

    async def answer(self, request: Request) -> Response:
        return JsonResponse(actors_json(*await self.read()))


def actors_json(stats: Stats, before: Handled | None, now_s: float) -> dict[str, Any]:
    turns = stats.turns
    return {
        "items": [
            {
                "class": row.name,
                "actors": row.actors,
                "asleep": row.passivated,
                "waiting": row.waiting,
                "messages": row.handled,
                "messages_per_s": _rate(row.name, row.handled, before, now_s),
            }
            for row in stats.classes
        ],
        "turns": {
            "count": turns.turns,
            "p50_us": turns.p50_us if turns.turns else None,
            "p99_us": turns.p99_us if turns.turns else None,
            "longest_us": turns.longest_us if turns.turns else None,
        },
        "waiting_most": [{"actor": mailbox.actor, "waiting": mailbox.waiting} for mailbox in stats.deepest],
        "restarts": stats.restarts,
        "dead_letters": stats.dead_letters,
        "late_replies": stats.late_replies,
    }


def _rate(name: str, handled: int, before: Handled | None, now_s: float) -> float | None:
    if before is None or now_s <= before.at_s:
        return None
    return round((handled - before.by_class.get(name, 0)) / (now_s - before.at_s), 1)


class ServerReading:
    """The log and the audit trail."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read_log(self) -> LogFigures:
        async def ask() -> Any:
            return copy_log(self._backend.node())

        copy = await self._backend.ask(ask)
        return await asyncio.to_thread(read_log, copy)

    async def log(self, request: Request) -> Response:
        return JsonResponse(log_json(await self.read_log()))

    async def read_audit(self, limit: int, after: str) -> tuple[AuditPage, str]:
        """A page, and the setting ``audit``: only "file" keeps lines that can be read. Raises BadParameter."""
        place = parse_place(after) if after else None

        async def ask() -> Any:
            node = self._backend.node()
            return node.environment.disk, node.services.options.data, node.settings.audit

        disk, folder, kept = await self._backend.ask(ask)
        if kept != "file":
            return AuditPage((), None), kept
        try:
            return await asyncio.to_thread(read_audit, disk, folder, limit, place), kept
        except PlaceGone:
            raise BadParameter("after: this part of the audit trail was deleted; begin again without `after`") from None

    async def audit(self, request: Request) -> Response:
        page, kept = await self.read_audit(*parse_page(request.query_params.multi_items()))
        return await items_response(page.lines, after=format_place(page.after), kept=kept)


def format_place(place: Place | None) -> str | None:
    return None if place is None else format_after(f"{place.first_id}:{place.position}")


def parse_place(text: str) -> Place:
    """Raises BadParameter."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise BadParameter("after: expected the value of `after` in the previous page of the audit trail")
    return Place(match[1], int(match[2]))


def log_json(figures: LogFigures) -> dict[str, Any]:
    stats = figures.stats
    p50_s, p99_s = (sync_quantile_s(stats, share) for share in (0.5, 0.99))
    return {
        "items": [partition_json(row) for row in figures.partitions],
        "journal": {"files": stats.journal_files, "bytes": stats.journal_bytes, "waiting_bytes": stats.waiting_bytes},
        "syncs": {"count": stats.syncs, "p50_ms": _ms(p50_s), "p99_ms": _ms(p99_s)},
        "damages": figures.damages,
        "is_compacting": figures.is_compacting,
        "full": list(stats.full),
        "failure": stats.failure or None,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def partition_json(row: PartitionFigures) -> dict[str, Any]:
    files = row.files
    compacted_ms = files.compacted_at_ms if files else None
    return {
        "partition": row.name,
        "end_offset": row.end_offset,
        "segments": files.segments if files else None,
        "bytes": files.log_bytes if files else None,
        "dirty_ratio": round(files.dirty_bytes / files.log_bytes, 3) if files and files.log_bytes else None,
        "compacted_at": None if compacted_ms is None else datetime.fromtimestamp(compacted_ms / 1000, UTC).isoformat(),
        "damages": row.damages,
        "failure": row.failure or None,
    }
