"""A health server for tests, and an HTTP client for it."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from callboard.runtime.node.health import HealthServer, Pages

NO_HEADERS: Mapping[str, str] = {}


class HttpResponse(NamedTuple):
    status: int
    content_type: str
    text: str


def get(port: int, path: str, method: str = "GET", headers: Mapping[str, str] = NO_HEADERS) -> HttpResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        return HttpResponse(response.status, response.headers["Content-Type"], response.read().decode())
    finally:
        connection.close()


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[int]:
    """Serve pages on a free port, and yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = HealthServer(listening, pages, asyncio.get_running_loop())
    server.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.close()
