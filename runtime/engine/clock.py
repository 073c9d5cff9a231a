"""The one place that reads the time, and the one that draws random ids."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from time import monotonic_ns, time_ns

log = logging.getLogger("callboard.runtime")

PULSE_MS = 500
"""How often whoever waits for a deadline looks at the clock, at least."""

STALL_MS = 1500
"""A longer time between two looks means that the process stood still. (The shortest session is 6 s, by default.)"""


def wall_clock_ms() -> int:
    """Milliseconds since 1970, by the machine. For all that needs no monotonic time."""
    return time_ns() // 1_000_000


class SystemClock:
    """Monotonic milliseconds for deadlines; wall-clock milliseconds for timestamps in records.

    The monotonic time leaves out what passed while the process stood still (suspended, swapped out, stopped by a
    debugger): nobody could be heard then, so it must not count against anybody. It is noticed by the gap between two
    looks at the clock, while somebody watches it: an ``Alarm`` that is set looks every ``PULSE_MS``. May be read from
    any thread. ``machine_ns`` is the monotonic time in nanoseconds that it is made of.
    """

    def __init__(self, machine_ns: Callable[[], int] = monotonic_ns) -> None:
        self._machine_ns = machine_ns
        self._seen_ms = machine_ns() // 1_000_000
        self._lost_ms = 0
        self._watchers = 0
        self._lock = threading.Lock()

    def monotonic_ms(self) -> int:
        now_ms = self._machine_ns() // 1_000_000
        if now_ms - self._seen_ms > STALL_MS:
            self._has_stalled(now_ms)
        self._seen_ms = now_ms
        return now_ms - self._lost_ms

    def watch(self) -> None:
        """Somebody looks at the clock every ``PULSE_MS`` from now on. A longer gap will be a stall."""
        self.monotonic_ms()
        with self._lock:
            self._watchers += 1

    def unwatch(self) -> None:
        with self._lock:
            self._watchers -= 1

    def _has_stalled(self, now_ms: int) -> None:
        """Nothing, if nobody had to look. Of several threads that notice the same stall, one counts it."""
        with self._lock:
            if self._watchers and now_ms - self._seen_ms > STALL_MS:
                log.warning("the process stood still for %d ms; deadlines move by as much", now_ms - self._seen_ms)
                self._lost_ms += now_ms - self._seen_ms - PULSE_MS
            self._seen_ms = now_ms

    wall_ms = staticmethod(wall_clock_ms)


class SystemRandom:
    def uuid(self) -> str:
        return str(uuid.uuid4())
