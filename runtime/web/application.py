"""``app``: the ASGI app of a coordinator."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.resources import files
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..embed.coordinator import Coordinator
from ..embed.port import port_of
from ..embed.thread import ThreadCoordinator
from .backend import Backend
from .changing import Changing
from .events import GroupEvents
from .guard import Guard, is_api
from .idempotency import IdempotentAnswers
from .page.changes import Changes
from .page.rendering import Renderer
from .page.routes import make_page_routes
from .page.row import Sources
from .page.table import PAGES
from .page.trends import Trends
from .problems import PROBLEMS, Problem, problem_json
from .reading import Reading
from .refusals import Refusals
from .resets import Resets
from .server_api import ServerApi, make_server_api
from .snapshots import Snapshots

API: Final = "/api/v1"

Handler = Callable[[Request], Awaitable[Response]]


def app(
    coordinator: Coordinator | ThreadCoordinator,
    *,
    hosts: Collection[str] | None = None,
    trusted_header: str | None = None,
) -> ASGIApp:
    """The HTTP API and the web page of a coordinator as an ASGI app, to be served or mounted. It authenticates nobody.

    The app may run on another event loop than the coordinator, which may be started later. ``hosts``: by which names,
    without port, clients may address it, against DNS rebinding; None for all. ``trusted_header``: the header in which
    an authenticating proxy, or middleware of the program, names the user for the audit trail; requests without it are
    refused.
    """
    return make_app(Backend(port_of(coordinator)), hosts, trusted_header)


def make_app(backend: Backend, hosts: Collection[str] | None, trusted_header: str | None) -> ASGIApp:
    snapshots, renderer, refusals = Snapshots(backend), Renderer(PAGES), Refusals(backend)
    changing = Changing(backend, snapshots)
    server = make_server_api(backend, changing)

    async def answer(request: Request, problem: Problem) -> Response:
        await refusals.record(request, problem)
        return problem_json(problem) if is_api(request.scope) else renderer.error(request, problem)

    routes = [
        *make_routes(backend, snapshots, changing, server),
        *make_page_routes(make_sources(backend, snapshots, changing, server), renderer),
    ]
    handlers = {kind: _answering(find, answer) for kind, find in PROBLEMS.items()}
    return Guard(QuotedPaths(Starlette(routes=routes, exception_handlers=handlers)), hosts, trusted_header, answer)


def make_sources(backend: Backend, snapshots: Snapshots, changing: Changing, server: ServerApi) -> Sources:
    return Sources(backend, snapshots, changing, Changes(), Trends(), Trends(is_counter=True), server)


def _answering(
    find: Callable[[Request, Exception], Problem], answer: Callable[[Request, Problem], Awaitable[Response]]
) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(request: Request, error: Exception) -> Response:
        return await answer(request, find(request, error))

    return handle


def make_routes(backend: Backend, snapshots: Snapshots, changing: Changing, server: ServerApi) -> list[Route]:
    reading, resets = Reading(backend, snapshots), Resets(backend, changing)
    events, once = GroupEvents(snapshots), IdempotentAnswers().once
    rows = (
        ("GET", "/groups", reading.groups),
        ("GET", "/groups/{group}", reading.group),
        ("GET", "/groups/{group}/explain", reading.explain),
        ("GET", "/groups/{group}/members", reading.members),
        ("GET", "/groups/{group}/offsets", reading.offsets),
        ("GET", "/groups/{group}/rebalances", reading.rebalances),
        ("GET", "/groups/{group}/resets", resets.of_group),
        ("GET", "/changes/{change}", resets.progress),
        ("GET", "/topics/{topic}/groups", reading.topic_groups),
        ("GET", "/lag", reading.lag),
        ("GET", "/events", events.open),
        ("GET", "/actors", server.actors.answer),
        ("GET", "/log", server.reading.log),
        ("GET", "/audit", server.reading.audit),
        ("GET", "/settings", server.settings.get),
        ("GET", "/openapi.json", openapi),
        ("PATCH", "/settings", server.settings.patch),
        ("POST", "/log/compact", once(server.compacting.answer)),
        ("POST", "/groups/{group}/evict", once(changing.evict)),
        ("POST", "/groups/{group}/reset", once(changing.reset)),
        ("POST", "/changes/{change}/undo", once(resets.undo)),
        ("DELETE", "/groups/{group}", changing.delete),
        ("DELETE", "/groups/{group}/offsets", changing.delete_offsets),
    )
    handlers: dict[str, dict[str, Handler]] = {}
    for method, path, handler in rows:
        handlers.setdefault(path, {})[method] = handler
    return [Route(API + path, _by_method(found), methods=list(found)) for path, found in handlers.items()]


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


async def openapi(request: Request) -> Response:
    """The description of this API."""
    return Response(files(__package__).joinpath("openapi.json").read_bytes(), media_type="application/json")


class QuotedPaths:
    """Routes the path as it was sent: a group's name may have a slash, which is percent-encoded then.

    The path where the app is mounted stays decoded, since Starlette compares it with ``root_path``, which is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if raw:
            scope = {**scope, "path": _quoted_path(raw.partition(b"?")[0], scope.get("root_path", ""))}
        await self._app(scope, receive, send)


def _quoted_path(raw: bytes, root_path: str) -> str:
    """The path as it was sent, but for the root path, if it begins with that."""
    root = root_path.encode()
    begin = re.match(rb"(?:%%[0-9A-Fa-f]{2}|.){%d}" % len(root), raw, re.DOTALL)
    if begin is None or unquote_to_bytes(begin[0]) != root:
        return raw.decode("latin-1")
    return root_path + raw[begin.end() :].decode("latin-1")
