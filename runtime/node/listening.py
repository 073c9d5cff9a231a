"""The listening sockets of a server. They are bound before any file is touched. Errors are one line for the user."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..common.errors import StartError
from ..settings.address import Address
from ..settings.listeners import PLAINTEXT, Listener
from ..settings.table import LISTEN_BACKLOG, Options

Sockets = Mapping[str, socket.socket]
"""The listening sockets of a server, by the name of the listener."""
NO_SOCKETS: Sockets = MappingProxyType({})


def resolve(option: str, address: Address) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The family and address to bind. For a name with several addresses the IPv4 one, like Java, and so Kafka."""
    host = address.host or None
    try:
        infos = socket.getaddrinfo(
            host.encode() if host and host.isascii() else host,  # a text needs IDNA, which takes milliseconds to import
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except (OSError, UnicodeError) as error:
        raise StartError(
            f"cannot find the host of {option} {address}: expected a name or address of this machine"
        ) from error
    family, _, _, _, bindable = min(infos, key=lambda info: info[0] != socket.AF_INET)
    return family, bindable


def bind(listener: Listener, listen: str = "--listen", advertised: str = "--advertised") -> socket.socket:
    """Bind and listen, so that the port is reserved before the data folder is touched. Raises StartError.

    ``listen`` and ``advertised``: the names of these options in error messages.
    """
    address = listener.listen
    family, bindable = resolve(listen, address)
    is_shown = listener.is_advertised and listener.advertised is None
    if is_shown and ipaddress.ip_address(bindable[0].partition("%")[0]).is_unspecified:
        raise StartError(
            f"{listen} {address} listens on all addresses, but clients need one address to connect to: "
            f"give it with {advertised} {'' if listener.name == PLAINTEXT else f'{listener.name}://'}HOST:PORT"
        )
    return listen_on(listen, address, family, bindable)


def advertised_addresses(options: Options, sockets: Sockets) -> dict[str, Address]:
    """The addresses that clients connect to, by listener. Host "" and port 0 without a socket."""
    return {
        listener.name: listener.advertised or _bound_address(listener, sockets.get(listener.name))
        for listener in options.listeners
        if listener.is_advertised
    }


def listening_addresses(options: Options, sockets: Sockets) -> dict[str, Address]:
    """The addresses that the server listens on, by listener, with the ports that the system has chosen."""
    return {listener.name: _bound_address(listener, sockets[listener.name]) for listener in options.listeners}


def _bound_address(listener: Listener, listening_socket: socket.socket | None) -> Address:
    if listening_socket is None:
        return Address("", 0)
    host, port = listening_socket.getsockname()[:2]
    return Address(listener.listen.host or host, port)


def bind_health(address: Address) -> socket.socket:
    """Bind and listen for --metrics, which may listen on all addresses, because it is not advertised to clients."""
    return listen_on("--metrics", address, *resolve("--metrics", address))


def listen_on(option: str, address: Address, family: socket.AddressFamily, bindable: tuple[Any, ...]) -> socket.socket:
    # With the protocol given, asyncio sets TCP_NODELAY. Without it the second part of an answer waits for 40 ms.
    listening_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections of a previous process may stay in TIME_WAIT for a minute. They must not prevent a start.
        listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening_socket.bind(bindable)
        listening_socket.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening_socket.close()
        raise StartError(_bind_error_text(option, address, error)) from error
    return listening_socket


def limit_receive_buffers(listening_socket: socket.socket, size_bytes: int) -> None:
    """Set the receive buffer of all connections that are accepted later. -1: the system's default."""
    if size_bytes >= 0:
        listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)


def _bind_error_text(option: str, address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        hint = "leave it out for free ones" if option == "--worker-ports" else "port 0 takes a free one"
        return (
            f"port {address.port} of {address.host or 'this machine'} is in use by another program: stop that one, "
            f"or choose another port with {option} ({hint})"
        )
    if error.errno == errno.EACCES:
        return f"may not listen on {address}: ports below 1024 need a privilege; choose another with {option}"
    return f"cannot listen on {address}: {error.strerror}; choose an address of this machine with {option}"
