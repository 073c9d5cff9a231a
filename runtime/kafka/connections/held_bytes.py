"""HeldBytes: the bytes that all connections hold in one kind of buffer, and their common limit.

There are three: unsent responses (``queued_max_response_bytes``), requests that are incomplete or wait for their turn
(``queued_max_request_bytes``), and Fetches that wait for records (the same limit). Kafka bounds the second by a setting
of that name; it then reads no connection at all until memory is free, so clients that never complete a request stop all
others. Here the connection that has waited longest is closed instead: a client that reads and writes at all is never
the one. Of the Fetches, the one that has waited longest is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class HeldBytes(Generic[Holder]):
    """Bytes by holder, the one that has waited longest first.

    ``evict(holder, size_bytes)`` is called for the first holder while all together have more than ``max_bytes()`` and
    there is more than one. It must release the bytes; they are not counted any more.
    """

    __slots__ = ("_evict", "_max_bytes", "_sizes", "total_bytes")

    def __init__(self, max_bytes: Callable[[], int], evict: Callable[[Holder, int], None]) -> None:
        self._max_bytes = max_bytes
        self._evict = evict
        self._sizes: dict[Holder, int] = {}
        self.total_bytes = 0

    def __len__(self) -> int:
        """How many holders there are."""
        return len(self._sizes)

    @property
    def free_bytes(self) -> int:
        """How many bytes are left below the limit."""
        return max(self._max_bytes() - self.total_bytes, 0)

    def set(self, holder: Holder, size_bytes: int) -> None:
        """Set the bytes of a holder. It keeps its position."""
        self.total_bytes += size_bytes - self._sizes.get(holder, 0)
        if size_bytes:
            self._sizes[holder] = size_bytes
            self._evict_first()
        else:
            self._sizes.pop(holder, None)

    def renew(self, holder: Holder, size_bytes: int) -> None:
        """Set the bytes of a holder that has made progress: it becomes the last one."""
        self.total_bytes -= self._sizes.pop(holder, 0)
        self.set(holder, size_bytes)

    def _evict_first(self) -> None:
        while self.total_bytes > self._max_bytes() and len(self._sizes) > 1:
            holder = next(iter(self._sizes))
            size_bytes = self._sizes.pop(holder)
            self.total_bytes -= size_bytes
            self._evict(holder, size_bytes)
