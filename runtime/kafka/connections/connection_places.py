"""ConnectionPlaces: how many connections are served at a time, and how many begin in a second.

Further ones wait: they are not read until they have a place, and it is their turn. Source: KIP-402, KIP-612 and
``ConnectionQuotas`` of Kafka 4.3.1, which accepts them later instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...security.quota_windows import TokenBucket
from ...settings.listeners import Listener
from ...settings.rows import INT_MAX
from ...settings.table import Settings
from .holds import Hold

WAITING_CONNECTIONS_MAX: Final = 1000
"""Connections that wait for a place. Further ones are closed at once: they need descriptors, too."""

TURN_MS_MAX: Final = 10_000
"""A connection whose turn is later is closed at once."""


class NewConnection(Protocol):
    """A connection that may have to wait."""

    listener: str

    def hold(self, hold: Hold, *, is_held: bool) -> None:
        """Do not read its socket, or read it again."""

    def mute(self, delay_ms: int) -> None:
        """Do not read its socket for a time."""


class CreationRate:
    """Connections that may begin in a second. Those of eleven seconds may begin at once."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._bucket = TokenBucket()

    def turn_ms(self, now_ms: int) -> int:
        """When it is the turn of one more connection. It is counted if this is early enough."""
        if self._per_s == INT_MAX:
            return 0
        self._bucket.take(1, self._per_s, now_ms)
        turn_ms = self._bucket.throttle_ms(self._per_s, now_ms)
        if turn_ms > TURN_MS_MAX:
            self._bucket.take(-1, self._per_s, now_ms)
        return turn_ms


class ConnectionPlaces:
    """The places of all listeners together, and of each.

    ``inter_broker_listener``: the limits of all listeners together do not hold for it if there are others, so that
    clients do not keep nodes from connecting to each other.
    """

    def __init__(
        self,
        settings: Settings,
        listeners: Sequence[Listener],
        inter_broker_listener: str,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._max = settings.max_connections
        self._max_of = {listener.name: listener.max_connections for listener in listeners}
        self._rate = CreationRate(settings.max_connection_creation_rate)
        self._rate_of = {listener.name: CreationRate(listener.max_connection_creation_rate) for listener in listeners}
        self._exempt = inter_broker_listener if len(listeners) > 1 else ""
        self._monotonic_ms = monotonic_ms
        self._served = Counter[str]()
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
            self._served[connection.listener] += 1
        else:
            self._waiting[connection] = None
            connection.hold(Hold.WITHOUT_PLACE, is_held=True)
        return True

    def remove(self, connection: NewConnection) -> None:
        """A connection that was added has ended. The one that has waited longest gets its place."""
        if connection in self._waiting:
            del self._waiting[connection]
            return
        self._served[connection.listener] -= 1
        admitted = next((each for each in self._waiting if self._has_place(each.listener)), None)
        if admitted is not None:
            del self._waiting[admitted]
            self._served[admitted.listener] += 1
            admitted.hold(Hold.WITHOUT_PLACE, is_held=False)

    def _has_place(self, listener: str) -> bool:
        is_within_all = listener == self._exempt or self._served.total() < self._max
        return is_within_all and self._served[listener] < self._max_of.get(listener, INT_MAX)

    def _turn_ms(self, listener: str) -> int:
        now_ms = self._monotonic_ms()
        rates = [self._rate_of[listener]] if listener in self._rate_of else []
        rates += [self._rate] if listener != self._exempt else []
        return max((rate.turn_ms(now_ms) for rate in rates), default=0)
