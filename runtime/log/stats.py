"""Statistics of an open log, for metrics and for people."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

SYNC_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds of the histogram buckets of journal syncs; longer syncs are counted in one more bucket."""


class PartitionStats(NamedTuple):
    """``name``: the folder's. ``open_bytes``: size of the open segment. ``failure``: why it is not written any more."""

    name: str
    end_offset: int
    open_bytes: int
    failure: str


class LogStats(NamedTuple):
    """Counts since the log was opened; current sizes in bytes; ``partitions`` are those that have records.

    ``sync_counts`` has one count per bucket of ``SYNC_BOUNDS_S`` and one for longer syncs, not cumulative. ``failure``
    is the reason if all commits are refused, else empty. ``full`` names the part without room, if any.
    """

    records: int = 0
    rounds: int = 0
    refused_rounds: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0
    sync_counts: tuple[int, ...] = (0,) * (len(SYNC_BOUNDS_S) + 1)
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    journal_files: int = 0
    journal_bytes: int = 0
    waiting_bytes: int = 0
    failure: str = ""
    full: tuple[str, ...] = ()
    partitions: tuple[PartitionStats, ...] = ()

    @property
    def failures(self) -> Mapping[str, str]:
        """The reason of each failed partition, by its name."""
        return {partition.name: partition.failure for partition in self.partitions if partition.failure}


class Counters:
    """Counters that the log's work updates. ``first_ends``: the sum of all end offsets when the log was opened."""

    def __init__(self) -> None:
        self.first_ends = 0
        self.rounds = self.refused_rounds = self.syncs = self.checkpoints = 0
        self.sync_seconds = self.checkpoint_seconds = 0.0
        self.sync_counts = [0] * (len(SYNC_BOUNDS_S) + 1)

    def count_sync(self, seconds: float) -> None:
        self.syncs += 1
        self.sync_seconds += seconds
        self.sync_counts[bisect_left(SYNC_BOUNDS_S, seconds)] += 1
