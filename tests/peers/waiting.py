"""Waiting for a condition with a deadline: how these tests wait instead of sleeping for fixed times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for three clients that start at once on a busy machine; a test that passes never waits for it.
DEADLINE_S = 60.0
POLL_INTERVAL_S = 0.02


def wait_until(look: Callable[[], T], accept: Callable[[T], object], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Look again and again until ``accept`` agrees with what was seen, and return that.

    Raises AssertionError with what was awaited and what was seen last when ``deadline_s`` seconds are over.
    """
    end = time.monotonic() + deadline_s
    while True:
        seen = look()
        if accept(seen):
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s:.0f} s for {what}; seen last: {seen!r}")
        time.sleep(POLL_INTERVAL_S)
