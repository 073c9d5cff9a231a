"""BatchGate: how many batches of messages to groups are in flight at a time, for all connections.

The messages for groups that are not active wait in the mailbox of the coordinator, and so may a heartbeat behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class BatchGate:
    """Batches wait in the order in which they came. ``batches_max``: how many may be in flight."""

    def __init__(self, batches_max: int) -> None:
        self._batches_max = batches_max
        self._in_flight = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def enter(self, start: Callable[[], None]) -> None:
        """Call ``start`` when a batch may be sent. Each call needs a ``leave`` when the batch is answered."""
        if self._in_flight < self._batches_max:
            self._in_flight += 1
            start()
        else:
            self._waiting.append(start)

    def leave(self) -> None:
        """A batch is answered."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._in_flight -= 1
