"""The handlers of resets that were made: the last ones of a group, what has become of one, and its undo."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from .backend import Backend
from .changing import Changing, flag, read_body
from .json_replies import JsonResponse
from .reading import path_text
from .replies import change_json, progress_json, reset_json


class Resets:
    """``backend`` knows them, and ``changing`` undoes one."""

    def __init__(self, backend: Backend, changing: Changing) -> None:
        self._backend = backend
        self._changing = changing

    async def of_group(self, request: Request) -> JsonResponse:
        group = path_text(request, "group")
        changes = await self._backend.ask(lambda: self._backend.admin.resets(group))
        return JsonResponse({"items": await asyncio.to_thread(lambda: list(map(change_json, changes)))})

    async def progress(self, request: Request) -> JsonResponse:
        change_id = path_text(request, "change")
        return JsonResponse(
            progress_json(await self._backend.ask(lambda: self._backend.admin.reset_progress(change_id)))
        )

    async def undo(self, request: Request) -> JsonResponse:
        change_id, body = path_text(request, "change"), await read_body(request, ("dry_run",))
        is_plan, reason = flag(body, "dry_run"), body["reason"]
        made = await self._changing.run(
            request, body, lambda: self._backend.admin.undo_reset(change_id, reason=reason, dry_run=is_plan)
        )
        await self._changing.reread(made.group)
        return JsonResponse(await asyncio.to_thread(reset_json, made, is_plan))
