"""LeaseTimer: checks a member's lease when its deadline is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .lease import Lease

RESOLUTION_S = 0.001
"""The shortest delay, so that a timer that fires a rounding error too early does not fire again and again."""


class LeaseTimer:
    """Calls ``check`` at the lease's deadline, and again at each later one, until it returns False.

    It also calls it once in a heartbeat interval, because the timers of an event loop stand still while the machine is
    suspended, and the lease does not.
    """

    __slots__ = ("_check", "_handle", "_lease")

    def __init__(self, lease: Lease, check: Callable[[], bool]) -> None:
        self._lease = lease
        self._check = check
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, unless the timer is running or was cancelled."""
        if self._handle is None:
            delay_s = min(max(self._lease.left_s(), RESOLUTION_S), self._lease.timeouts.interval_s)
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def cancel(self) -> None:
        """Stop. The timer does not start again if it was running."""
        if self._handle is not None:
            self._handle.cancel()

    def _on_due(self) -> None:
        self._handle = None
        if self._check():
            self.start()
