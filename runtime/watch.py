"""The window for whoever watches a node: /metrics for Prometheus, /healthz and /readyz for whoever restarts it.

It answers on threads of its own, so that it can still say so when the loop does not turn any more. It speaks plain HTTP
to everybody who reaches it and tells counts, never names of groups: give it an address that only your own machines see.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as LateError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_LATEST

LOOP_TIMEOUT_S = 2.0  # a loop that does not turn for so long serves nobody
REQUEST_TIMEOUT_S = 10.0  # whoever sends half a request and waits is cut off
POLL_S = 0.05  # how soon a close is noticed
TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """An answer. ``status`` is HTTP's."""

    status: int
    content_type: str
    body: bytes


class Pages(NamedTuple):
    """What the window shows. All are called on the loop.

    ``not_ready`` gives the reason why clients should go elsewhere, None if they are served.
    """

    metrics: Callable[[], Awaitable[bytes]]
    not_ready: Callable[[], str | None]


class WatchServer:
    """Serves the pages of one node from ``start`` on until ``close``; its socket is bound and listens already."""

    def __init__(self, listening_socket: socket.socket, pages: Pages, loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._loop = loop
        self._server = _Server(listening_socket, self.page)
        self._thread = Thread(target=self._server.serve_forever, args=(POLL_S,), name="callboard-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take no more requests. One that is being answered is not waited for: the loop that it asks is ours."""
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str) -> Page:
        """The answer to a GET; called on the server's threads."""
        ways: dict[str, Callable[[], Awaitable[Page]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthy,
            "/readyz": self._ready,
        }
        way = ways.get(path.partition("?")[0])
        if way is None:
            return _text(404, f"nothing is at {path[:200]!r}, expected one of {', '.join(ways)}")
        return self._on_loop(way)

    def _on_loop(self, way: Callable[[], Awaitable[Page]]) -> Page:
        async def run() -> Page:
            return await way()

        try:
            future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        except RuntimeError:  # it is closed
            return _text(503, "the server is about to end")
        try:
            return future.result(LOOP_TIMEOUT_S)
        except (LateError, CancelledError):
            future.cancel()
            return _text(503, f"the server's loop has not answered for {LOOP_TIMEOUT_S:.0f} s")

    async def _metrics(self) -> Page:
        return Page(200, CONTENT_TYPE_LATEST, await self._pages.metrics())

    async def _healthy(self) -> Page:
        return _text(200, "healthy")

    async def _ready(self) -> Page:
        reason = self._pages.not_ready()
        return _text(200, "ready") if reason is None else _text(503, reason)


def _text(status: int, text: str) -> Page:
    return Page(status, TEXT, text.encode() + b"\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening_socket: socket.socket, page: Callable[[str], Page]) -> None:
        super().__init__(listening_socket.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the one that the constructor makes: ours may be of another family
        self.socket = listening_socket
        self.page = page

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of its answer is none of our errors."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server_version = "callboard"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        page = self.server.page(self.path)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Every scrape in the log would be noise."""
