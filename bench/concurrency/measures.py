"""Statistics of the runners' data: percentiles, latency curves, fairness, memory, context switches."""

from __future__ import annotations

import os
import platform
import resource
import sys
import sysconfig
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, Self

CURVE_POINTS = 120
HOT_SHARE = 0.01  # of the groups


class Usage(NamedTuple):
    """Resources used by the process so far. ``cpu_wait_s``: how long its threads waited for a CPU, None if unknown."""

    cpu_s: float
    cpu_wait_s: float | None
    voluntary: int
    involuntary: int

    @classmethod
    def now(cls) -> Self:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.process_time(), cpu_wait_s(), usage.ru_nvcsw, usage.ru_nivcsw)

    def since(self, before: Usage) -> Usage:
        is_unknown = self.cpu_wait_s is None or before.cpu_wait_s is None
        return Usage(
            self.cpu_s - before.cpu_s,
            None if is_unknown else max((self.cpu_wait_s or 0.0) - (before.cpu_wait_s or 0.0), 0.0),
            self.voluntary - before.voluntary,
            self.involuntary - before.involuntary,
        )


def cpu_wait_s() -> float | None:
    """How long the living threads of this process were ready to run without a CPU, in seconds; see proc(5), schedstat.

    Waiting for a lock, the GIL included, does not count. None where the kernel does not report it.
    """
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def resident_bytes() -> int | None:
    """Resident memory of this process; None where there is no ``/proc``."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least ``share`` of all do not exceed. ``ordered`` rises and is not empty."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def latencies_us(ordered_ns: Sequence[int]) -> dict[str, float]:
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: percentile(ordered_ns, share) / 1000 for name, share in shares.items()}


def curve(ordered_ns: Sequence[int]) -> list[tuple[float, float]]:
    """Latencies in microseconds at equal steps of their logarithm, each with the share of requests that took longer."""
    first, last = max(ordered_ns[0], 1), max(ordered_ns[-1], 1)
    step = (last / first) ** (1 / (CURVE_POINTS - 1))
    indexes = [round(first * step**number) for number in range(CURVE_POINTS)]
    count = len(ordered_ns)
    points = ((ns / 1000, 1 - bisect_right(ordered_ns, ns) / count) for ns in dict.fromkeys(indexes))
    return [point for point in points if point[1] > 0]


def jain(counts: Iterable[int]) -> float:
    """Jain's index of fairness: 1 if all shares are equal, 1/n if one share is everything."""
    values = list(counts)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fairness(pairs: Sequence[tuple[int, int]], groups: int) -> dict[str, float | None]:
    """Fairness, and the p99 of the busiest and of the other groups, from pairs of group and latency in ns."""
    counts = Counter(group for group, _ in pairs)
    hottest = {group for group, _ in counts.most_common(ceil(groups * HOT_SHARE))}
    hot = sorted(ns for group, ns in pairs if group in hottest)
    cold = sorted(ns for group, ns in pairs if group not in hottest)
    return {
        "jain": jain([*counts.values(), *[0] * (groups - len(counts))]),
        "cold_p99_us": percentile(cold, 0.99) / 1000 if cold else None,
        "hot_p99_us": percentile(hot, 0.99) / 1000 if hot else None,
    }


def python() -> dict[str, Any]:
    """Which Python this is; ``gil_enabled`` may be true on a free-threaded build too."""
    gil = getattr(sys, "_is_gil_enabled", None)
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil_enabled": True if gil is None else bool(gil()),
    }
