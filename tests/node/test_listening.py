"""Sockets that a server listens on: the options of the connections that asyncio accepts on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from callboard.runtime.node.listening import bind, bind_health
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import Listener

ANY_PORT = Address("127.0.0.1", 0)


async def accepted_option(listening_socket: socket.socket) -> int:
    """TCP_NODELAY of a connection that asyncio's own loop has accepted."""
    options: asyncio.Queue[int] = asyncio.Queue()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        options.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(connected, sock=listening_socket):
        _, writer = await asyncio.open_connection(*listening_socket.getsockname()[:2])
        option = await options.get()
        writer.close()
        return option


@pytest.mark.parametrize(
    "listen", [lambda: bind(Listener(listen=ANY_PORT)), lambda: bind_health(ANY_PORT)], ids=["kafka", "metrics"]
)
def test_accepted_connection_sends_small_packets_at_once(listen: Callable[[], socket.socket]) -> None:
    assert asyncio.run(accepted_option(listen()))
