"""ClientBuffers: what a server keeps in memory for its connections, with their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...settings.table import Settings
from .held_bytes import HeldBytes
from .over_limit import OverLimitReports
from .used_member_ids import UsedMemberIds


class BufferHolder(Protocol):
    """A connection whose bytes are counted."""

    client_id: str
    client_host: str
    peer: str

    @property
    def unread_request(self) -> str:
        """The name of the first request that waits for its turn, or is incomplete."""

    @property
    def unsent_request(self) -> str:
        """The name of the request whose response was given to the client last."""

    def abort(self) -> None:
        """Close at once, and release all bytes."""


class WaitingFetch(Protocol):
    """A Fetch that waits for records."""

    def finish(self) -> None:
        """Answer with the records that there are."""


class ClientBuffers:
    """``unsent``: the responses that clients have not read. ``unread``: requests that are incomplete or queued.

    ``fetches``: Fetches of many partitions that wait for records. ``settings`` returns the effective settings. Above a
    limit the connection that has waited longest is closed, and the Fetch that has waited longest is answered.
    ``used_member_ids`` has a limit for each connection.
    """

    def __init__(self, settings: Callable[[], Settings], over_limit: OverLimitReports) -> None:
        self.over_limit = over_limit
        self.used_member_ids = UsedMemberIds()
        self.unsent = HeldBytes[BufferHolder](lambda: settings().queued_max_response_bytes, self._close_unsent)
        self.unread = HeldBytes[BufferHolder](lambda: settings().queued_max_request_bytes, self._close_unread)
        self.fetches = HeldBytes[WaitingFetch](lambda: settings().queued_max_request_bytes, _answer)

    def _close_unsent(self, holder: BufferHolder, size_bytes: int) -> None:
        what = f"{size_bytes} bytes of responses that it does not read"
        self._close(holder, "queued_max_response_bytes", holder.unsent_request, what)

    def _close_unread(self, holder: BufferHolder, size_bytes: int) -> None:
        what = f"{size_bytes} bytes of requests that are incomplete or wait"
        self._close(holder, "queued_max_request_bytes", holder.unread_request, what)

    def _close(self, holder: BufferHolder, limit: str, request: str, what: str) -> None:
        reason = f"{what}, and more of all connections; the connection is closed"
        self.over_limit.report(holder, limit, request, reason)
        holder.abort()


def _answer(fetch: WaitingFetch, _size_bytes: int) -> None:
    fetch.finish()
