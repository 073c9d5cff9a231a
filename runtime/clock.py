"""The one place that reads the time, and the one that draws random ids."""

from __future__ import annotations

import time
import uuid


class SystemClock:
    """Monotonic milliseconds for deadlines; wall-clock milliseconds for timestamps in records."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemRandom:
    def uuid(self) -> str:
        return str(uuid.uuid4())
