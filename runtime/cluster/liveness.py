"""Which sessions show no sign of life. Pure: the caller reads the counters and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sign(NamedTuple):
    """A counter, and when it was first seen, in seconds of this node's clock."""

    counter: bytes | None
    seen_s: float


class Liveness:
    """Times are this node's own, so clocks of nodes need not agree."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._signs: dict[str, Sign] = {}
        self._looked_s: float | None = None
        self._silent: frozenset[str] = frozenset()

    def is_silent(self, session: str) -> bool:
        """It has shown no sign of life for half a TTL, by the last look. Clients that ask it may wait for nothing."""
        return session in self._silent

    def look(self, counters: Mapping[str, bytes | None], asked_s: float, answered_s: float) -> dict[str, bytes | None]:
        """The sessions that are dead, with the counter that has not changed for a TTL. ``counters``: of all others.

        If this node has not looked for half a TTL, the store or the node itself was stalled, so a silence proves
        nothing: all times count anew.
        """
        if self._looked_s is None or asked_s - self._looked_s > self._ttl_s / 2:
            self._signs.clear()
        self._looked_s = answered_s
        for session in self._signs.keys() - counters.keys():
            del self._signs[session]
        silences_s = {
            session: self._silence_s(session, counter, asked_s, answered_s) for session, counter in counters.items()
        }
        self._silent = frozenset(name for name, silence_s in silences_s.items() if silence_s >= self._ttl_s / 2)
        return {name: counters[name] for name, silence_s in silences_s.items() if silence_s >= self._ttl_s}

    def _silence_s(self, session: str, counter: bytes | None, asked_s: float, answered_s: float) -> float:
        sign = self._signs.get(session)
        if sign is None or sign.counter != counter:
            self._signs[session] = Sign(counter, answered_s)
            return 0.0
        return asked_s - sign.seen_s
