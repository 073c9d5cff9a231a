"""Counts the bytes of requests that a connection has received and not handled."""

from __future__ import annotations

from typing import Protocol

from ..services import Services
from .framing import FrameSplitter
from .pending_requests import PendingRequests

UNCOUNTED_BYTES = 16 * 1024
"""Received bytes of one connection, incomplete and queued requests, that are not worth counting."""


class UnreadConnection(Protocol):
    """A connection whose bytes are counted in ``ClientBuffers.unread``."""

    client_id: str
    client_host: str
    peer: str
    requests: PendingRequests
    splitter: FrameSplitter

    @property
    def services(self) -> Services: ...

    @property
    def unread_request(self) -> str: ...

    @property
    def unsent_request(self) -> str: ...

    def abort(self) -> None: ...


def count_unread(connection: UnreadConnection) -> None:
    """Report the bytes of requests that are not handled, unless they are few."""
    requests, splitter = connection.requests, connection.splitter
    size_bytes = splitter.partial_bytes + len(splitter.rest) + requests.queued_bytes
    if requests.counted_bytes or size_bytes > UNCOUNTED_BYTES:
        requests.counted_bytes = size_bytes if size_bytes > UNCOUNTED_BYTES else 0
        connection.services.buffers.unread.set(connection, requests.counted_bytes)
