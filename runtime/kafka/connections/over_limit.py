"""Clients over a limit: who is named in the log, and what is counted. docs/limits.md describes the limits."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Protocol

from ....actors.text import LogLine, printable
from .client_ids import shown_client_id

CONNECTIONS = "connections"
"""The limit of connections, which is no setting: see ``runtime/node/connection_limit.py``."""

LIMITS = (
    CONNECTIONS,
    "group_consumer_max_size",
    "group_max_member_protocols",
    "group_max_pending_members",
    "group_max_size",
    "groups_max",
    "handshake_timeout_ms",
    "handshakes_max_open",
    "max_connections_per_ip",
    "max_partitions",
    "max_request_config_items",
    "max_request_items",
    "max_transactional_ids",
    "memory_limit_bytes",
    "offset_metadata_max_bytes",
    "offsets_max_per_group",
    "queued_max_request_bytes",
    "queued_max_response_bytes",
    "socket_request_max_bytes",
)
"""The limits by which clients are refused: settings, and ``CONNECTIONS``."""

CLIENTS_MAX = 1000
"""Clients that are remembered as named. The one that was named first is forgotten first."""

log = logging.getLogger("callboard.kafka")


class Client(Protocol):
    """The connection of a client. ``client_host``: see ``call.ResponseChannel``."""

    peer: str
    client_id: str
    client_host: str


class NamedClients:
    """Which clients the log has named, and why. A client is a host and a client id."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str, str], None] = {}

    def add(self, client: Client, reason: str) -> bool:
        """Whether the client has not been named for this reason before."""
        key = client.client_host, shown_client_id(client.client_id), reason
        if key in self._named:
            return False
        if len(self._named) >= CLIENTS_MAX:
            del self._named[next(iter(self._named))]
        self._named[key] = None
        return True


class OverLimitReports:
    """Names each client in the log when it is over a limit for the first time, and counts every refusal.

    ``counts``: refusals by limit. ``named``: also the clients that are named for other reasons.
    """

    def __init__(self) -> None:
        self.counts = Counter[str](dict.fromkeys(LIMITS, 0))
        self.named = NamedClients()

    def name_refused(self, client: Client, request: str, reason: str) -> None:
        """Name a client whose request is refused for a reason that is no setting."""
        if self.named.add(client, reason):
            client_id = printable(shown_client_id(client.client_id))
            log.warning(
                "%s of %s (client id '%s') is refused: %s (logged once)", request, client.peer, client_id, reason
            )

    def count(self, limit: str) -> None:
        """Count a refusal. ``limit``: one of ``LIMITS``."""
        if limit not in LIMITS:
            raise AssertionError(f"{limit} is not in LIMITS")
        self.counts[limit] += 1

    def report(self, client: Client, limit: str, request: str, reason: str) -> None:
        """``limit``: one of ``LIMITS``. ``request``: its API and version. ``reason``: by how much, and what follows."""
        self.count(limit)
        if self.named.add(client, limit):
            fields = {"peer": client.peer, "client_id": shown_client_id(client.client_id)}
            fields |= {"request": request, "limit": limit, "reason": reason}
            log.warning(LogLine("a client is over a limit (logged once)", fields))
