"""The requests of one connection that are not answered yet, and the rule which of them may be handled.

Kafka handles the next request of a connection after it has answered the previous one. Clients can observe this: a
heartbeat that follows a pending JoinGroup is not handled, and a fetch that follows a commit sees it. This server
does the same, with one exception that clients cannot observe: heartbeats and commits overlap with each other, so
pipelined commits share one sync.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ...common.shared_bytes import SharedBytes
from ..api import Route
from ..call import Call
from ..codec.schemas import Schema

MAX_FRAMES_WAITING = 256
"""Queued requests of one connection. When there are as many, its socket is not read."""

MAX_BYTES_WAITING = 1024 * 1024
"""The same limit in bytes. One request may be larger: up to ``socket_request_max_bytes``."""

MAX_CALLS_OPEN = 1024
"""Unanswered requests of one connection. When there are as many, its socket is not read."""


SMALL_REQUEST_BYTES = 1024
"""Requests up to this size are bounded by ``MAX_CALLS_OPEN``. Larger ones count towards ``MAX_BYTES_OPEN``."""

MAX_BYTES_OPEN = 1024 * 1024
"""Bytes of the larger ones of the unanswered requests of one connection. Beyond them its socket is not read."""


class QueuedRequest(NamedTuple):
    """A frame that waits for the answers of earlier requests. ``body_start``: see ``framing.Frame``."""

    route: Route
    correlation_id: int
    frame: bytes
    body_start: int


class PendingRequests:
    """Handled requests in ``calls``, then queued ones in ``queue``, both in the order in which they arrived.

    The connection adds to ``calls`` itself, because it does so for each request. ``counted_bytes``: what it has last
    reported to ``ClientBuffers.unread``. ``answered_last``: of the last response that ``take_answered`` has returned.
    """

    __slots__ = (
        *("_open_sizes", "answered_at_once", "answered_last", "calls", "counted_bytes", "has_exclusive_call"),
        *("mutes", "open_bytes", "queue", "queued_bytes"),
    )

    def __init__(self) -> None:
        self.answered_at_once: list[bytes | SharedBytes] = []  # responses, sent before those of ``calls``
        self.calls: deque[Call] = deque()  # unanswered, or answered after an unanswered one
        self.has_exclusive_call = False  # the last of ``calls`` does not overlap with a later one, or ``mutes``
        self.mutes = 0  # while above 0 no request is handled
        self.queue: deque[QueuedRequest] = deque()
        self.queued_bytes = 0
        self.counted_bytes = 0
        self.open_bytes = 0  # of the calls in ``_open_sizes``
        self._open_sizes: dict[Call, int] = {}  # of calls above ``SMALL_REQUEST_BYTES``
        self.answered_last: Schema | None = None

    def count_open(self, call: Call, size_bytes: int) -> bool:
        """Count a request above ``SMALL_REQUEST_BYTES``. Returns whether those have ``MAX_BYTES_OPEN`` or more."""
        self._open_sizes[call] = size_bytes
        self.open_bytes += size_bytes
        return self.open_bytes >= MAX_BYTES_OPEN

    def remove_call(self, call: Call) -> None:
        """Remove a request that could not be handled."""
        self.calls.remove(call)
        self.open_bytes -= self._open_sizes.pop(call, 0)
        self.has_exclusive_call = self.mutes > 0

    def take_answered(self) -> list[Any]:
        """Remove the requests that are answered, up to the first unanswered one. Returns their responses.

        A ``SharedBytes`` is the only one, because a request with such a response does not overlap with others.
        """
        calls = self.calls
        payloads: list[Any] = []
        if self.answered_at_once:
            payloads, self.answered_at_once = self.answered_at_once, payloads
        while calls and (payload := calls[0].payload) is not None:
            payloads.append(payload)
            call = calls.popleft()
            self.answered_last = call.schema
            if self.open_bytes:
                self.open_bytes -= self._open_sizes.pop(call, 0)
        if not calls and not self.mutes:
            self.has_exclusive_call = False
        return payloads

    def mute(self) -> None:
        """Queue all further requests, until ``unmute`` is called as often."""
        self.mutes += 1
        self.has_exclusive_call = True

    def unmute(self) -> bool:
        """Returns whether requests may be handled again."""
        self.mutes -= 1
        if not self.mutes and not self.calls:
            self.has_exclusive_call = False
        return not self.mutes

    def add_queued(self, request: QueuedRequest) -> None:
        self.queue.append(request)
        self.queued_bytes += len(request.frame)

    def take_queued(self) -> QueuedRequest | None:
        """Remove and return the first queued request, if it may be handled now."""
        if not self.queue or self.has_exclusive_call or not (self.queue[0].route.overlaps or self.is_empty):
            return None
        request = self.queue.popleft()
        self.queued_bytes -= len(request.frame)
        return request

    def drop_queued(self) -> None:
        """Forget the queued requests. Those in ``calls`` are still answered."""
        self.queue.clear()
        self.queued_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether the responses to all handled requests have been taken."""
        return not (self.calls or self.answered_at_once)

    @property
    def is_full(self) -> bool:
        """Whether no more requests should be read."""
        return (
            len(self.calls) + len(self.answered_at_once) >= MAX_CALLS_OPEN
            or len(self.queue) >= MAX_FRAMES_WAITING
            or self.queued_bytes >= MAX_BYTES_WAITING
            or self.open_bytes >= MAX_BYTES_OPEN
        )

    @property
    def has_room(self) -> bool:
        """Whether more requests may be read again after ``is_full``: each limit is half free."""
        return (
            len(self.calls) < MAX_CALLS_OPEN // 2
            and len(self.queue) < MAX_FRAMES_WAITING // 2
            and self.queued_bytes < MAX_BYTES_WAITING // 2
            and self.open_bytes < MAX_BYTES_OPEN // 2
        )
