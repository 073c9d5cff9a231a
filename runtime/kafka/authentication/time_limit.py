"""TimeLimit: until when a client has to be authenticated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TimeLimit:
    """Begins when the client is read, for which it may have waited, and ends when it is authenticated.

    ``later`` calls a function after so many milliseconds: here ``time_out`` after ``timeout_ms``.
    """

    def __init__(
        self,
        later: Callable[[int, Callable[[], None]], asyncio.TimerHandle],
        timeout_ms: int,
        time_out: Callable[[], None],
    ) -> None:
        self._later = later
        self._timeout_ms = timeout_ms
        self._time_out = time_out
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A second call does nothing."""
        if self._timer is None:
            self._timer = self._later(self._timeout_ms, self._time_out)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
