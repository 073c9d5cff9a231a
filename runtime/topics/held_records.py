"""HeldRecords: the records of all topics in memory, and their common limit ``total_retention_bytes``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Holder = TypeVar("Holder")

BATCH_BYTES = 150
"""The objects of a batch, in addition to its bytes."""


class SizeClasses(Generic[Holder]):
    """The sizes of holders of records, in classes by powers of two.

    So a holder that is at least half as large as the largest one is found without a search.
    """

    __slots__ = ("_classes", "_sizes")

    def __init__(self) -> None:
        self._classes: dict[int, dict[Holder, None]] = {}  # by the number of bits of the size
        self._sizes: dict[Holder, int] = {}

    def size_of(self, holder: Holder) -> int:
        return self._sizes.get(holder, 0)

    def change(self, holder: Holder, added_bytes: int) -> None:
        """A holder has so many more bytes; less if negative."""
        previous = self._sizes.get(holder, 0)
        size_bytes = previous + added_bytes
        if size_bytes.bit_length() != previous.bit_length():
            self._leave_class(holder, previous)
            if size_bytes:
                self._classes.setdefault(size_bytes.bit_length(), {})[holder] = None
        if size_bytes:
            self._sizes[holder] = size_bytes
        else:
            self._sizes.pop(holder, None)

    def _leave_class(self, holder: Holder, size_bytes: int) -> None:
        if size_bytes:
            members = self._classes[size_bytes.bit_length()]
            del members[holder]
            if not members:
                del self._classes[size_bytes.bit_length()]

    def find_large(self, excluded: Holder | None = None) -> Holder | None:
        """A holder that is at least half as large as the largest one that is not ``excluded``."""
        by_size = (self._classes[bits] for bits in sorted(self._classes, reverse=True))
        return next((holder for holders in by_size for holder in holders if holder is not excluded), None)


class RecordHolder(Protocol):
    """A topic."""

    def drop_oldest(self) -> None:
        """Drop the oldest batch of a large partition."""


class HeldRecords:
    """Bytes and batches of all topics. ``max_bytes`` returns the limit."""

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._sizes = SizeClasses[RecordHolder]()
        self.total_bytes = 0
        self.batches = 0

    @property
    def memory_bytes(self) -> int:
        """About the memory of all records."""
        return self.total_bytes + self.batches * BATCH_BYTES

    def change(self, topic: RecordHolder, added_bytes: int, added_batches: int) -> None:
        """A topic has so many more bytes and batches of records; less if negative."""
        self.total_bytes += added_bytes
        self.batches += added_batches
        self._sizes.change(topic, added_bytes)

    def enforce_limit(self, newest: RecordHolder, added_bytes: int, drops_max: int) -> None:
        """Let large topics drop up to ``drops_max`` batches while the limit is exceeded.

        The batch that ``newest`` has just got stays.
        """
        for _ in range(drops_max):
            if self.total_bytes <= self._max_bytes():
                return
            large = self._sizes.find_large(newest if self._sizes.size_of(newest) <= added_bytes else None)
            if large is None:
                return
            large.drop_oldest()
