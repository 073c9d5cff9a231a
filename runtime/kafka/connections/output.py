"""Output: the responses of one connection on their way to the socket.

A large response waits here, and the transport gets ``WRITE_BYTES`` of it at a time. So a client that does not read
holds no copy of it: the records of a Fetch response are those of the topic, until they are written.
"""

from __future__ import annotations

from collections import deque

from ...common.shared_bytes import SharedBytes

WRITE_BYTES = 256 * 1024
"""The most that is written at once, and that the transport of a client that does not read holds."""


class Output:
    """Parts of responses that are not written yet.

    ``is_paused``: the transport takes no more bytes now. ``is_scheduled``: the connection's responses are sent at the
    end of this turn of the loop.
    """

    __slots__ = ("_parts", "is_paused", "is_scheduled", "waiting_bytes")

    def __init__(self) -> None:
        self._parts: deque[bytes | memoryview] = deque()
        self.waiting_bytes = 0
        self.is_paused = False
        self.is_scheduled = False

    @property
    def is_blocked(self) -> bool:
        """Whether the client has not read all responses so far."""
        return self.is_paused or self.waiting_bytes > 0

    @property
    def unsent_bytes(self) -> int:
        """About the bytes that are held for the client, here and in its transport."""
        return self.waiting_bytes + WRITE_BYTES * self.is_paused

    def add(self, payload: bytes | SharedBytes) -> None:
        self._parts.extend(payload.parts if isinstance(payload, SharedBytes) else (payload,))
        self.waiting_bytes += len(payload)

    def take(self, max_bytes: int = WRITE_BYTES) -> bytes:
        """Remove and return the next bytes, at most ``max_bytes``."""
        taken: list[bytes | memoryview] = []
        parts, left_bytes = self._parts, max_bytes
        while parts and left_bytes:
            part = parts.popleft()
            if len(part) > left_bytes:
                view = memoryview(part)
                parts.appendleft(view[left_bytes:])
                part = view[:left_bytes]
            taken.append(part)
            left_bytes -= len(part)
        self.waiting_bytes -= max_bytes - left_bytes
        return b"".join(taken)

    def take_all(self) -> bytes:
        return self.take(self.waiting_bytes)

    def clear(self) -> None:
        self._parts.clear()
        self.waiting_bytes = 0
