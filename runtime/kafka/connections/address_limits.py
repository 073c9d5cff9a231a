"""How many connections each address has, for ``max_connections_per_ip`` and its overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...common.ip_addresses import parse_ip
from ...settings.connections import parse_overrides
from ...settings.table import Settings

CONNECTIONS_PER_IP = "max_connections_per_ip"


class AddressLimits:
    """Counts the open connections of each address. ``settings``: those in effect, which may change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counts = Counter[str]()
        self._overrides_text = ""
        self._overrides: Mapping[str, int] = {}

    def add(self, client_host: str) -> int | None:
        """Count a new connection. Returns the limit instead if its address has as many already.

        ``client_host``: see ``call.ResponseChannel``.
        """
        limit = self._limit_of(client_host)
        if self._counts[client_host] >= limit:
            return limit
        self._counts[client_host] += 1
        return None

    def remove(self, client_host: str) -> None:
        """A connection that was counted has ended."""
        self._counts[client_host] -= 1
        if not self._counts[client_host]:
            del self._counts[client_host]

    def _limit_of(self, client_host: str) -> int:
        text = self._settings.max_connections_per_ip_overrides
        if text != self._overrides_text:
            self._overrides_text, self._overrides = text, parse_overrides(text)
        limit = self._settings.max_connections_per_ip
        if not self._overrides or not client_host:  # a client that has already disconnected has no address
            return limit
        return self._overrides.get(str(parse_ip(client_host.removeprefix("/"))), limit)
