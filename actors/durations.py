"""Durations: a histogram, for metrics. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Durations:
    """``counts``: one number for each bound and one for longer durations, not cumulative. ``seconds``: their sum."""

    __slots__ = ("bounds_s", "counts", "seconds")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        """``bounds_s``: the upper bounds of the buckets, in ascending order."""
        self.bounds_s = bounds_s
        self.seconds = 0.0
        self.counts = [0] * (len(bounds_s) + 1)

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
