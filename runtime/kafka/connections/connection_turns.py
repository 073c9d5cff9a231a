"""The turns of connections: requests that were received wait here, so that no client keeps the others waiting.

A connection handles at most ``FRAMES_PER_TURN`` requests when its socket is read. The others wait for its next turn,
and so does each JoinGroup and SyncGroup, and each request that is not tiny when the time of the iteration is spent
(``time_budget``). An iteration of the event loop gives turns to connections, round-robin, until they may have handled
``REQUESTS_PER_ITERATION`` requests or the time is spent; at least one has a turn. Their sockets are not read while
requests wait that were not read in the last iteration.

``when_read`` waits until all that clients had sent has been read: a session must not end while the heartbeat that would
renew it is in a socket's buffer, which happens when the server gets more requests than it can handle.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from .time_budget import TimeBudget

log = logging.getLogger("callboard.kafka")

REQUESTS_PER_ITERATION = 64
"""Requests of all waiting connections in one iteration of the event loop: one to two milliseconds."""

READ_WAIT_MAX_MS = 2000
"""How long ``when_read`` waits for connections with more received requests than they can handle in that time.

A member that is gone is then out of its group at most four seconds late: its deadline waits for the wait before, too.
Each connection has at least one turn, which takes longer only with thousands of connections that all have requests.
"""

Callback = Callable[[], object]
CallSoon = Callable[[Callback], object]


class WaitingConnection(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> int:
        """Handle some requests. Returns how many there may have been."""

    def close(self) -> None: ...


class TurnsWait(NamedTuple):
    """``callback`` waits until the connections ``without_turn`` have had one each.

    It also waits until ``unfinished`` have handled all that they have, but only until ``until_ms``.
    """

    without_turn: set[WaitingConnection]
    unfinished: set[WaitingConnection]
    until_ms: int
    callback: Callback


class ConnectionTurns:
    """The connections that wait for their turn.

    ``call_soon`` calls back in the next iteration of the event loop. ``monotonic_ms`` limits waits. ``budget``: the
    time of an iteration.
    """

    def __init__(self, call_soon: CallSoon, monotonic_ms: Callable[[], int], budget: TimeBudget) -> None:
        self.budget = budget
        self._call_soon = call_soon
        self._monotonic_ms = monotonic_ms
        self._waiting: OrderedDict[WaitingConnection, None] = OrderedDict()  # the first has the next turn
        self._is_scheduled = False
        self._waits: list[TurnsWait] = []

    def schedule(self, connection: WaitingConnection) -> None:
        """Give a connection a turn, after those that wait already. Once, however often this is called before."""
        self._waiting[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._give_turns)

    def _give_turns(self) -> None:
        budget, requests_left = self.budget, REQUESTS_PER_ITERATION
        budget.renew()
        for _ in range(len(self._waiting)):  # one turn each
            if requests_left <= 0 or budget.is_spent:
                break
            connection, _ = self._waiting.popitem(last=False)
            begin_ns = budget.begin()
            requests_left -= _take_turn(connection)
            budget.end(begin_ns)
            for wait in self._waits:
                wait.without_turn.discard(connection)
                if connection not in self._waiting:
                    wait.unfinished.discard(connection)
        if self._waits:
            self._end_waits()
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._call_soon(self._give_turns)

    def when_read(self, callback: Callback) -> None:
        """Call back once everything that clients have sent by now has been read, and handled in turns.

        A connection that waits for its turn is not read before it has handled all that it has. If that takes longer
        than ``READ_WAIT_MAX_MS``, it has handled the requests of one turn or more. Requests that are read meanwhile
        have one turn.
        """
        after_reading = partial(self._after_turns, False, callback)
        self._after_turns(True, partial(self._after_poll, after_reading))

    def _after_poll(self, callback: Callback) -> None:
        """Call back after all sockets that are readable now have been read.

        The next iteration polls the sockets; depending on the event loop it calls what was scheduled before or after it
        reads them. In the iteration after it they have been read.
        """
        self._call_soon(partial(self._call_soon, callback))

    def _after_turns(self, takes_all: bool, callback: Callback) -> None:
        if self._waiting:
            until_ms = self._monotonic_ms() + READ_WAIT_MAX_MS
            unfinished = set(self._waiting) if takes_all else set[WaitingConnection]()
            self._waits.append(TurnsWait(set(self._waiting), unfinished, until_ms, callback))
        else:
            callback()

    def _end_waits(self) -> None:
        now_ms = self._monotonic_ms()
        waits, self._waits = self._waits, []
        for wait in waits:
            if wait.without_turn or (wait.unfinished and now_ms < wait.until_ms):
                self._waits.append(wait)
            else:
                wait.callback()


def _take_turn(connection: WaitingConnection) -> int:
    try:
        return connection.take_turn()
    except Exception:  # the other connections must be served
        log.exception("a connection is closed after an error")
        connection.close()
        return 0
