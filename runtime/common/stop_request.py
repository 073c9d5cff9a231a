"""StopRequest: tells a second request to stop from a signal that comes twice for one."""

from __future__ import annotations

import time

SAME_REQUEST_S = 0.25
"""``timeout``, and others that end a process, signal the process and its group, so that it gets the signal twice."""


class StopRequest:
    """The signals to stop that this process has got."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def is_second(self) -> bool:
        """Called at each signal: whether this is another request than the first one."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        return now_s - self._first_s >= SAME_REQUEST_S
