"""A queue of responses of which each iteration of the event loop sends a few.

When a generation begins, or its assignments are durable, a group answers all its members at once, as in Kafka. Encoding
and sending the responses of 5,000 members takes ten times as long as making them, and a heartbeat of another group
would wait for all of it. Therefore they are queued here, and each iteration sends ``RESPONSES_PER_TURN``. Each group
has a FIFO queue, and the queues are served round-robin, so that a small group does not wait for a large one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.group.contexts import deliver_reply

RESPONSES_PER_TURN = 32
"""About a millisecond of encoding and sending: half of the time that actors get per iteration."""


class ResponseQueue:
    """Queued replies. ``call_soon`` calls back at the end of this iteration of the event loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._queues: OrderedDict[str, deque[tuple[ReplyTo, Any]]] = OrderedDict()  # by group; the first is served next

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, group_id: str, reply_to: ReplyTo, value: Any) -> None:
        """Queue a reply for a member of a group."""
        queue = self._queues.get(group_id)
        if queue is None:
            if not self._queues:
                self._call_soon(self._deliver_some)
            queue = self._queues[group_id] = deque()
        queue.append((reply_to, value))

    def deliver_all(self) -> None:
        """Deliver all replies now: at a stop."""
        while self._queues:
            self._deliver_next()

    def drop(self) -> None:
        """Discard all replies: at a simulated crash."""
        self._queues.clear()

    def _deliver_some(self) -> None:
        for _ in range(RESPONSES_PER_TURN):
            if not self._queues:
                return
            self._deliver_next()
        if self._queues:
            self._call_soon(self._deliver_some)

    def _deliver_next(self) -> None:
        group_id, queue = next(iter(self._queues.items()))
        reply_to, value = queue.popleft()
        if queue:
            self._queues.move_to_end(group_id)
        else:
            del self._queues[group_id]
        deliver_reply(reply_to, value)
