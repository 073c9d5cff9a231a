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
IDLE, IO_WAIT = 3, 4  # fields of a CPU in /proc/stat


class MachineTime(NamedTuple):
    """The time of the CPUs that this process may use, since the machine started. ``busy_s``: used by any process."""

    busy_s: float
    total_s: float


class Usage(NamedTuple):
    """Resources used by the process so far. ``cpu_wait_s``: how long its threads waited for a CPU.

    What the kernel does not report is None.
    """

    cpu_s: float
    cpu_wait_s: float | None
    machine: MachineTime | None
    voluntary: int
    involuntary: int

    @classmethod
    def now(cls) -> Self:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.process_time(), cpu_wait_s(), machine_time(), usage.ru_nvcsw, usage.ru_nivcsw)


class UsageBetween(NamedTuple):
    """Resources used between two moments. ``others_share``: of the machine's CPU time, what other processes used."""

    cpu_s: float
    cpu_wait_s: float | None
    others_share: float | None
    voluntary: int
    involuntary: int

    @classmethod
    def of(cls, before: Usage, after: Usage) -> Self:
        is_unknown = after.cpu_wait_s is None or before.cpu_wait_s is None
        cpu_s = after.cpu_s - before.cpu_s
        return cls(
            cpu_s,
            None if is_unknown else max((after.cpu_wait_s or 0.0) - (before.cpu_wait_s or 0.0), 0.0),
            others_share(before.machine, after.machine, cpu_s),
            after.voluntary - before.voluntary,
            after.involuntary - before.involuntary,
        )


def others_share(before: MachineTime | None, after: MachineTime | None, cpu_s: float) -> float | None:
    """The share of the CPU time between two moments that others than this process used, which used ``cpu_s``.

    None if it is not known, or if no time has passed by the kernel's clock, which ticks a hundred times a second.
    """
    if before is None or after is None or after.total_s <= before.total_s:
        return None
    return max(after.busy_s - before.busy_s - cpu_s, 0.0) / (after.total_s - before.total_s)


def cpu_wait_s() -> float | None:
    """How long the living threads of this process were ready to run without a CPU, in seconds; see proc(5), schedstat.

    Waiting for a lock, the GIL included, does not count. None where the kernel does not report it.
    """
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def machine_time() -> MachineTime | None:
    """None where ``/proc/stat`` is missing."""
    try:
        text = Path("/proc/stat").read_text()
        return read_machine_time(text, os.sched_getaffinity(0), os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError):
        return None


def read_machine_time(text: str, cpus: Iterable[int], ticks_per_s: int) -> MachineTime:
    """Read ``/proc/stat``, see proc(5). What a hypervisor gave to other machines counts as busy."""
    names = {f"cpu{cpu}" for cpu in cpus}
    rows = [row for line in text.splitlines() if (row := line.split()) and row[0] in names]
    ticks = [[int(field) for field in row[1:9]] for row in rows]  # up to steal; the guests' time is in the user's
    total = sum(map(sum, ticks))
    idle = sum(cpu_ticks[IDLE] + cpu_ticks[IO_WAIT] for cpu_ticks in ticks)
    return MachineTime((total - idle) / ticks_per_s, total / ticks_per_s)


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
