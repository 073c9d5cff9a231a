"""Compaction of the log on demand: what it would read, and its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from ...actors.errors import CoordinatorError, ErrorCode
from ..embed.audited_requests import check_audit, record_change
from ..node.cluster import LogCleaner
from ..security.audit import Change
from .backend import Backend
from .changing import Body, Changing, flag, read_body
from .json_replies import JsonResponse


class Compactable(NamedTuple):
    """A partition that would be compacted, and the bytes that would be read: those that were compacted, and others."""

    partition: str
    clean_bytes: int
    dirty_bytes: int


class Compacting:
    """``backend`` has the log, and ``changing`` says on whose behalf it is compacted."""

    def __init__(self, backend: Backend, changing: Changing) -> None:
        self._backend = backend
        self._changing = changing

    async def plan(self) -> Sequence[Compactable]:
        """Raises CoordinatorError if nothing can be compacted."""

        async def ask() -> Sequence[Compactable]:
            return [Compactable(*row) for row in await self._cleaner().compactable()]

        return await self._backend.ask(ask)

    async def start(self, request: Request, body: Body) -> None:
        """Raises CompactionRuns and CoordinatorError."""

        async def make() -> None:
            node, cleaner = self._backend.node(), self._cleaner()
            check_audit(node.services.audit)
            cleaner.compact_now()
            record_change(node, "compact", Change("compact", f"Broker:{node.services.cluster.node_id}"))

        await self._changing.run(request, body, make)

    def _cleaner(self) -> LogCleaner:
        """On the coordinator's loop."""
        node = self._backend.node()
        if node.is_loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise CoordinatorError(code, f"the log: {code.name}, it can be compacted when all of it is loaded")
        if node.cleaner is None:
            code = ErrorCode.INVALID_REQUEST
            raise CoordinatorError(code, f"the log: {code.name}, it is in memory, or cannot be written any more")
        return node.cleaner

    async def answer(self, request: Request) -> JsonResponse:
        """Compact what was never compacted; or say what that would be."""
        body = await read_body(request, ("dry_run",))
        is_plan = flag(body, "dry_run")
        rows = await self.plan()
        if not is_plan:
            await self.start(request, body)
        items: list[dict[str, Any]] = [row._asdict() for row in rows]
        return JsonResponse({"is_plan": is_plan, "items": items})
