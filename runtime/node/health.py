"""HTTP for whoever watches a node: /metrics for Prometheus, /healthz and /readyz for whoever restarts it.

It runs on an event loop and a thread of its own, so that it still answers when the node's loop does not turn any more.
It speaks plain HTTP to everybody who reaches it and tells counts, never names of groups: give it an address that only
your own machines see.

What clients can take from the node is bounded: so many connections, header bytes and seconds, and no more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from threading import Thread
from typing import NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from .connection_limit import HTTP_CONNECTIONS_MAX

LOOP_TIMEOUT_S = 2.0  # a loop that does not turn for so long serves nobody
REQUEST_TIMEOUT_S = 10.0  # from the connection to the end of the answer
HEADER_BYTES_MAX = 8192  # of the request line and all headers
ACCEPT_PAUSE_S = 1.0  # when the process has no descriptor left
CLOSE_TIMEOUT_S = 5.0
TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """An answer. ``status`` is HTTP's."""

    status: int
    content_type: str
    body: bytes


class Pages(NamedTuple):
    """What is shown. All are called on the node's loop.

    ``not_ready`` gives the reason why clients should go elsewhere, None if they are served.
    """

    metrics: Callable[[], Awaitable[bytes]]
    not_ready: Callable[[], str | None]


class BadHttp(Exception):
    """What came is no request: the page is the answer."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.body.decode().strip())
        self.page = page


class WatchServer:
    """Serves the pages of one node from ``start`` on until ``close``; its socket is bound and listens already.

    Each connection is a task, which answers one request. When there are ``HTTP_CONNECTIONS_MAX``, the oldest one that
    has not sent its request yet is closed for a new one (or the oldest of all, if all are being answered).
    """

    def __init__(self, listening_socket: socket.socket, pages: Pages, loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._node_loop = loop
        self._listening = listening_socket
        self._loop = asyncio.SelectorEventLoop()
        self._reading: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._answering: dict[asyncio.Task[None], None] = {}
        self._thread = Thread(target=self._run, name="callboard-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, and drop those that are being answered: the loop that they ask is about to end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        self._listening.setblocking(False)
        self._listen()
        try:
            self._loop.run_forever()
        finally:
            self._listening.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.close()

    # Connections -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """One connection a turn of the loop, so that the one that is closed for it is closed before the next comes."""
        try:
            connected, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor is left
            self._loop.remove_reader(self._listening)
            self._loop.call_later(ACCEPT_PAUSE_S, self._listen)
            return
        if len(self._reading) + len(self._answering) >= HTTP_CONNECTIONS_MAX:
            self._close_oldest()
        connected.setblocking(False)
        task = self._loop.create_task(self._serve(connected))
        self._reading[task] = None
        task.add_done_callback(self._forget)

    def _close_oldest(self) -> None:
        task = next(iter(self._reading or self._answering))
        self._forget(task)
        task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._reading.pop(task, None)
        self._answering.pop(task, None)

    async def _serve(self, connected: socket.socket) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._answer(connected)
        except (OSError, TimeoutError):
            """A client that goes away, or takes too long, is none of our errors."""
        finally:
            connected.close()

    async def _answer(self, connected: socket.socket) -> None:
        is_head = False
        try:
            head = await self._read_head(connected)
            if head is None:
                return
            method, path = _parse(head)
            is_head = method == "HEAD"
            page = await self.page(path)
        except BadHttp as error:
            page = error.page
        await self._loop.sock_sendall(connected, _encode(page, is_head))
        connected.shutdown(socket.SHUT_WR)

    async def _read_head(self, connected: socket.socket) -> bytes | None:
        """The request line and the headers. None if the client hangs up before their end."""
        task = asyncio.current_task()
        assert task is not None
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) >= HEADER_BYTES_MAX:
                raise BadHttp(_text(431, f"the headers are too long, expected at most {HEADER_BYTES_MAX} bytes"))
            received = await self._loop.sock_recv(connected, HEADER_BYTES_MAX - len(head))
            if not received:
                return None
            head += received
        if self._reading.pop(task, task) is None:  # else it was closed for another one just now
            self._answering[task] = None
        return head

    # Pages -----------------------------------------------------------------------------------------------------------

    async def page(self, path: str) -> Page:
        """The answer to a GET."""
        ways: dict[str, Callable[[], Awaitable[Page]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthy,
            "/readyz": self._ready,
        }
        way = ways.get(path.partition("?")[0])
        if way is None:
            return _text(404, f"nothing is at {path[:200]!r}, expected one of {', '.join(ways)}")
        return await self._on_node_loop(way)

    async def _on_node_loop(self, way: Callable[[], Awaitable[Page]]) -> Page:
        async def run() -> Page:
            return await way()

        asking = run()
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._node_loop)
        except RuntimeError:  # it is closed
            asking.close()
            return _text(503, "the server is about to end")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), LOOP_TIMEOUT_S)
        except TimeoutError:
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


def _parse(head: bytes) -> tuple[str, str]:
    """Method and path of a request. Raises BadHttp."""
    words = head.decode("latin-1").splitlines()[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadHttp(_text(400, "expected a request line such as GET /healthz HTTP/1.1"))
    method, path, _ = words
    if method not in ("GET", "HEAD"):
        raise BadHttp(_text(405, f"method {method[:20]!r}, expected GET or HEAD"))
    return method, path


def _encode(page: Page, is_head: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        "Server: callboard",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
    )
    head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return head.encode("latin-1") + (b"" if is_head else page.body)
