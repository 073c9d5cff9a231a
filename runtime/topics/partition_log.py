"""The log of one partition in memory: whole batches as producers sent them. Pure: no file, no clock.

The oldest batches can be dropped; offsets are never reused. After a restart the log is empty and begins at its former
end offset.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.records import MarkerRecord
from ...actors.steps import Steps, pieces
from ..common.shared_bytes import SharedBytes
from ..log.format.batch import Producer, encode_batch, frame_record, read_batch
from ..log.format.errors import DamagedBatch
from ..log.format.transaction_records import encode_marker
from .batch import check_batch, read_batch_info
from .produced_times import InvalidTime, InvalidTimestamps
from .producers import ProducerStates
from .stored_batches import StoredBatches
from .transactions import PartitionTransactions

NO_RECORDS = SharedBytes(())

LOWEST_MS, HIGHEST_MS = -(2**63), 2**63 - 1
"""The timestamps that a response can have. A record has a delta, which may lead beyond them."""

Waiter = Callable[[int], None]
"""Called with the size in bytes of each batch that is appended. It may remove itself."""


class TimestampAndOffset(NamedTuple):
    """A record found by a search for a timestamp."""

    timestamp_ms: int
    offset: int


class PartitionLog:
    """The log of one partition: its records have offsets from ``start_offset`` up to but excluding ``end_offset``.

    ``waiters``: callbacks for appends. The caller of ``append`` must call them. ``compacted_end``: records before it
    were compacted, see ``compaction``; they have ``compacted_bytes``.
    """

    __slots__ = (
        *("_producers", "batches", "compacted_bytes", "compacted_end", "end_offset", "message_max_bytes"),
        *("start_offset", "transactions", "waiters"),
    )

    def __init__(self, message_max_bytes: int, end_offset: int = 0) -> None:
        self.message_max_bytes = message_max_bytes
        self._producers = ProducerStates()
        self.transactions = PartitionTransactions()
        self.batches = StoredBatches()
        self.start_offset = end_offset
        self.end_offset = end_offset
        self.compacted_end = 0
        self.compacted_bytes = 0
        self.waiters: set[Waiter] = set()

    @property
    def batch_count(self) -> int:
        return len(self.batches)

    @property
    def size_bytes(self) -> int:
        return self.batches.size_bytes

    def append(
        self,
        records: bytes | None,
        append_time_ms: int | None = None,
        invalid_times: Sequence[InvalidTime] | None = None,
    ) -> int:
        """Store one batch and return its base offset. A duplicate is not stored; its original offset is returned.

        ``append_time_ms`` replaces the times of the records, unless it is None. ``invalid_times``: what
        ``find_invalid_times`` has found. Raises CoordinatorError, with Kafka's error code, if the batch, a time or its
        sequence number is invalid.
        """
        batch = check_batch(records, self.message_max_bytes)
        if invalid_times is not None:
            raise InvalidTimestamps(invalid_times)
        if append_time_ms is not None:
            batch = batch.with_append_time(append_time_ms)
        duplicate_offset = self._producers.check(batch)
        if duplicate_offset is not None:
            return duplicate_offset
        if not batch.is_transactional and self.transactions.is_open(batch.producer_id):
            raise CoordinatorError(
                ErrorCode.INVALID_TXN_STATE,
                f"a batch of producer {batch.producer_id} without a transaction: expected one of its open transaction",
            )
        base_offset = self.end_offset
        self._producers.add_batch(batch, base_offset)
        if batch.is_transactional:
            self.transactions.add_batch(batch.producer_id, base_offset)
        self._store(batch.with_base_offset(base_offset), batch.record_count, batch.max_timestamp_ms)
        return base_offset

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.transactions.is_open(producer_id) and self._producers.epoch_of(producer_id) == epoch

    def end_transaction(self, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Append a control batch with the marker, which takes one offset and is not shown by consumers."""
        record = frame_record(0, 0, *encode_marker(marker))
        producer = Producer(marker.producer_id, marker.producer_epoch, is_control=True)
        self.transactions.end(marker.producer_id, marker.committed, self.end_offset)
        self._producers.raise_epoch(marker.producer_id, marker.producer_epoch)
        self._store(encode_batch(self.end_offset, timestamp_ms, timestamp_ms, [record], producer), 1, timestamp_ms)

    def _store(self, data: bytes, record_count: int, max_timestamp_ms: int) -> None:
        self.batches.append(self.end_offset, data, max_timestamp_ms)
        self.end_offset += record_count

    @property
    def last_stable_offset(self) -> int:
        """Kafka's last stable offset: the start of the oldest open transaction, or the end. At least the start."""
        return max(self.transactions.last_stable_offset(self.end_offset), self.start_offset)

    def read(
        self, offset: int, max_bytes: int, allow_oversized: bool = True, *, committed_only: bool = False
    ) -> SharedBytes:
        """The stored batches, at most ``max_bytes`` in total, beginning with the batch that contains ``offset``.

        ``committed_only``: stop before the first open transaction. ``allow_oversized``: return the first batch even if
        it is larger (KIP-74: a consumer must make progress). Empty at the end of the log.
        Raises CoordinatorError (OFFSET_OUT_OF_RANGE) outside of the log.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise CoordinatorError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: expected {self.start_offset} to {self.end_offset}"
            )
        end_offset = self.last_stable_offset if committed_only else self.end_offset
        if offset >= end_offset:
            return NO_RECORDS
        return SharedBytes(self.batches.select(offset, end_offset, max_bytes, allow_oversized))

    def drop_oldest(self) -> int:
        """Drop the oldest batch and return its size in bytes. The log must not be empty."""
        size = self.batches.drop_oldest()
        self.compacted_bytes = max(0, self.compacted_bytes - size)
        first_offset = self.batches.first_offset if self.batches else self.end_offset
        self.start_offset = max(self.start_offset, first_offset)
        self.transactions.drop_before(self.start_offset)
        return size

    def delete_before(self, offset: int, batches_max: int = sys.maxsize) -> int:
        """Delete the records before ``offset`` and return the size in bytes of the dropped batches.

        At most ``batches_max`` batches are dropped by one call; the records of the others are not found any more.

        A batch that also has later records is retained as a whole, as in Kafka; its deleted records are not found.
        Raises CoordinatorError (OFFSET_OUT_OF_RANGE) unless the offset is between 0 and the end.
        """
        if not 0 <= offset <= self.end_offset:
            raise CoordinatorError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: expected 0 to {self.end_offset}")
        size_before = self.size_bytes
        self.start_offset = max(self.start_offset, offset)
        while batches_max and self.batches and self._oldest_end() <= offset:
            self.drop_oldest()
            batches_max -= 1
        self.transactions.drop_before(self.start_offset)
        return size_before - self.size_bytes

    def _oldest_end(self) -> int:
        """The offset at which the batch after the oldest one begins."""
        second_offset = self.batches.second_offset()
        return self.end_offset if second_offset is None else second_offset

    def raise_end(self, offset: int) -> None:
        """Raise the end offset, and with it the start offset, to ``offset``. Only for a log without records."""
        if self.size_bytes:
            raise ValueError(f"cannot raise the end to {offset}: the log holds records up to {self.end_offset}")
        self.end_offset = self.start_offset = max(self.end_offset, offset)

    def find_first_since(self, timestamp_ms: int) -> Steps[TimestampAndOffset | None]:
        """The first record with this timestamp or a later one. A compressed batch counts as its first record.

        The header of a batch may claim a later timestamp than its records have. It is corrected in the index, so that
        its records are read once only.
        """
        number = self.batches.times.find_first_since(self.batches.first_number, timestamp_ms)
        while number is not None:
            newest_ms = LOWEST_MS
            for records in pieces(_records_or_header(self.batches.batch(number), self.start_offset)):
                for record in records:
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset:
                        return record
                newest_ms = max(newest_ms, max(record.timestamp_ms for record in records))
                yield
            times, first_number = self.batches.times, self.batches.first_number
            number = max(number, first_number - 1)  # meanwhile batches may have been dropped, or all compacted
            if number >= first_number and newest_ms < times[number]:
                times.lower(number, newest_ms)
            number = times.find_first_since(number + 1, timestamp_ms)
        return None

    def find_newest(self) -> Steps[TimestampAndOffset | None]:
        """The first record with the highest timestamp. A compressed batch counts as its last record."""
        batches = self.batches
        highest_ms = batches.times.highest(batches.first_number)
        if highest_ms is None:
            return None
        number = batches.times.find_first_since(batches.first_number, highest_ms)
        assert number is not None
        batch = batches.batch(number)
        for records in pieces(record_timestamps(batch)):
            for record in records:
                if record.timestamp_ms == highest_ms:
                    return record
            yield
        info = read_batch_info(batch)
        return TimestampAndOffset(highest_ms, info.base_offset + info.record_count - 1)


def _records_or_header(batch: bytes, start_offset: int) -> Iterator[TimestampAndOffset]:
    """The readable records of a batch; if there are none, a record with the timestamp of the header."""
    is_readable = False
    for record in record_timestamps(batch):
        is_readable = True
        yield record
    if not is_readable:
        info = read_batch_info(batch)
        yield TimestampAndOffset(info.max_timestamp_ms, max(info.base_offset, start_offset))


def record_timestamps(batch: bytes) -> Iterator[TimestampAndOffset]:
    """Timestamps and offsets of the readable records of a batch; none if it is compressed.

    It ends at a record that does not fit its batch, despite the valid checksum, or a response: use the header then.
    """
    if read_batch_info(batch).is_compressed:
        return
    with suppress(DamagedBatch):
        checked = read_batch(memoryview(batch))
        for offset, timestamp_ms, _, _ in checked.records():
            if not (checked.base_offset <= offset <= checked.last_offset and LOWEST_MS <= timestamp_ms <= HIGHEST_MS):
                return
            yield TimestampAndOffset(timestamp_ms, offset)
