"""The batches of a partition in memory, oldest first, with their offsets and timestamps."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ..log.format.batch import offsets_of
from .batch_times import BatchTimes


class StoredBatch(NamedTuple):
    """A batch as stored. ``max_timestamp_ms``: the newest timestamp of its records, or a later one."""

    base_offset: int
    data: bytes
    max_timestamp_ms: int


class StoredBatches:
    """Batches with increasing base offsets; a compacted partition has gaps between them.

    Batches have numbers, which are never reused: ``first_number`` is that of the oldest one.
    """

    __slots__ = ("_base_offsets", "_batches", "_head", "size_bytes", "times")

    def __init__(self, numbers_from: int = 0) -> None:
        """``numbers_from``: the lowest number of a batch; the first one gets this or a higher number."""
        self._base_offsets = array("q")
        self._batches: list[bytes] = []
        self._head = 0  # entries before it are dropped; the lists are shortened when half of them is
        self.times = BatchTimes(numbers_from)
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._batches) - self._head

    @property
    def first_number(self) -> int:
        return self.times.end - len(self)

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest batch. There must be one."""
        return self._base_offsets[self._head]

    @property
    def last_offset(self) -> int:
        """The base offset of the newest batch. There must be one."""
        return self._base_offsets[-1]

    @property
    def oldest_ms(self) -> int:
        """The newest timestamp of the oldest batch. There must be one."""
        return self.times[self.first_number]

    def batch(self, number: int) -> bytes:
        return self._batches[number - self.times.end]

    def append(self, base_offset: int, data: bytes, max_timestamp_ms: int) -> None:
        self._base_offsets.append(base_offset)
        self._batches.append(data)
        self.times.append(max_timestamp_ms)
        self.size_bytes += len(data)

    def drop_oldest(self) -> int:
        """Drop the oldest batch and return its size in bytes. There must be one."""
        size = len(self._batches[self._head])
        self._batches[self._head] = b""
        self._head += 1
        self.size_bytes -= size
        if self._head * 2 > len(self._base_offsets):
            del self._base_offsets[: self._head], self._batches[: self._head]
            self._head = 0
            self.times.drop_before(self.first_number)
        return size

    def second_offset(self) -> int | None:
        """The base offset of the second batch; None if there is none."""
        return self._base_offsets[self._head + 1] if len(self) > 1 else None

    def from_offset(self, offset: int, count: int) -> list[StoredBatch]:
        """The first ``count`` batches with this base offset or a later one."""
        first = bisect_right(self._base_offsets, offset - 1, lo=self._head)
        return [
            StoredBatch(
                self._base_offsets[index], self._batches[index], self.times[self.first_number + index - self._head]
            )
            for index in range(first, min(first + count, len(self._batches)))
        ]

    def select(self, offset: int, end_offset: int, max_bytes: int, allow_oversized: bool) -> Sequence[bytes]:
        """The batches from ``offset`` on that begin before ``end_offset``, at most ``max_bytes`` in total.

        ``allow_oversized``: the first one may be larger. A batch that ends before ``offset``, which is in a gap, is not
        returned: a client would read it again and again.
        """
        first = bisect_right(self._base_offsets, offset, lo=self._head) - 1
        if first < self._head or offsets_of(self._batches[first])[1] < offset:
            first += 1
        last, remaining_bytes = first, max_bytes
        while last < len(self._base_offsets) and self._base_offsets[last] < end_offset:
            size = len(self._batches[last])
            if size > remaining_bytes and not (allow_oversized and last == first):
                break
            remaining_bytes -= size
            last += 1
        return self._batches[first:last]
