"""``callboard serve --web``: the web page and the HTTP API beside a node. Without it nothing of them is imported."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..common import logs
from ..common.errors import StartError
from ..node.listening import listen_on, resolve
from ..settings.address import Address
from ..settings.http_options import WebOptions

if TYPE_CHECKING:
    from ..node.node import Node

OPTION = "--web"
NEEDED = ("starlette", "uvicorn", "numpy", "jinja2")

log = logs.get_logger("callboard.runtime.cli")


def bind_web(options: WebOptions) -> socket.socket:
    """Listen for the HTTP API. Raises StartError, also if a package that it needs is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise StartError(f"{OPTION} needs {', '.join(missing)}: install it with pip install 'callboard[web]'")
    return listen_on(OPTION, options.address, *resolve(OPTION, options.address))


@contextmanager
def serving_web(
    node: Callable[[], Node | None],
    listening_socket: socket.socket | None,
    options: WebOptions | None,
    loop: asyncio.AbstractEventLoop,
) -> Iterator[None]:
    """Serve the HTTP API, if it has a socket, from before the node is opened until it has stopped."""
    if listening_socket is None or options is None:
        yield
        return
    from ..web.server import WebServer

    port = listening_socket.getsockname()[1]
    page = f"http://{Address(options.address.host or 'localhost', port)}"
    log.info("serving the web page and the HTTP API", page=f"{page}/", api=f"{page}/api/v1")
    server = WebServer(listening_socket, options, node, loop)
    server.start()
    try:
        yield
    finally:
        server.close()
