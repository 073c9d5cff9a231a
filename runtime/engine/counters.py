"""Counters of an engine. Each worker has its own, so that counting needs no lock."""

from __future__ import annotations

from collections import defaultdict

TURN_BUCKETS = 64  # one for each bit length of a duration in nanoseconds


class TurnCounters:
    """Counters of one worker. ``turns[n]`` counts the turns of ``2 ** (n - 1)`` to ``2 ** n`` nanoseconds."""

    __slots__ = ("handled", "longest_turn_ns", "turns")

    def __init__(self) -> None:
        self.handled: defaultdict[type, int] = defaultdict(int)
        self.turns = [0] * TURN_BUCKETS
        self.longest_turn_ns = 0

    def count_turn(self, elapsed_ns: int) -> None:
        self.turns[elapsed_ns.bit_length()] += 1
        if elapsed_ns > self.longest_turn_ns:
            self.longest_turn_ns = elapsed_ns


class EngineCounters:
    """The counters of a dispatcher. ``late_replies``: answers that came after the timeout of their ask."""

    def __init__(self) -> None:
        self.restarts = 0
        self.late_replies = 0
        self.workers: list[TurnCounters] = []

    def new_worker(self) -> TurnCounters:
        """The counters of another worker."""
        counters = TurnCounters()
        self.workers.append(counters)
        return counters
