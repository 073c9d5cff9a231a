"""The highest timestamp of each batch of a partition, with an index, so that a search does not read all batches.

Timestamps are in any order, as producers sent them. Batches are numbered from 0 on as they are appended; a number is
never reused. Pure.
"""

from __future__ import annotations

from array import array
from itertools import chain

BLOCK = 64
"""Batches of a block, and blocks of a large block. The index has the highest timestamp of each of both."""

LARGE_BLOCK = BLOCK * BLOCK


class BatchTimes:
    """Timestamps in ms by batch number. A search among a million batches compares about 500 numbers."""

    __slots__ = ("_blocks", "_first", "_large_blocks", "_times")

    def __init__(self, first: int = 0) -> None:
        """``first``: the lowest number of the first batch."""
        self._first = (
            -(-first // LARGE_BLOCK) * LARGE_BLOCK
        )  # number of the first batch that is kept, a multiple of LARGE_BLOCK
        self._times = array("q")
        self._blocks = array("q")
        self._large_blocks = array("q")

    @property
    def end(self) -> int:
        """The number of the next batch."""
        return self._first + len(self._times)

    def __getitem__(self, number: int) -> int:
        return self._times[number - self._first]

    def append(self, timestamp_ms: int) -> None:
        count = len(self._times)
        self._times.append(timestamp_ms)
        for maxima, size in ((self._blocks, BLOCK), (self._large_blocks, LARGE_BLOCK)):
            if count % size == 0:
                maxima.append(timestamp_ms)
            elif timestamp_ms > maxima[-1]:
                maxima[-1] = timestamp_ms

    def lower(self, number: int, timestamp_ms: int) -> None:
        """Correct the timestamp of a batch."""
        index = number - self._first
        self._times[index] = timestamp_ms
        block, large_block = index // BLOCK, index // LARGE_BLOCK
        self._blocks[block] = max(self._times[block * BLOCK : (block + 1) * BLOCK])
        self._large_blocks[large_block] = max(self._blocks[large_block * BLOCK : (large_block + 1) * BLOCK])

    def find_first_since(self, number: int, timestamp_ms: int) -> int | None:
        """The first batch, from ``number`` on, with this timestamp or a later one; None if there is none."""
        times, blocks, large_blocks = self._times, self._blocks, self._large_blocks
        index, count = number - self._first, len(times)
        while index < count:
            if index % LARGE_BLOCK == 0 and large_blocks[index // LARGE_BLOCK] < timestamp_ms:
                index += LARGE_BLOCK
            elif index % BLOCK == 0 and blocks[index // BLOCK] < timestamp_ms:
                index += BLOCK
            elif times[index] < timestamp_ms:
                index += 1
            else:
                return index + self._first
        return None

    def highest(self, number: int) -> int | None:
        """The highest timestamp of the batches from ``number`` on; None if there are none."""
        index = number - self._first
        block = -(-index // BLOCK)
        large_block = -(-block // BLOCK)
        return max(
            chain(
                self._times[index : block * BLOCK],
                self._blocks[block : large_block * BLOCK],
                self._large_blocks[large_block:],
            ),
            default=None,
        )

    def drop_before(self, number: int) -> None:
        """Free the memory of batches before ``number``, in whole large blocks. Their numbers must not be used again."""
        count = (number - self._first) // LARGE_BLOCK
        del self._times[: count * LARGE_BLOCK], self._blocks[: count * BLOCK], self._large_blocks[:count]
        self._first += count * LARGE_BLOCK
