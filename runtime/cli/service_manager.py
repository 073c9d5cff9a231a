"""Tells the service manager that the server is ready or stops: sd_notify(3), for systemd's Type=notify."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send a state. Does nothing if no service manager waits for it, or if it cannot be reached."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    path = "\0" + address[1:] if address[0] == "@" else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.sendto(state.encode(), path)
