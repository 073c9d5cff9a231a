"""When the simulated coordinator reads its sockets. While it is busy, requests wait in the sockets' buffers.

A server with more requests than it can handle polls its sockets seldom, but its timers are due in time. So a request
that arrived in time may be unread when a deadline passes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from math import inf

from .loop import VirtualLoop


class SocketReading:
    """The sockets of the coordinator's process. Requests are delivered in the order in which they arrived."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._is_busy = False
        self._read_since_s = 0.0
        self._unread: list[Callable[[], None]] = []
        self._waits: list[Callable[[], None]] = []

    def read_since_s(self) -> float:
        """Since when the sockets are read; infinity while they are not."""
        return inf if self._is_busy else self._read_since_s

    def arrive(self, deliver: Callable[[], None]) -> None:
        """A request arrives. ``deliver`` is called when it is read."""
        if self._is_busy:
            self._unread.append(deliver)
        else:
            deliver()

    def when_read(self, callback: Callable[[], None]) -> None:
        """See ``node.environment.Environment``."""
        if self._is_busy:
            self._waits.append(callback)
        else:
            callback()

    def pause(self, seconds: float, context: Context) -> None:
        """Read nothing for so long, unless it is paused already. ``context``: that of the coordinator's process."""
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_later(seconds, self._read_all, context=context)

    def resume(self, context: Context) -> None:
        """Read everything now."""
        self._loop.call_soon(self._read_all, context=context)

    def _read_all(self) -> None:
        self._is_busy = False
        self._read_since_s = self._loop.time()
        unread, self._unread = self._unread, []
        waits, self._waits = self._waits, []
        for call in (*unread, *waits):
            call()

    def reset(self) -> None:
        """The process has ended, and its sockets are gone."""
        self._is_busy = False
        self._unread.clear()
        self._waits.clear()
