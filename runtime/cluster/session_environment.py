"""What a session needs of its process: clock, sleep and random tokens. A simulation has its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from ..engine.clock import boottime_s

BEATS_PER_TTL = 4
LOOKS_PER_TTL = 8
CALM_TTLS = 0.5
CLOCK_RATE_MARGIN = 0.1
"""Leases end correctly if the clocks of two nodes differ in their rates by less than this."""


def random_token() -> bytes:
    return os.urandom(8)


def _expect_nothing(_partitions: Collection[int]) -> None:
    """The default of ``expect``."""


class SessionEnvironment(NamedTuple):
    """``now``: seconds of a clock that goes on while the machine is suspended. ``token``: 8 random bytes.

    ``ttl_s``: a session that shows no sign of life for this long is declared dead. A checkpoint is written after
    ``checkpoint_interval_s``, and when this many bytes or rounds are in no segment. ``pack_rounds``: of each pack of
    the WAL; 0: there are none. After each ``continuity_interval_s`` the store is compared with what the session knows.
    ``expect`` gets the partitions that the session may own soon, whenever they may have changed, so that the process
    can prepare to load them.
    """

    ttl_s: float = 1.5
    checkpoint_interval_s: float = 10.0
    checkpoint_bytes: int = 8 * 1024 * 1024
    checkpoint_rounds: int = 256
    pack_rounds: int = 0
    garbage_interval_s: float = 60.0
    continuity_interval_s: float = 10.0
    now: Callable[[], float] = boottime_s
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    token: Callable[[], bytes] = random_token
    expect: Callable[[Collection[int]], None] = _expect_nothing

    @property
    def ttl_ms(self) -> int:
        return round(1000 * self.ttl_s)

    @property
    def calm_s(self) -> float:
        """Partitions move to nodes that have joined after so long without another one that joins or ends."""
        return self.ttl_s * CALM_TTLS

    @property
    def lease_s(self) -> float:
        """A session may answer reads for this long after it began to write a sign of life."""
        return self.ttl_s * (1 - CLOCK_RATE_MARGIN)
