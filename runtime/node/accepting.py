"""AcceptingListeners: the listeners of a node that accept connections, and the TLS of those that have it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from ..kafka.connections.connection_pool import ConnectionPool
from ..kafka.connections.connection_turns import ConnectionTurns
from .acceptor import Acceptor, start_accepting
from .environment import Environment
from .listening import Sockets, limit_receive_buffers

if TYPE_CHECKING:
    from ..settings.listeners import Listener
    from ..settings.table import Options
    from ..tls.handshakes import Handshakes
    from ..tls.listener_tls import ListenerTls

CERTIFICATE_CHECK_INTERVAL_S = 1.0


def open_tls(options: Options) -> dict[str, ListenerTls]:
    """TLS by listener; without a listener that has it nothing is imported. Raises StartError."""
    return {listener.name: _open_listener(listener) for listener in options.listeners if listener.has_tls}


def _open_listener(listener: Listener) -> ListenerTls:
    from ..tls.listener_tls import ListenerTls
    from ..tls.settings import parse_tls

    return ListenerTls(listener.name, parse_tls(listener.settings))


class AcceptingListeners:
    """``tls``: of those listeners that have it, by name. ``is_accepting``: set since connections are accepted."""

    def __init__(self, pool: ConnectionPool, turns: ConnectionTurns, tls: Mapping[str, ListenerTls]) -> None:
        self._pool = pool
        self._tls = tls
        self._handshakes = _make_handshakes(pool, turns) if tls else None
        self._sockets: list[socket.socket] = []
        self._acceptors: list[Acceptor | asyncio.Server] = []
        self._is_closed = False
        self.is_accepting = asyncio.Event()

    async def accept_from(self, sockets: Sockets, receive_buffer_bytes: int) -> None:
        """Accept connections. Other processes may do the same with the same sockets.

        After ``close`` it only closes the sockets.
        """
        if self._is_closed:
            _close_all(sockets)
            return
        for listener, listening_socket in sockets.items():
            limit_receive_buffers(listening_socket, receive_buffer_bytes)
            self._sockets.append(listening_socket)
            self._acceptors.append(await start_accepting(listening_socket, partial(self._new_connection, listener)))
        self.is_accepting.set()

    def _new_connection(self, listener: str) -> asyncio.Protocol:
        connection = self._pool.new_connection(listener)
        tls = self._tls.get(listener)
        if tls is None or self._handshakes is None:
            return connection
        from ..tls.connection import TlsConnection
        from .tls_client import TlsClient

        return TlsConnection(tls, TlsClient(connection), self._handshakes)

    def close(self) -> None:
        """Accept no more connections, and refuse those whose socket was accepted just now."""
        self._is_closed = True
        self._pool.refuse_new()
        for acceptor in self._acceptors:
            acceptor.close()

    def filenos(self) -> list[int]:
        """The descriptors of the listening sockets."""
        return [listening_socket.fileno() for listening_socket in self._sockets]

    async def watch_certificates(self, environment: Environment) -> None:
        """Use changed certificates for new connections, until cancelled."""
        while self._tls:
            await asyncio.sleep(CERTIFICATE_CHECK_INTERVAL_S)
            await environment.run_blocking(self._reload_changed)

    def _reload_changed(self) -> None:
        for tls in self._tls.values():
            tls.reload_if_changed()

    def reload_certificates(self) -> None:
        """Read keys and certificates again, whether their files have changed or not."""
        for tls in self._tls.values():
            tls.reload()

    def certificate_seconds_left(self) -> dict[str, float]:
        """How long the certificates are still valid, by listener."""
        now = datetime.now(UTC)
        return {listener: (tls.expires - now).total_seconds() for listener, tls in self._tls.items()}


@contextmanager
def closing_unused(sockets: Sockets) -> Iterator[None]:
    """Close sockets from which nothing is accepted, because the block was cancelled or has failed."""
    try:
        yield
    except BaseException:
        _close_all(sockets)
        raise


def _close_all(sockets: Sockets) -> None:
    for listening_socket in sockets.values():
        listening_socket.close()


def _make_handshakes(pool: ConnectionPool, turns: ConnectionTurns) -> Handshakes:
    from ..tls.handshakes import Handshakes

    return Handshakes(pool.server.settings, turns.schedule, pool.server.later)
