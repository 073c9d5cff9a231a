"""The listening sockets of a server. They are bound before any file is touched. Errors are one line for the user."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

from ..common.errors import StartError
from ..settings.table import LISTEN_BACKLOG, Address, Options


def resolve(option: str, address: Address) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The family and address to bind. For a name with several addresses the IPv4 one, like Java, and so Kafka."""
    try:
        infos = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartError(
            f"cannot find the host of {option} {address}: expected a name or address of this machine"
        ) from error
    family, _, _, _, bindable = min(infos, key=lambda info: info[0] != socket.AF_INET)
    return family, bindable


def bind(options: Options, listen: str = "--listen", advertised: str = "--advertised") -> socket.socket:
    """Bind and listen, so that the port is reserved before the data folder is touched. Raises StartError.

    ``listen`` and ``advertised``: the names of these options in error messages.
    """
    address = Address(options.listen_host, options.listen_port)
    family, bindable = resolve(listen, address)
    if options.advertised is None and ipaddress.ip_address(bindable[0].partition("%")[0]).is_unspecified:
        raise StartError(
            f"{listen} {address} listens on all addresses, but clients need one address to connect to: "
            f"give it with {advertised} HOST:PORT"
        )
    return listen_on(listen, address, family, bindable)


def bind_health(address: Address) -> socket.socket:
    """Bind and listen for --metrics, which may listen on all addresses, because it is not advertised to clients."""
    return listen_on("--metrics", address, *resolve("--metrics", address))


def listen_on(option: str, address: Address, family: socket.AddressFamily, bindable: tuple[Any, ...]) -> socket.socket:
    listening_socket = socket.socket(family, socket.SOCK_STREAM)
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
        return (
            f"port {address.port} of {address.host or 'this machine'} is in use by another program: stop that one, "
            f"or choose another port with {option} (port 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"may not listen on {address}: ports below 1024 need a privilege; choose another with {option}"
    return f"cannot listen on {address}: {error.strerror}; choose an address of this machine with {option}"
