"""Wait for a condition with a deadline, instead of sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for three clients that start at once on a busy machine; a passing test does not wait for it.
DEADLINE_S = 60.0
POLL_INTERVAL_S = 0.02


def wait_until(
    poll: Callable[[], T], accept: Callable[[T], object], description: str, deadline_s: float = DEADLINE_S
) -> T:
    """Call ``poll`` until ``accept`` is true for its result, and return the result.

    Raises AssertionError with the description and the last result after ``deadline_s`` seconds.
    """
    end = time.monotonic() + deadline_s
    while True:
        value = poll()
        if accept(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s:.0f} s for {description}; last value: {value!r}")
        time.sleep(POLL_INTERVAL_S)
