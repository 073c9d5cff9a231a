"""The one place that reads the time, and the one that draws random ids."""

from __future__ import annotations

import time
import uuid

PULSE_MS = 500
"""How often whoever waits for a deadline looks at the clock, at least."""

STALL_MS = 1500
"""A longer time between two looks means that the process stood still. (The shortest session is 6 s, by default.)"""


def machine_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SystemClock:
    """Monotonic milliseconds for deadlines; wall-clock milliseconds for timestamps in records.

    The monotonic time leaves out what passed while the process stood still (suspended, swapped out, stopped by a
    debugger): nobody could be heard then, so it must not count against anybody. It is noticed by the gap between two
    looks at the clock; an ``Alarm`` that is set looks every ``PULSE_MS``. So the time also stands still while no
    deadline is filed, which nobody can tell.
    """

    def __init__(self) -> None:
        self._seen_ms = machine_ms()
        self._lost_ms = 0

    def monotonic_ms(self) -> int:
        now_ms = machine_ms()
        if now_ms - self._seen_ms > STALL_MS:
            self._lost_ms += now_ms - self._seen_ms - PULSE_MS
        self._seen_ms = now_ms
        return now_ms - self._lost_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemRandom:
    def uuid(self) -> str:
        return str(uuid.uuid4())
