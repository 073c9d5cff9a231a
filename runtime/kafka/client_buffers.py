"""ClientBuffers: the bytes that a server holds for its clients, with their limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ..settings.table import Settings
from .held_bytes import HeldBytes

log = logging.getLogger("callboard.kafka")


class BufferHolder(Protocol):
    """A connection whose bytes are counted."""

    client_id: str
    peer: str

    def abort(self) -> None:
        """Close at once, and release all bytes."""


class ClientBuffers:
    """``unsent``: the responses that clients have not read. ``unread``: requests that are incomplete or queued.

    ``settings`` returns the effective settings. Above a limit the connection that has waited longest is closed.
    """

    def __init__(self, settings: Callable[[], Settings]) -> None:
        close = partial(_close, reason="it does not read its responses", limit="queued_max_response_bytes")
        self.unsent = HeldBytes[BufferHolder](lambda: settings().queued_max_response_bytes, close)
        close = partial(
            _close, reason="it does not complete its request or sends too many", limit="queued_max_request_bytes"
        )
        self.unread = HeldBytes[BufferHolder](lambda: settings().queued_max_request_bytes, close)


def _close(holder: BufferHolder, size_bytes: int, reason: str, limit: str) -> None:
    log.warning(
        "connection from %s (client id %s) closed: %s (%d bytes), and all connections together are above %s",
        holder.peer,
        holder.client_id,
        reason,
        size_bytes,
        limit,
    )
    holder.abort()
