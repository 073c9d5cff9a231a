"""The open connections of a server: their number, their turns on the event loop, and their end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from ....actors.text import format_count
from ...settings.listeners import PLAINTEXT
from ..quotas.request_meter import RequestMeter
from ..quotas.throttling import reset
from .address_limits import CONNECTIONS_PER_IP, AddressLimits
from .connection import Connection
from .connection_places import ConnectionPlaces
from .connection_ports import Server
from .connection_turns import ConnectionTurns
from .idle import IdleConnectionCloser, Schedule
from .over_limit import CONNECTIONS
from .time_budget import TimeBudget

NEW_CONNECTION = "a new connection"
"""What is refused, in the log."""

TOO_OFTEN = "its address connects more often than its quota connection_creation_rate allows"

TOO_MANY_WAIT = "too many others wait for a place (max_connections) or their turn (max_connection_creation_rate)"

THROTTLED_CONNECTIONS_MAX = 100
"""Open connections of addresses that connect too often. Further ones are closed at once: they need descriptors, too."""

log = logging.getLogger("callboard.kafka")


class ConnectionLimit(Protocol):
    """Limits the number of open connections."""

    def is_reached(self, connections: int, peer: str) -> bool:
        """Whether ``connections``, the number of open ones, is at the limit. ``peer``: the new client, for the log."""


class ConnectionPool:
    """The connections of one server. A collection of ``Connection``.

    ``later`` calls back on the event loop after a number of milliseconds, ``call_soon`` at the end of this turn.
    """

    def __init__(
        self,
        server: Server,
        limit: ConnectionLimit,
        max_idle_ms: int,
        later: Schedule,
        call_soon: Callable[[Callable[[], None]], object],
        turns: ConnectionTurns,
        places: ConnectionPlaces,
    ) -> None:
        self.server = server
        self._connections: set[Connection] = set()
        self.meter: RequestMeter | None = None
        self._throttled = 0
        self._refuses_new = False
        self._limit = limit
        self._addresses = AddressLimits(server.settings)
        self._places = places
        self._idle_closer = IdleConnectionCloser(self._connections, max_idle_ms, later)
        self._call_soon = call_soon
        self._unsent: list[Connection] = []
        self._turns = turns

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    def __contains__(self, connection: object) -> bool:
        return connection in self._connections

    def new_connection(self, listener: str = PLAINTEXT) -> Connection:
        """Make the protocol of a client that has just connected to a listener."""
        return Connection(self, listener)

    def add(self, connection: Connection) -> bool:
        """Add an open connection. False if a limit is reached, or the server stops."""
        if self._refuses_new:
            return False
        if self._limit.is_reached(len(self._connections), connection.peer):
            self.server.over_limit.count(CONNECTIONS)
            return False
        throttle_ms = self.server.quotas.connection_throttle_ms(connection.client_host.removeprefix("/"))
        if throttle_ms and not self._throttle(connection, throttle_ms):
            return False
        limit = self._addresses.add(connection.client_host)
        if limit is not None:
            reason = f"its address has {format_count(limit, 'connection')}; this one is closed"
            self.server.over_limit.report(connection, CONNECTIONS_PER_IP, NEW_CONNECTION, reason)
            return False
        if not self._places.add(connection):
            self._addresses.remove(connection.client_host)
            self.server.over_limit.name_refused(connection, NEW_CONNECTION, TOO_MANY_WAIT)
            return False
        self._connections.add(connection)
        if connection.holds.reasons:  # uvloop begins to read after connection_made, though it was told not to
            self._call_soon(connection.update_reading)
        return True

    def _throttle(self, connection: Connection, delay_ms: int) -> bool:
        """Do not read the connection of an address that connects too often, then reset it, as Kafka does.

        False if there are too many such connections.
        """
        self.server.over_limit.name_refused(connection, NEW_CONNECTION, TOO_OFTEN)
        if self._throttled >= THROTTLED_CONNECTIONS_MAX:
            return False
        self._throttled += 1
        connection.mute(2 * delay_ms)  # the reset comes first
        self.server.later(delay_ms, partial(self._reset, connection))
        return True

    def _reset(self, connection: Connection) -> None:
        self._throttled -= 1
        if connection.is_open:  # it may have been closed for another limit
            reset(connection.transport)

    def lost(self, connection: Connection) -> None:
        """The socket of a connection is gone. Its requests may still be handled."""
        if connection in self._connections:
            self._addresses.remove(connection.client_host)
            self._places.remove(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has ended. All its requests are handled."""
        self._connections.discard(connection)
        buffers = self.server.buffers
        buffers.unsent.set(connection, 0)
        buffers.unread.set(connection, 0)

    def filenos(self) -> list[int]:
        """The file descriptors of the sockets; -1 for a closed one."""
        sockets = [connection.transport.get_extra_info("socket") for connection in self._connections]
        return [-1 if own is None else own.fileno() for own in sockets]

    @property
    def budget(self) -> TimeBudget:
        """The time of an iteration of the event loop."""
        return self._turns.budget

    # Turns of the event loop -----------------------------------------------------------------------------------------

    def schedule_turn(self, connection: Connection) -> None:
        """Let a connection handle its next requests in one of the next turns of the loop."""
        self._turns.schedule(connection)

    def schedule_responses(self, connection: Connection) -> None:
        """Send a connection's responses at the end of this turn of the loop."""
        if not self._unsent:
            self._call_soon(self.send_responses)
        self._unsent.append(connection)

    def send_responses(self) -> None:
        """Send all scheduled responses now."""
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            try:
                if self.meter is None or not self.meter.measures(connection, Connection.send_responses):
                    connection.send_responses()
            except Exception:  # the other connections must be served
                log.exception("a connection is closed after an error")
                connection.close()

    # Life cycle ------------------------------------------------------------------------------------------------------

    def start_idle_checks(self) -> None:
        """Close idle connections from now on."""
        self._idle_closer.start()

    def stop_idle_checks(self) -> None:
        self._idle_closer.stop()

    def refuse_new(self) -> None:
        """Close all connections that are opened from now on."""
        self._refuses_new = True

    def stop_reading(self) -> None:
        """Read no more requests. Responses are still sent."""
        for connection in tuple(self._connections):
            connection.stop_reading()

    def close(self) -> None:
        """Close all connections; bytes that are already written are still sent."""
        for connection in tuple(self._connections):
            connection.close()

    def abort(self) -> None:
        """Close all connections at once: for a simulated crash."""
        for connection in tuple(self._connections):
            connection.abort()
