"""The routes of the pages and of their files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ..problems import problem_of
from .compaction import make_compaction_route
from .forms import make_form_routes
from .rendering import STATIC, Renderer, static_file
from .row import Page, Sources
from .settings import make_setting_route
from .streams import Streams, wants_stream
from .table import PAGES

FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
"""The address of a file has a hash of its content."""


def make_page_routes(sources: Sources, renderer: Renderer) -> list[Route]:
    streams = Streams()
    routes = [Route(page.path, _handler(page, sources, renderer, streams), methods=["GET"]) for page in PAGES]
    return [
        *routes,
        *make_form_routes(sources, renderer),
        make_setting_route(sources, renderer),
        make_compaction_route(sources, renderer),
        Route("/static/{name}", static, methods=["GET"]),
    ]


def _handler(
    page: Page, sources: Sources, renderer: Renderer, streams: Streams
) -> Callable[[Request], Awaitable[Response]]:
    async def fragment(request: Request) -> str:
        context = await page.show(sources, request)
        return await asyncio.to_thread(renderer.fragment, request, page, context)

    async def handle(request: Request) -> Response:
        if page.is_live and wants_stream(request):
            return streams.open(lambda: fragment(request), lambda error: problem_of(request, error).detail)
        context = await page.show(sources, request)
        return HTMLResponse(await asyncio.to_thread(renderer.page, request, page, context))

    return handle


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(static_file(name), media_type=STATIC[name], headers=FOREVER)
