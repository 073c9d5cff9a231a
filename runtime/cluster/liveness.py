"""Which sessions show no sign of life. Pure: the caller reads the counters and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

GAP_TTLS = 0.25
"""The time between two looks counts as silence up to this part of a TTL. More than the usual pause between looks."""


class Sign(NamedTuple):
    """A counter, when it was first seen, and for how long it has not changed since, in seconds of this node's clock."""

    counter: bytes | None
    seen_s: float
    silence_s: float = 0.0


class Liveness:
    """Times are this node's own, so clocks of nodes need not agree.

    A stall of this node or of the store proves nothing about the others, so a long time between two looks counts as a
    short one. It does count: a node that is slow all the time must notice a death, too.

    ``silent``: the sessions of ``is_silent``. ``fell_silent``: those that were not silent at the look before the last.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._signs: dict[str, Sign] = {}
        self._asked_s: float | None = None
        self.silent: frozenset[str] = frozenset()
        self.fell_silent = self.silent

    def is_silent(self, session: str) -> bool:
        """It has shown no sign of life for half a TTL, by the last look. Clients that ask it may wait for nothing."""
        return session in self.silent

    def look(self, counters: Mapping[str, bytes | None], asked_s: float, answered_s: float) -> dict[str, bytes | None]:
        """The sessions that are dead, with the counter that has not changed for a TTL. ``counters``: of all others."""
        since_s = asked_s if self._asked_s is None else self._asked_s
        self._asked_s = asked_s
        self._signs = {
            session: self._next_sign(session, counter, since_s, asked_s, answered_s)
            for session, counter in counters.items()
        }
        before = self.silent
        self.silent = frozenset(name for name, sign in self._signs.items() if sign.silence_s >= self._ttl_s / 2)
        self.fell_silent = self.silent - before
        return {name: sign.counter for name, sign in self._signs.items() if sign.silence_s >= self._ttl_s}

    def _next_sign(
        self, session: str, counter: bytes | None, since_s: float, asked_s: float, answered_s: float
    ) -> Sign:
        sign = self._signs.get(session)
        if sign is None or sign.counter != counter:
            return Sign(counter, answered_s)
        gap_s = min(asked_s - max(since_s, sign.seen_s), GAP_TTLS * self._ttl_s)
        return sign._replace(silence_s=sign.silence_s + max(gap_s, 0.0))
