"""The settings of the server, and the form that changes a dynamic one."""

from __future__ import annotations

from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ....actors.errors import CoordinatorError
from ..changing import check_reason, read_bytes
from ..problems import BadBody, problem_of
from ..reading import path_text
from ..server_settings import from_text
from .actors import refuse_parameters
from .fields import one, parse_form
from .rendering import Renderer, base_of
from .row import Context, Sources
from .tokens import FIELD, Tokens

TEMPLATE: Final = "setting.html"


async def show(sources: Sources, request: Request) -> Context:
    refuse_parameters(request)
    return {"settings": await sources.server.settings.read()}


def make_setting_route(sources: Sources, renderer: Renderer) -> Route:
    return Route("/settings/{setting}", SettingForm(sources, renderer).answer, methods=["GET", "POST"])


class SettingForm:
    """The form of a dynamic setting."""

    def __init__(self, sources: Sources, renderer: Renderer) -> None:
        self._sources = sources
        self._renderer = renderer
        self._tokens = Tokens()

    async def answer(self, request: Request) -> Response:
        setting = await self._find(path_text(request, "setting"))
        if request.method != "POST":
            return self._show(request, setting, setting["value"])
        fields = parse_form(await read_bytes(request))
        self._tokens.check(request, one(fields, FIELD))
        is_back = bool(one(fields, "back"))
        text, reason = one(fields, "value"), one(fields, "reason")
        try:
            check_reason(reason)
            if not text and not is_back:
                raise BadBody(f"{setting['name']}: expected a value")
            value = None if is_back else from_text(setting["name"], text)
            await self._sources.server.settings.change(request, {"reason": reason}, {setting["name"]: value})
        except (BadBody, CoordinatorError) as error:
            problem = problem_of(request, error)
            return self._show(request, setting, text, problem.detail, problem.status)
        return RedirectResponse(f"{base_of(request)}/settings#{setting['name']}", 303)

    async def _find(self, name: str) -> dict[str, Any]:
        """Raises HTTPException for one that is not dynamic."""
        for row in await self._sources.server.settings.read():
            if row["name"] == name and row["is_dynamic"]:
                return row
        raise HTTPException(404)

    def _show(
        self, request: Request, setting: dict[str, Any], value: Any, problem: str = "", status: int = 200
    ) -> Response:
        browser = self._tokens.browser(request)
        context = {
            "setting": setting,
            "value": value,
            "problem": problem,
            "token": self._tokens.token(request, browser),
        }
        response = HTMLResponse(self._renderer.form(request, TEMPLATE, context), status)
        self._tokens.remember(response, request, browser)
        return response
