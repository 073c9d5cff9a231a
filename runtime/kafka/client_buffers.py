"""ClientBuffers: the bytes that a server holds for its clients, with their limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ..settings.table import Settings
from .held_bytes import HeldBytes
from .over_limit import OverLimitReports


class BufferHolder(Protocol):
    """A connection whose bytes are counted."""

    client_id: str
    client_host: str
    peer: str

    def abort(self) -> None:
        """Close at once, and release all bytes."""


class ClientBuffers:
    """``unsent``: the responses that clients have not read. ``unread``: requests that are incomplete or queued.

    ``settings`` returns the effective settings. Above a limit the connection that has waited longest is closed.
    """

    def __init__(self, settings: Callable[[], Settings], over_limit: OverLimitReports) -> None:
        self.over_limit = over_limit
        close = partial(_close, over_limit, "queued_max_response_bytes", "responses that it does not read")
        self.unsent = HeldBytes[BufferHolder](lambda: settings().queued_max_response_bytes, close)
        close = partial(_close, over_limit, "queued_max_request_bytes", "requests that are incomplete or wait")
        self.unread = HeldBytes[BufferHolder](lambda: settings().queued_max_request_bytes, close)


def _close(over_limit: OverLimitReports, limit: str, what: str, holder: BufferHolder, size_bytes: int) -> None:
    over_limit.report(
        holder, limit, f"{size_bytes} bytes of {what}, and more of all connections; the connection is closed"
    )
    holder.abort()
