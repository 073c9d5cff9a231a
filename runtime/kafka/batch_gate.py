"""BatchGate: how many batches of messages to groups are in flight at a time, for all connections.

The messages for groups that are not active wait in the mailbox of the coordinator, and so may a heartbeat behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

ITEMS_WAITING_MAX = 1_000_000
"""Items of all large requests that are divided into batches. Each takes more than 100 bytes until its answer."""


class BatchGate:
    """Batches wait in the order in which they came. ``batches_max``: how many may be in flight.

    Large requests that are divided into batches are in memory meanwhile, so their items are bounded.
    """

    def __init__(self, batches_max: int) -> None:
        self._batches_max = batches_max
        self._in_flight = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._items: dict[Hashable, int] = {}
        self.items_waiting = 0

    def admit(self, request: Hashable, items: int) -> bool:
        """Whether a request of so many items may wait for its batches. A lone one may. It needs a ``forget``."""
        if self._items and self.items_waiting + items > ITEMS_WAITING_MAX:
            return False
        self._items[request] = items
        self.items_waiting += items
        return True

    def forget(self, request: Hashable) -> None:
        """A request is answered. It need not have been admitted."""
        self.items_waiting -= self._items.pop(request, 0)

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
