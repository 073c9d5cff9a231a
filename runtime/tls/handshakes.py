"""The handshakes of a server: their number and their time are bounded, and their work is done in turns.

A handshake takes 1 to 3 ms of the server's time, so it waits for a turn of its connection, as an expensive request
does. Above ``handshakes_max_open`` the one whose client has been silent for longest is ended; while all clients wait
for the server, the new one is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

MAX_OPEN = "handshakes_max_open"
TIMEOUT = "handshake_timeout_ms"


class Handshake(Protocol):
    """A connection whose handshake has not ended."""

    def fail(self, reason: str, limit: str = "") -> None:
        """End the connection. ``limit``: the setting that is exceeded."""

    def take_turn(self) -> int:
        """Do the next step. Returns 1, as for a request."""

    def close(self) -> None: ...


class HandshakeLimits(Protocol):
    """The limits that are in effect: ``Settings``."""

    @property
    def handshakes_max_open(self) -> int: ...

    @property
    def handshake_timeout_ms(self) -> int: ...


class Handshakes:
    """``schedule_turn`` lets a connection take its turn. ``later`` calls back after a number of milliseconds."""

    def __init__(
        self,
        limits: HandshakeLimits,
        schedule_turn: Callable[[Handshake], None],
        later: Callable[[int, Callable[[], None]], asyncio.TimerHandle],
    ) -> None:
        self._limits = limits
        self._schedule_turn = schedule_turn
        self._later = later
        self._timers: dict[Handshake, asyncio.TimerHandle] = {}
        self._silent: OrderedDict[Handshake, None] = OrderedDict()  # the first has been so for longest

    def __len__(self) -> int:
        return len(self._timers)

    def begin(self, handshake: Handshake) -> None:
        """A client has connected. Ends one handshake if there are too many."""
        timeout_ms = self._limits.handshake_timeout_ms
        self._timers[handshake] = self._later(timeout_ms, lambda: self._end_late(handshake, timeout_ms))
        if len(self._timers) > self._limits.handshakes_max_open:
            ended = next(iter(self._silent), handshake)
            ended.fail(f"{len(self._timers)} TLS handshakes are open: expected fewer", MAX_OPEN)
        if handshake in self._timers:
            self._silent[handshake] = None

    def received(self, handshake: Handshake) -> None:
        """The client has sent something: do the next step in the connection's turn."""
        self._silent.pop(handshake, None)
        self._schedule_turn(handshake)

    def waits(self, handshake: Handshake) -> None:
        """The client has to send something."""
        self._silent[handshake] = None

    def end(self, handshake: Handshake) -> None:
        """The handshake has ended, or its connection."""
        self._silent.pop(handshake, None)
        timer = self._timers.pop(handshake, None)
        if timer is not None:
            timer.cancel()

    def _end_late(self, handshake: Handshake, timeout_ms: int) -> None:
        handshake.fail(f"the TLS handshake has not ended within {timeout_ms} ms", TIMEOUT)
