"""Close idle connections after ``connections_max_idle_ms``, as in Kafka.

All connections share one timer, so a request only sets a flag. Four times per ``connections_max_idle_ms``, a check
visits all connections and counts for each how many checks in a row found no activity. A connection is
therefore closed between 1 and 1.25 times ``connections_max_idle_ms`` after its last byte, never earlier. A connection
with an unanswered request is not idle, unless its client does not read: then it is idle while nothing can be sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger("callboard.kafka")

CHECKS_PER_TIMEOUT = 4
CHECK_INTERVAL_MAX_MS = 3_600_000  # one hour; the setting allows years, which event loops cannot wait

Schedule = Callable[[int, Callable[[], None]], asyncio.TimerHandle]


class IdleCheckable(Protocol):
    """A connection that can be checked for activity."""

    peer: str

    def count_idle_checks(self) -> int:
        """Check for activity; return how many checks in a row, with this one, found none."""

    def close_idle(self) -> None: ...


class IdleConnectionCloser:
    """Checks ``connections`` periodically from ``start`` to ``stop``."""

    def __init__(self, connections: Iterable[IdleCheckable], max_idle_ms: int, schedule: Schedule) -> None:
        self._connections = connections
        self._max_idle_ms = max_idle_ms
        self._check_interval_ms = min(-(-max_idle_ms // CHECKS_PER_TIMEOUT), CHECK_INTERVAL_MAX_MS)
        self._max_idle_checks = -(-max_idle_ms // self._check_interval_ms)
        self._schedule = schedule
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._schedule(self._check_interval_ms, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self.start()
        idle = [
            connection for connection in self._connections if connection.count_idle_checks() >= self._max_idle_checks
        ]
        for connection in idle:
            log.debug("connection from %s closed: idle for %d ms", connection.peer, self._max_idle_ms)
            connection.close_idle()
