"""Acceptor: accepts the connections of one listening socket on an event loop of asyncio.

``asyncio.Server`` does the same, but if it is closed just after it has accepted a socket, it never closes that socket:
the garbage collector does (CPython issue 109564). Other loops, such as uvloop's, have servers of their own, which do
close it, and accept a connection with half the CPU.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

from ..settings.table import LISTEN_BACKLOG

RETRY_DELAY_S = 1.0
"""The pause after an error that the next attempt would meet at once, such as no free descriptor."""

log = logging.getLogger("callboard.runtime")

NewProtocol = Callable[[], asyncio.Protocol]


async def start_accepting(listening_socket: socket.socket, new_protocol: NewProtocol) -> Acceptor | asyncio.Server:
    """Accept connections on the running loop until ``close`` is called."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return await loop.create_server(new_protocol, sock=listening_socket, backlog=LISTEN_BACKLOG)
    acceptor = Acceptor(loop, listening_socket, new_protocol)
    acceptor.start()
    return acceptor


class Acceptor:
    """Gives each connection of a listening socket a protocol of its own, from ``start`` to ``close``.

    Connections that were accepted before ``close`` still get theirs. It owns the socket.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listening_socket: socket.socket, new_protocol: NewProtocol
    ) -> None:
        self._loop = loop
        self._socket = listening_socket
        self._new_protocol = new_protocol
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen, and accept on the event loop from now on."""
        self._socket.setblocking(False)
        self._socket.listen(LISTEN_BACKLOG)
        self._loop.add_reader(self._socket, self._accept_all)

    def close(self) -> None:
        """Accept no more, and close the listening socket."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _accept_all(self) -> None:
        """Accept the connections that wait now, at most one backlog of them."""
        for _ in range(LISTEN_BACKLOG):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(partial(self._served, connection))

    def _pause(self, error: OSError) -> None:
        log.error("connections cannot be accepted, the next attempt is in %.0f s: %s", RETRY_DELAY_S, _describe(error))
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(RETRY_DELAY_S, self._loop.add_reader, self._socket, self._accept_all)

    async def _serve(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._new_protocol, connection)

    def _served(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            connection.close()
        elif (error := task.exception()) is not None:
            connection.close()
            log.error("an accepted connection is closed after an error", exc_info=error)


def _describe(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}; raise the limit of open files (ulimit -n)"
    return str(error.strerror)
