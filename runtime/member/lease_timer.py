"""LeaseTimer: checks a member's lease whenever its deadline is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .lease import Lease


class LeaseTimer:
    """Calls ``check`` at the lease's deadline, and again at each later one, until it returns False."""

    __slots__ = ("_check", "_handle", "_lease")

    def __init__(self, lease: Lease, check: Callable[[], bool]) -> None:
        self._lease = lease
        self._check = check
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, unless the timer is running or was cancelled."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_at(self._lease.deadline_s(), self._on_deadline)

    def cancel(self) -> None:
        """Stop. The timer does not start again if it was running."""
        if self._handle is not None:
            self._handle.cancel()

    def _on_deadline(self) -> None:
        self._handle = None
        if self._check():
            self.start()
