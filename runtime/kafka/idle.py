"""Connections that say nothing are closed after ``connections_max_idle_ms``, as in Kafka.

One timer for all of them, and nothing to do for a request but to note that something came: a look at all connections,
four times in that time, counts how often in a row each was silent. So one is closed between ``connections_max_idle_ms``
and a quarter more after its last byte, never before. One whose request is parked is not idle: we owe it an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger("callboard.kafka")

LOOKS = 4
LOOK_PAUSE_MAX_MS = 3_600_000  # event loops do not wait for years, which the setting allows

Later = Callable[[int, Callable[[], None]], asyncio.TimerHandle]


class Watched(Protocol):
    """What a connection says about itself."""

    peer: str

    def quiet_looks(self) -> int:
        """How many looks in a row, with this one, have found that nothing came and no answer is owed."""

    def close(self) -> None: ...


class IdleWatch:
    """Looks at ``connections`` from ``start`` to ``stop``."""

    def __init__(self, connections: Iterable[Watched], max_idle_ms: int, later: Later) -> None:
        self._connections = connections
        self._max_idle_ms = max_idle_ms
        self._pause_ms = min(-(-max_idle_ms // LOOKS), LOOK_PAUSE_MAX_MS)
        self._looks = -(-max_idle_ms // self._pause_ms)
        self._later = later
        self._next: asyncio.TimerHandle

    def start(self) -> None:
        self._next = self._later(self._pause_ms, self._look)

    def stop(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        self.start()
        idle = [connection for connection in self._connections if connection.quiet_looks() >= self._looks]
        for connection in idle:
            log.info("connection from %s closed: silent for %d ms", connection.peer, self._max_idle_ms)
            connection.close()
