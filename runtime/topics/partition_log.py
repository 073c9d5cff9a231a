"""One partition in memory: whole batches as producers sent them, found by offset or by time. Pure: no file, no clock.

The oldest batches can be dropped; offsets never start again. After a restart the log is empty and begins where it
ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.records import MarkerRecord
from ..log.format.batch import Producer, encode_batch, frame_record, read_batch
from ..log.format.errors import DamagedBatch
from ..log.format.transaction_records import encode_marker
from .batch import check_batch, read_batch_info
from .producers import Producers
from .transactions import PartitionTransactions

Waiter = Callable[[int], None]
"""Called with the bytes of each batch that the partition takes. It may remove itself."""


class TimestampAndOffset(NamedTuple):
    """A record that was searched by time."""

    timestamp_ms: int
    offset: int


class PartitionLog:
    """The log of one partition. ``start_offset`` is the oldest record's, ``end_offset`` the next one's.

    ``waiters`` are those who want to hear of appends; whoever appends calls them.
    """

    __slots__ = (
        *("_bases", "_batches", "_deleted_to", "_head", "_max_bytes", "_producers"),
        *("end_offset", "size_bytes", "transactions", "waiters"),
    )

    def __init__(self, message_max_bytes: int, end_offset: int = 0) -> None:
        self._max_bytes = message_max_bytes
        self._producers = Producers()
        self.transactions = PartitionTransactions()
        self._bases: list[int] = []
        self._batches: list[bytes] = []
        self._head = 0  # what lies before is dropped; the lists are cut when half of them is
        self._deleted_to = 0  # records before it are gone, though their batch may be there
        self.end_offset = end_offset
        self.size_bytes = 0
        self.waiters: set[Waiter] = set()

    @property
    def start_offset(self) -> int:
        return max(self._bases[self._head], self._deleted_to) if self.size_bytes else self.end_offset

    def append(self, records: bytes | None) -> int:
        """Store one batch and return its base offset, of old if the same producer sent the same batch before.

        Raises CoordinatorError with the code Kafka answers when the batch or its sequence is not right.
        """
        batch = check_batch(records, self._max_bytes)
        known = self._producers.check(batch)
        if known is not None:
            return known
        base_offset = self.end_offset
        self._producers.stored(batch, base_offset)
        if batch.is_transactional:
            self.transactions.wrote(batch.producer_id, base_offset)
        self._store(batch.with_base_offset(base_offset), batch.record_count)
        return base_offset

    def end_transaction(self, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Store a control batch, which is one offset long and no consumer shows."""
        record = frame_record(0, 0, *encode_marker(marker))
        producer = Producer(marker.producer_id, marker.producer_epoch, is_control=True)
        self.transactions.ended(marker.producer_id, marker.committed, self.end_offset)
        self._store(encode_batch(self.end_offset, timestamp_ms, timestamp_ms, [record], producer), 1)

    def _store(self, data: bytes, record_count: int) -> None:
        self._bases.append(self.end_offset)
        self._batches.append(data)
        self.size_bytes += len(data)
        self.end_offset += record_count

    @property
    def last_stable_offset(self) -> int:
        """Up to where all transactions are decided; the end if none is open. Never before the start."""
        return max(self.transactions.last_stable_offset(self.end_offset), self.start_offset)

    def read(self, offset: int, max_bytes: int, allow_oversized: bool = True, *, committed_only: bool = False) -> bytes:
        """Whole batches of at most ``max_bytes``, the first being the one that contains ``offset``.

        ``committed_only``: none from the first open transaction on. The first batch is given even if it is larger when
        ``allow_oversized`` (KIP-74: a consumer must get on). Empty at the end.
        Raises CoordinatorError (OFFSET_OUT_OF_RANGE) outside of the log.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise CoordinatorError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: expected {self.start_offset} to {self.end_offset}"
            )
        end_offset = self.last_stable_offset if committed_only else self.end_offset
        if offset >= end_offset:
            return b""
        first = last = bisect_right(self._bases, offset, lo=self._head) - 1
        left = max_bytes
        while last < len(self._bases) and self._bases[last] < end_offset:
            size = len(self._batches[last])
            if size > left and not (allow_oversized and last == first):
                break
            left -= size
            last += 1
        return b"".join(self._batches[first:last])

    def drop_oldest(self) -> int:
        """Forget the oldest batch and return its size in bytes; there must be one."""
        size = len(self._batches[self._head])
        self._batches[self._head] = b""
        self._head += 1
        self.size_bytes -= size
        self.transactions.forget(self.start_offset)
        if self._head * 2 > len(self._bases):
            del self._bases[: self._head], self._batches[: self._head]
            self._head = 0
        return size

    def delete_before(self, offset: int) -> int:
        """Let the log begin at ``offset``, unless it begins later, and return the size of the batches that went.

        A batch that reaches beyond stays whole, as in Kafka; what it has below is not found any more.
        Raises CoordinatorError (OFFSET_OUT_OF_RANGE) unless the offset lies between 0 and the end.
        """
        if not 0 <= offset <= self.end_offset:
            raise CoordinatorError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: expected 0 to {self.end_offset}")
        held = self.size_bytes
        self._deleted_to = max(self._deleted_to, offset)
        while self.size_bytes and self._oldest_end() <= offset:
            self.drop_oldest()
        self.transactions.forget(self.start_offset)
        return held - self.size_bytes

    def _oldest_end(self) -> int:
        """Where the oldest batch ends."""
        following = self._head + 1
        return self._bases[following] if following < len(self._bases) else self.end_offset

    def raise_end(self, offset: int) -> None:
        """Begin and end at ``offset`` if the log ended before it. Only for a log without records."""
        if self.size_bytes:
            raise ValueError(f"cannot raise the end to {offset}: the log holds records up to {self.end_offset}")
        self.end_offset = max(self.end_offset, offset)

    def find_first_since(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record with this timestamp or a later one; of a compressed batch, its first record."""
        start = self.start_offset
        for batch in self._kept():
            found = read_batch_info(batch)
            if found.max_timestamp_ms < timestamp_ms:
                continue
            inside = list(located(batch)) or [TimestampAndOffset(found.max_timestamp_ms, max(found.base_offset, start))]
            late = (one for one in inside if one.timestamp_ms >= timestamp_ms and one.offset >= start)
            first = next(late, None)
            if first is not None:
                return first
        return None

    def find_newest(self) -> TimestampAndOffset | None:
        """The record with the highest timestamp, the first of them; of a compressed batch, its last record."""
        batch = max(self._kept(), key=lambda kept: read_batch_info(kept).max_timestamp_ms, default=None)
        if batch is None:
            return None
        found = read_batch_info(batch)
        inside = (record for record in located(batch) if record.timestamp_ms == found.max_timestamp_ms)
        return next(inside, TimestampAndOffset(found.max_timestamp_ms, found.base_offset + found.record_count - 1))

    def _kept(self) -> Iterator[bytes]:
        return (self._batches[index] for index in range(self._head, len(self._batches)))


def located(batch: bytes) -> Iterator[TimestampAndOffset]:
    """The records of a batch as far as they can be read: none if it is compressed."""
    if read_batch_info(batch).is_compressed:
        return
    try:
        for offset, timestamp_ms, _, _ in read_batch(memoryview(batch)).records():
            yield TimestampAndOffset(timestamp_ms, offset)
    except DamagedBatch:  # the producer's checksum is right and its records are not: the header has to do
        return
