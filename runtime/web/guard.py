"""Guard: what each request passes before it is handled, and the headers that each answer gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..settings.address import host_name
from .problems import Problem

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
SAME_ORIGIN: Final = "same-origin"
USER_KEY: Final = "callboard.user"
"""The name in the scope of a request under which the user of an authenticating proxy is found."""

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """``hosts``: the names in the header Host that are accepted, without port; None for all.

    ``trusted_header``: the header in which an authenticating proxy names the user; requests without it are refused.
    ``answer``: makes the answer to a request that is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] | None,
        trusted_header: str | None,
        answer: Callable[[Request, Problem], Awaitable[Response]],
    ) -> None:
        self._app = app
        self._answer = answer
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._trusted_header = trusted_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    sent.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            response = await self._answer(Request(scope), refusal)
            await response(scope, receive, send_with_headers)
            return
        user = headers.get(self._trusted_header, "") if self._trusted_header else ""
        await self._app({**scope, USER_KEY: user}, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        """Why a request is refused; None if it is not."""
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return Problem(421, f"Host {host[:100]!r}: expected one of {', '.join(sorted(self._hosts))}")
        if self._trusted_header and [*map(bool, headers.getlist(self._trusted_header))] != [True]:
            return Problem(
                401,
                f"the header {self._trusted_header} is missing, empty or there twice: the proxy in front of this "
                "server has to set it, and to remove what clients send",
            )
        return None if scope["method"] in SAFE_METHODS else _change_refusal(is_api(scope), host, headers)


def is_api(scope: Scope) -> bool:
    """Whether a request asks the API, whose errors are problem details. Those of the page are for people."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.startswith("/api/")


def _change_refusal(is_api: bool, host: str, headers: Headers) -> Problem | None:
    """A page of another site can make a browser send a form, but not with JSON, and not with this origin.

    A form has a token besides, see ``page/tokens.py``.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    expected = JSON if is_api else FORM
    if content_type != expected:
        return Problem(415, f"Content-Type {content_type[:100]!r}: expected {expected}")
    site = headers.get("sec-fetch-site", SAME_ORIGIN)
    if site != SAME_ORIGIN:
        return Problem(403, f"Sec-Fetch-Site {site[:100]!r}: expected a request of a page of this server")
    origin = headers.get("origin")
    if origin is None and not is_api:
        return Problem(403, "no Origin: expected that of this server, which browsers send with a form")
    if origin is not None and (not host or _host_of(origin) != host.lower()):
        return Problem(403, f"Origin {origin[:100]!r}: expected none, or that of the host {host[:100]!r}")
    return None


def _host_of(origin: str) -> str:
    """Host and port in lower case; empty for what is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
