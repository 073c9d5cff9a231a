"""HeldRecords: the records of all topics in memory, and their common limit ``total_retention_bytes``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

BATCH_BYTES = 150
"""The objects of a batch, in addition to its bytes."""


class RecordHolder(Protocol):
    """A topic."""

    def drop_oldest(self) -> None:
        """Drop the oldest batch of the largest partition."""


class HeldRecords:
    """Bytes and batches of all topics. ``max_bytes`` returns the limit.

    Topics are in classes by their size, in powers of two, so a topic that is at least half as large as the largest one
    is found without a search.
    """

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._classes: dict[int, dict[RecordHolder, None]] = {}  # by the number of bits of the size
        self._sizes: dict[RecordHolder, int] = {}
        self.total_bytes = 0
        self.batches = 0

    @property
    def memory_bytes(self) -> int:
        """About the memory of all records."""
        return self.total_bytes + self.batches * BATCH_BYTES

    def change(self, topic: RecordHolder, added_bytes: int, added_batches: int) -> None:
        """A topic has so many more bytes and batches of records; less if negative."""
        previous = self._sizes.get(topic, 0)
        size_bytes = previous + added_bytes
        self.total_bytes += added_bytes
        self.batches += added_batches
        if size_bytes.bit_length() != previous.bit_length():
            self._leave_class(topic, previous)
            if size_bytes:
                self._classes.setdefault(size_bytes.bit_length(), {})[topic] = None
        if size_bytes:
            self._sizes[topic] = size_bytes
        else:
            self._sizes.pop(topic, None)

    def _leave_class(self, topic: RecordHolder, size_bytes: int) -> None:
        if size_bytes:
            members = self._classes[size_bytes.bit_length()]
            del members[topic]
            if not members:
                del self._classes[size_bytes.bit_length()]

    def enforce_limit(self, newest: RecordHolder, added_bytes: int) -> None:
        """Let large topics drop batches until the limit holds. The batch that ``newest`` has just got stays."""
        while self.total_bytes > self._max_bytes():
            largest = self._find_largest(newest if self._sizes[newest] <= added_bytes else None)
            if largest is None:
                return
            largest.drop_oldest()

    def _find_largest(self, excluded: RecordHolder | None) -> RecordHolder | None:
        by_size = (self._classes[bits] for bits in sorted(self._classes, reverse=True))
        return next((topic for topics in by_size for topic in topics if topic is not excluded), None)
