"""HTTP endpoints for monitoring: /metrics for Prometheus, /healthz and /readyz for a supervisor or load balancer.

It runs on its own thread and event loop, so that it still answers when the node's loop is blocked. It serves plain HTTP
without authentication, and shows names of groups only if that is asked for. Bind it to an address in a trusted network.

A page of another site, in a browser on this machine, may reach a loopback address by a name of its own (DNS rebinding).
So there the names of groups are shown only to clients that ask for localhost or an IP address. The other pages have
figures of the server, and nobody's names, so they need no check.

The resources that clients can use are limited: connections, header bytes and seconds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qsl

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ..common.ip_addresses import parse_ip
from ..settings.address import LOCALHOST, host_name, is_loopback
from .connection_limit import HTTP_CONNECTIONS_MAX

LOOP_TIMEOUT_S = 2.0  # a node's loop that does not answer for so long counts as blocked
REQUEST_TIMEOUT_S = 10.0  # from the connection to the end of the answer
GROUPS_TIMEOUT_S = 9.0  # for the page of groups, which is made in several seconds if there are very many
HEADER_BYTES_MAX = 8192  # of the request line and all headers
ACCEPT_PAUSE_S = 1.0  # when the process has no descriptor left
CLOSE_TIMEOUT_S = 5.0
METRICS_PATH = "/metrics"
GROUPS_PATH = "/metrics/groups"
JMX_STYLE = "jmx"
TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """A response. ``status``: the HTTP status code."""

    status: int
    content_type: str
    body: bytes


class Pages(NamedTuple):
    """The functions that create the pages. All are called on the node's loop.

    ``not_ready`` returns the reason why the node does not serve clients, or None if it does. ``groups`` gets the query
    of the request, and raises BadQuery; None: there is no such page. ``with_aliases``: ``metrics``, with the names of
    the JMX exporter, too. ``names_groups``: whether these two have names of groups.
    """

    metrics: Callable[[], Awaitable[bytes]]
    not_ready: Callable[[], str | None]
    groups: Callable[[str], Awaitable[bytes]] | None = None
    with_aliases: Callable[[], Awaitable[bytes]] | None = None
    names_groups: bool = False


class BadQuery(Exception):
    """The query of a request is invalid. The text says what was expected."""


class BadHttp(Exception):
    """An invalid request. ``page`` is the response."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.body.decode().strip())
        self.page = page


class HealthServer:
    """Serves the pages of one node between ``start`` and ``close``, on a socket that listens already.

    Each connection is a task that answers one request. When there are ``HTTP_CONNECTIONS_MAX``, a new connection closes
    the oldest one that has not sent its request yet, or the oldest of all if all requests are being answered.
    """

    def __init__(self, listening_socket: socket.socket, pages: Pages, loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._node_loop = loop
        self._listening = listening_socket
        self._loop = asyncio.SelectorEventLoop()
        self._reading: dict[asyncio.Task[None], None] = {}  # oldest first
        self._answering: dict[asyncio.Task[None], None] = {}
        self._thread = Thread(target=self._run, name="callboard-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Accept no more requests, and drop those in progress: the node's loop, which would answer them, will end."""
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
        """Accept one connection per turn of the loop, so that the one it replaces is closed before the next accept."""
        try:
            connected, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no free file descriptor
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
            """The client has disconnected or is too slow."""
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
            has_names = path.startswith(METRICS_PATH if self._pages.names_groups else GROUPS_PATH)
            if has_names and is_loopback(connected.getsockname()[0]):
                _check_host(head)
            page = await self.page(path)
        except BadHttp as error:
            page = error.page
        await self._loop.sock_sendall(connected, _encode(page, is_head))
        connected.shutdown(socket.SHUT_WR)

    async def _read_head(self, connected: socket.socket) -> bytes | None:
        """The request line and the headers. None if the client disconnects before their end."""
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
        if self._reading.pop(task, task) is None:  # else this connection was just closed for a new one
            self._answering[task] = None
        return head

    # Pages -----------------------------------------------------------------------------------------------------------

    async def page(self, path: str) -> Page:
        """The response to a GET."""
        handlers: dict[str, Callable[[], Awaitable[Page]]] = {
            METRICS_PATH: lambda: self._metrics(query),
            "/healthz": self._healthy,
            "/readyz": self._ready,
        }
        name, _, query = path.partition("?")
        if name == GROUPS_PATH:
            return await self._on_node_loop(lambda: self._groups(query), GROUPS_TIMEOUT_S)
        handler = handlers.get(name)
        if handler is None:
            known = [*handlers, *([] if self._pages.groups is None else [GROUPS_PATH])]
            return _text(404, f"nothing is at {path[:200]!r}, expected one of {', '.join(known)}")
        return await self._on_node_loop(handler)

    async def _on_node_loop(self, handler: Callable[[], Awaitable[Page]], timeout_s: float = LOOP_TIMEOUT_S) -> Page:
        async def run() -> Page:
            return await handler()

        running = run()
        try:
            future = asyncio.run_coroutine_threadsafe(running, self._node_loop)
        except RuntimeError:  # the loop is closed
            running.close()
            return _text(503, "the server is about to end")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError:
            return _text(503, f"the server's loop has not answered for {timeout_s:.0f} s")

    async def _metrics(self, query: str) -> Page:
        """Other fields of the query than ``style`` mean nothing."""
        style = dict(parse_qsl(query)).get("style")
        make = self._pages.metrics if style is None else self._pages.with_aliases
        if style not in (None, JMX_STYLE) or make is None:
            return _text(400, f"style={style!r}: expected {JMX_STYLE}, or no style")
        return Page(200, CONTENT_TYPE_LATEST, await make())

    async def _groups(self, query: str) -> Page:
        if self._pages.groups is None:
            return _text(404, f"{GROUPS_PATH} needs the option --group-metrics")
        try:
            return Page(200, CONTENT_TYPE_LATEST, await self._pages.groups(query))
        except BadQuery as error:
            return _text(400, str(error))

    async def _healthy(self) -> Page:
        return _text(200, "healthy")

    async def _ready(self) -> Page:
        reason = self._pages.not_ready()
        return _text(200, "ready") if reason is None else _text(503, reason)


def _text(status: int, text: str) -> Page:
    return Page(status, TEXT, text.encode() + b"\n")


def _parse(head: bytes) -> tuple[str, str]:
    """The method and path of a request. Raises BadHttp."""
    words = head.decode("latin-1").splitlines()[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadHttp(_text(400, "expected a request line such as GET /healthz HTTP/1.1"))
    method, path, _ = words
    if method not in ("GET", "HEAD"):
        raise BadHttp(_text(405, f"method {method[:20]!r}, expected GET or HEAD"))
    return method, path


def _check_host(head: bytes) -> None:
    """Raises BadHttp for a name that may be that of another site."""
    for line in head.decode("latin-1").splitlines()[1:]:
        name, _, value = line.partition(":")
        host = host_name(value.strip())
        if name.strip().lower() == "host" and host != LOCALHOST and not _is_ip_address(host):
            raise BadHttp(_text(421, f"Host {host[:100]!r}: expected {LOCALHOST} or an IP address"))


def _is_ip_address(host: str) -> bool:
    try:
        parse_ip(host)
    except ValueError:
        return False
    return True


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
