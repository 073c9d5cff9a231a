"""The listening sockets that an event loop serves. A blocking call to them on this loop would wait for itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakKeyDictionary, WeakSet

ANY_HOST = ("0.0.0.0", "::")  # nosec B104 # to recognise them
CLOSED_FD = -1

_served: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[socket.socket]] = WeakKeyDictionary()


def serve_on_loop(listening: socket.socket) -> None:
    """The running loop serves this socket until the socket is closed."""
    _served.setdefault(asyncio.get_running_loop(), WeakSet()).add(listening)


def refuse_own_server(addresses: Iterable[tuple[str, int]]) -> None:
    """Raises RuntimeError if this thread's running loop serves one of the addresses, given by host and port."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    listeners = [each.getsockname()[:2] for each in _served.get(loop, ()) if each.fileno() != CLOSED_FD]
    for host, port in addresses:
        if any(port == own_port and _reaches(host, own_host) for own_host, own_port in listeners):
            raise RuntimeError(
                f"{host}:{port} is served by the event loop of this thread, which could not answer while it waits: use "
                f"the Coordinator's own member(), or `async with callboard.connect(...)`, or call this in another "
                f"thread, as with asyncio.to_thread()"
            )


def _reaches(host: str, own_host: str) -> bool:
    """Whether a connection to ``host`` arrives at a socket that is bound to ``own_host``."""
    with suppress(OSError, UnicodeError):
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        return own_host in found or (own_host in ANY_HOST and any(map(_is_of_this_machine, found)))
    return False


def _is_of_this_machine(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False
