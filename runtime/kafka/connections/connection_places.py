"""ConnectionPlaces: how many connections are served at a time, and how many begin in a second.

Further ones wait: they are not read until they have a place, and it is their turn. Source: KIP-402, KIP-612 and
``ConnectionQuotas`` of Kafka 4.3.1, which accepts them later instead. The limits may change while the server runs.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from heapq import nlargest
from operator import attrgetter
from typing import Final, Protocol

from ...security.quota_windows import TokenBucket
from ...settings.listener_limits import ListenerLimits
from ...settings.rows import INT_MAX
from ...settings.table import Settings
from .holds import Hold
from .idle import Schedule

log = logging.getLogger("callboard.kafka")

WAITING_CONNECTIONS_MAX: Final = 1000
"""Connections that wait for a place. Further ones are closed at once: they need descriptors, too."""

TURN_MS_MAX: Final = 10_000
"""A connection whose turn is later is closed at once."""


CLOSED_AT_ONCE_MAX: Final = 100
"""Connections above ``max_connections`` that are closed in one step of the event loop."""


class NewConnection(Protocol):
    """A connection that may have to wait. ``idle_checks``: see ``idle.py``; while it waits they limit its time."""

    listener: str
    idle_checks: int

    @property
    def is_open(self) -> bool: ...

    def hold(self, hold: Hold, *, is_held: bool) -> None:
        """Do not read its socket, or read it again."""

    def mute(self, delay_ms: int) -> None:
        """Do not read its socket for a time."""

    def close_idle(self) -> None: ...


class CreationRate:
    """Connections that may begin in a second. Those of eleven seconds may begin at once."""

    def __init__(self) -> None:
        self._bucket = TokenBucket()

    def turn_ms(self, per_s: int, now_ms: int) -> int:
        """When it is the turn of one more connection. It is counted if this is early enough."""
        if per_s == INT_MAX:
            return 0
        self._bucket.take(1, per_s, now_ms)
        turn_ms = self._bucket.throttle_ms(per_s, now_ms)
        if turn_ms > TURN_MS_MAX:
            self._bucket.take(-1, per_s, now_ms)
        return turn_ms


class ConnectionPlaces:
    """The places of all listeners together, and of each.

    ``settings``: those in effect, which may change. ``limits``: the same of each listener.
    ``inter_broker_listener``: the limits of all listeners together do not hold for it if there are others. So clients
    do not keep nodes from connecting to each other: for a connection between nodes, one of a client is closed.
    ``later`` calls back after a number of milliseconds.
    """

    def __init__(
        self,
        settings: Settings,
        limits: ListenerLimits,
        inter_broker_listener: str,
        monotonic_ms: Callable[[], int],
        later: Schedule,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._rate = CreationRate()
        self._rates_of: defaultdict[str, CreationRate] = defaultdict(CreationRate)  # by listener
        self._exempt = inter_broker_listener if len(limits.listeners) > 1 else ""
        self._monotonic_ms = monotonic_ms
        self._later = later
        self._served: defaultdict[str, dict[NewConnection, None]] = defaultdict(dict)  # by listener, the oldest first
        self._waiting: dict[NewConnection, None] = {}

    def add(self, connection: NewConnection) -> bool:
        """Give a new connection a place, or let it wait for one. False if too many wait."""
        has_place = self._has_place(connection.listener)
        if not has_place and len(self._waiting) >= WAITING_CONNECTIONS_MAX:
            return False
        turn_ms = self._turn_ms(connection.listener)
        if turn_ms > TURN_MS_MAX:
            return False
        if turn_ms:
            connection.mute(turn_ms)
        if has_place:
            self._served[connection.listener][connection] = None
            self._close_excess()
        else:
            self._waiting[connection] = None
            connection.hold(Hold.WITHOUT_PLACE, is_held=True)
        return True

    def remove(self, connection: NewConnection) -> None:
        """A connection that was added has ended. The one that has waited longest gets its place."""
        if connection in self._waiting:
            del self._waiting[connection]
            return
        del self._served[connection.listener][connection]
        admitted = next((each for each in self._waiting if self._has_place(each.listener)), None)
        if admitted is not None:
            self._admit(admitted)

    def settings_changed(self) -> None:
        """Serve those that have a place now, or close those that have none any more."""
        for connection in tuple(self._waiting):
            if self._has_place(connection.listener):
                self._admit(connection)
        self._later(0, self._close_excess)  # the client that has made the change gets its answer

    def _admit(self, connection: NewConnection) -> None:
        del self._waiting[connection]
        self._served[connection.listener][connection] = None
        connection.idle_checks = 0
        connection.hold(Hold.WITHOUT_PLACE, is_held=False)

    def _close_excess(self) -> None:
        """Close connections of clients above ``max_connections``, the most idle ones, as Kafka does."""
        limit = self._settings.max_connections
        if self._served_count <= limit:
            return
        open_ones = [each for served in self._served.values() for each in served if each.is_open]
        excess = len(open_ones) - limit
        of_clients = [each for each in open_ones if each.listener != self._exempt]
        closed = nlargest(min(excess, CLOSED_AT_ONCE_MAX), of_clients, key=attrgetter("idle_checks"))
        for connection in closed:
            connection.close_idle()
        if closed:
            log.info("connections closed: %d, above max_connections=%d", len(closed), limit)
        if len(closed) == CLOSED_AT_ONCE_MAX:
            self._later(0, self._close_excess)

    def _has_place(self, listener: str) -> bool:
        is_within_all = listener == self._exempt or self._served_count < self._settings.max_connections
        return is_within_all and len(self._served[listener]) < self._limits.max_connections(listener)

    @property
    def _served_count(self) -> int:
        return sum(map(len, self._served.values()))

    def _turn_ms(self, listener: str) -> int:
        limits = [(self._rates_of[listener], self._limits.creation_rate(listener))]
        if listener != self._exempt:
            limits.append((self._rate, self._settings.max_connection_creation_rate))
        now_ms = self._monotonic_ms()
        return max(rate.turn_ms(per_s, now_ms) for rate, per_s in limits)
