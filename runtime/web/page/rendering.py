"""Renders pages and the page of an error. The templates escape all values, which come from clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from callboard import __version__

from ..group_rows import Pacer
from ..problems import Problem, headers_of
from .row import Context, Page
from .texts import FILTERS, shown

STATIC: Final[Mapping[str, str]] = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "idiomorph.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The files of the page, with their media types."""

LAYOUT: Final = "layout.html"
FRAGMENT: Final = "fragment.html"


def base_of(request: Request) -> str:
    """The path where the app is mounted, as in an address."""
    return quote(request.scope.get("root_path", ""))


def static_file(name: str) -> bytes:
    return files(__package__).joinpath("static", name).read_bytes()


def _template(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text("utf-8")


@cache
def environment() -> Environment:
    """The templates, with filters. An unknown name in one raises."""
    made = Environment(
        autoescape=True,
        finalize=shown,
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals["static"] = {name: f"static/{name}?{sha256(static_file(name)).hexdigest()[:12]}" for name in STATIC}
    made.globals["version"] = __version__
    return made


class Renderer:
    """``pages``: the rows of the table. Call it in a thread: it gives up the processor again and again."""

    def __init__(self, pages: tuple[Page, ...]) -> None:
        self._nav = tuple((page.path, page.nav) for page in pages if page.nav is not None)

    def page(self, request: Request, page: Page, context: Context) -> str:
        """A whole page."""
        return self._render(request, page.template, {**context, "layout": LAYOUT, "is_live": page.is_live})

    def fragment(self, request: Request, page: Page, context: Context) -> str:
        """Only what is in its element ``main``."""
        return self._render(request, page.template, {**context, "layout": FRAGMENT})

    def form(self, request: Request, template: str, context: Context) -> str:
        """A page that is not updated: what was chosen stays."""
        return self._render(request, template, {**context, "layout": LAYOUT, "is_live": False})

    def error(self, request: Request, problem: Problem) -> HTMLResponse:
        context = {"problem": problem, "layout": LAYOUT, "is_live": False}
        return HTMLResponse(self._render(request, "error.html", context), problem.status, headers_of(problem))

    def _render(self, request: Request, template: str, context: Mapping[str, Any]) -> str:
        base = base_of(request)
        here = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        chunks, pacer = [], Pacer()
        for chunk in environment().get_template(template).generate(base=base, here=here, nav=self._nav, **context):
            chunks.append(chunk)
            pacer.pause()
        return "".join(chunks)
