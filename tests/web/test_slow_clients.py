"""Clients of ``--web`` that are slow, or are connected when it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from callboard.runtime.settings.address import Address
from callboard.runtime.settings.http_options import WebOptions
from callboard.runtime.web import server as server_module
from callboard.runtime.web.server import WebServer

TIMEOUT_S = 0.2
DEADLINE_S = 30.0
GET = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class Server:
    """A server without a node. ``web``: it is closed at the end of the test, if it was not before."""

    def __init__(self, node_loop: asyncio.AbstractEventLoop) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self._address = listening.getsockname()
        self.web = WebServer(listening, WebOptions(Address("127.0.0.1", 0)), lambda: None, node_loop)
        self.web.start()

    def connect(self, sent: bytes, *, receive_buffer: int = 0) -> socket.socket:
        client = socket.socket()
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(DEADLINE_S)
        client.connect(self._address)
        client.sendall(sent)
        return client


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(server_module, "CLIENT_TIMEOUT_S", TIMEOUT_S)
    with asyncio.Runner() as node:
        made = Server(node.get_loop())
        yield made
        made.web.close()


def ends(client: socket.socket) -> bool:
    """Whether the server closes the connection before the deadline, after all that it sends."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def answer(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"}\n"):
        received += client.recv(65536)
    return received


def test_half_a_request_after_a_whole_one_ends_the_connection(server: Server) -> None:
    with server.connect(GET) as client:
        assert b" 200 OK" in answer(client)
        client.sendall(GET[:20])
        assert ends(client)


def test_client_that_reads_nothing_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WEB_CONNECTIONS_MAX", 1)
    with server.connect(GET * 200, receive_buffer=2048):
        while True:  # the only connection is in use
            with suppress(ConnectionResetError, BrokenPipeError), server.connect(GET) as other:
                if other.recv(1):
                    return


def test_stream_that_is_read_lasts(server: Server) -> None:
    with server.connect(STREAM) as client:
        client.settimeout(5 * TIMEOUT_S)
        with pytest.raises(TimeoutError):
            while client.recv(65536):
                pass


def test_stop_with_an_open_stream_logs_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with server.connect(STREAM) as client:
        assert client.recv(1)
        server.web.close()
        assert ends(client)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
