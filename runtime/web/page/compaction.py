"""The form that compacts the log: what would be read, and a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ....actors.errors import CoordinatorError
from ...common.errors import CompactionRuns
from ..changing import check_reason, read_bytes
from ..compacting import Compactable
from ..problems import BadBody, problem_of
from .actors import refuse_parameters
from .fields import one, parse_form
from .rendering import Renderer, base_of
from .row import Sources
from .tokens import FIELD, Tokens

TEMPLATE: Final = "compaction.html"


def make_compaction_route(sources: Sources, renderer: Renderer) -> Route:
    return Route("/log/compact", CompactionForm(sources, renderer).answer, methods=["GET", "POST"])


class CompactionForm:
    """The form of a compaction on demand."""

    def __init__(self, sources: Sources, renderer: Renderer) -> None:
        self._compacting = sources.server.compacting
        self._renderer = renderer
        self._tokens = Tokens()

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            refuse_parameters(request)
            return await self._show(request)
        fields = parse_form(await read_bytes(request))
        self._tokens.check(request, one(fields, FIELD))
        reason = one(fields, "reason")
        try:
            check_reason(reason)
            await self._compacting.start(request, {"reason": reason})
        except (BadBody, CoordinatorError, CompactionRuns) as error:
            problem = problem_of(request, error)
            return await self._show(request, reason, problem.detail, problem.status)
        return RedirectResponse(f"{base_of(request)}/log", 303)

    async def _show(self, request: Request, reason: str = "", problem: str = "", status: int = 200) -> Response:
        rows: Sequence[Compactable] = ()
        obstacle = ""
        try:
            rows = await self._compacting.plan()
        except CoordinatorError as error:
            obstacle = str(error)
        browser = self._tokens.browser(request)
        context = {
            "rows": rows,
            "reason": reason,
            "problem": problem,
            "obstacle": obstacle,
            "token": self._tokens.token(request, browser),
        }
        response = HTMLResponse(self._renderer.form(request, TEMPLATE, context), status)
        self._tokens.remember(response, request, browser)
        return response
