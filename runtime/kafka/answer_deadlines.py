"""Answers in time to requests whose records are not durable yet, because the store of a cluster does not answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...actors.errors import ErrorCode
from ...actors.steps import Steps
from .call import Call

Handler = Callable[[Call], Steps[None] | None]

INTERVAL_MS = 100
ANSWERS_PER_TURN = 64


class AnswerDeadlines:
    """The requests of one server that wait for the log, in their order. All have the same time limit.

    After ``offsets_commit_timeout_ms`` a request is answered with COORDINATOR_NOT_AVAILABLE, as in Kafka. Its records
    may become durable later, and then take effect.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Call]] = deque()
        self._is_scheduled = False

    def limited(self, handle: Handler) -> Handler:
        """Return a handler whose calls are answered in time."""

        def handle_limited(call: Call) -> Steps[None] | None:
            self._add(call)
            return handle(call)

        return handle_limited

    def _add(self, call: Call) -> None:
        waiting, services = self._waiting, call.services
        while waiting and waiting[0][1].payload is not None:
            waiting.popleft()
        waiting.append((services.clock.monotonic_ms() + services.settings.offsets_commit_timeout_ms, call))
        if not self._is_scheduled:
            self._is_scheduled = True
            services.later(INTERVAL_MS, self._expire)

    def _expire(self) -> None:
        """Answer those that are due, a few in each turn of the loop."""
        waiting = self._waiting
        self._is_scheduled = False
        for _ in range(ANSWERS_PER_TURN):
            while waiting and waiting[0][1].payload is not None:
                waiting.popleft()
            if not waiting:
                return
            due_ms, call = waiting[0]
            left_ms = due_ms - call.services.clock.monotonic_ms()
            if left_ms > 0:
                self._schedule(call, min(left_ms, INTERVAL_MS))
                return
            waiting.popleft()
            call.respond_with_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if waiting:
            self._schedule(waiting[0][1], 0)

    def _schedule(self, call: Call, delay_ms: int) -> None:
        self._is_scheduled = True
        call.services.later(delay_ms, self._expire)
