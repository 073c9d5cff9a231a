"""WebServer: serves the HTTP API of a node on a thread with an event loop of its own, for ``callboard serve --web``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from threading import Thread
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..embed.port import port_of_node
from ..node.connection_limit import WEB_CONNECTIONS_MAX
from ..node.node import Node
from ..settings.address import ALL_ADDRESSES
from ..settings.http_options import WebOptions
from .application import make_app
from .backend import Backend

KEEP_ALIVE_S: Final = 5
CLIENT_TIMEOUT_S: Final = 10.0
"""A client that has neither sent a whole request nor read a part of an answer for so long is disconnected."""

STOP_TIMEOUT_S: Final = 5.0
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class LimitedProtocol(H11Protocol):
    """A connection, closed at once if there are ``WEB_CONNECTIONS_MAX``, or if its client is too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > WEB_CONNECTIONS_MAX:
            transport.abort()
        else:
            self._watch(None)

    def _watch(self, before: tuple[object, int] | None) -> None:
        """Look at the client again and again. ``before``: what was expected of it the last time."""
        if self.transport.is_closing():
            return
        expected = self._expected()
        if before is not None and expected == before:
            self.transport.abort()
        else:
            self.loop.call_later(CLIENT_TIMEOUT_S, self._watch, expected)

    def _expected(self) -> tuple[object, int] | None:
        """What the client is to do: send a request after the last one, or read so many bytes. None for nothing."""
        unread_bytes = self.transport.get_write_buffer_size()
        is_answering = self.cycle is not None and not self.cycle.response_complete
        return (self.cycle, unread_bytes) if unread_bytes or not is_answering else None

    def shutdown(self) -> None:
        """See ``H11Protocol``. A stream, or an answer that is not read, would not end by itself."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
        super().shutdown()


class WebServer:
    """Serves between ``start`` and ``close``, on a socket that listens already.

    ``node``: None while it is being opened. ``loop``: that of the node.
    """

    def __init__(
        self,
        listening_socket: socket.socket,
        options: WebOptions,
        node: Callable[[], Node | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        app = make_app(Backend(port_of_node(node, loop)), accepted_hosts(options), options.trusted_header)
        self._socket = listening_socket
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = Thread(target=self._run, name="callboard-web", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Accept no more requests: the node's loop, which would answer them, will end."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))


def accepted_hosts(options: WebOptions) -> tuple[str, ...] | None:
    """The names in the header Host. None for all: a proxy authenticates each request, whatever name it came to."""
    if options.trusted_header is not None:
        return None
    host = options.address.host
    return LOCAL_NAMES if host in ALL_ADDRESSES else (*LOCAL_NAMES, host)
