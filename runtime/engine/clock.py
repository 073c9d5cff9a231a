"""The only module that reads the time, and the only one that draws random ids."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from time import monotonic_ns, time_ns

log = logging.getLogger("callboard.runtime")

CLOCK_CHECK_INTERVAL_MS = 500
"""While an alarm is set it reads the clock at least this often."""

STALL_MS = 1500
"""A longer time between two reads means that the process was stopped. (The default minimum session timeout is 6 s.)"""


BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_clock_ms() -> int:
    """Milliseconds since 1970, from the system clock. Not for deadlines, which need monotonic time."""
    return time_ns() // 1_000_000


boottime_s: Callable[[], float] = partial(time.clock_gettime, BOOTTIME)
"""Seconds of the monotonic clock that also advances while the machine is suspended. For leases of other machines.

CLOCK_BOOTTIME on Linux. Where there is none, as on macOS, CLOCK_MONOTONIC advances during sleep.
"""


class SystemClock:
    """Monotonic milliseconds for deadlines; wall-clock milliseconds for timestamps in records.

    The monotonic time excludes stalls, in which the process did not run (suspended, swapped out, stopped by a
    debugger): it received no heartbeats then, so that time must not count against a member. A stall is detected by the
    gap between two reads of the clock while it has watchers: an ``Alarm`` that is set reads it every
    ``CLOCK_CHECK_INTERVAL_MS``. May be read from any thread. ``machine_ns`` is the underlying monotonic clock, in
    nanoseconds.
    """

    def __init__(self, machine_ns: Callable[[], int] = monotonic_ns) -> None:
        self._machine_ns = machine_ns
        self._last_read_ms = machine_ns() // 1_000_000
        self._stalled_ms = 0  # the sum of all stalls
        self._watchers = 0
        self._lock = threading.Lock()

    def monotonic_ms(self) -> int:
        now_ms = self._machine_ns() // 1_000_000
        if now_ms - self._last_read_ms > STALL_MS:
            self._count_stall(now_ms)
        self._last_read_ms = now_ms
        return now_ms - self._stalled_ms

    def add_watcher(self) -> None:
        """From now on the caller reads the clock every ``CLOCK_CHECK_INTERVAL_MS``, so a longer gap is a stall."""
        self.monotonic_ms()
        with self._lock:
            self._watchers += 1

    def remove_watcher(self) -> None:
        with self._lock:
            self._watchers -= 1

    def _count_stall(self, now_ms: int) -> None:
        """Without watchers a gap is no stall. If several threads detect the same stall, only one counts it."""
        with self._lock:
            if self._watchers and now_ms - self._last_read_ms > STALL_MS:
                stall_ms = now_ms - self._last_read_ms
                log.warning("the process stood still for %d ms; deadlines move by as much", stall_ms)
                self._stalled_ms += stall_ms - CLOCK_CHECK_INTERVAL_MS
            self._last_read_ms = now_ms

    wall_ms = staticmethod(wall_clock_ms)


class SystemRandom:
    def uuid(self) -> str:
        return str(uuid.uuid4())
