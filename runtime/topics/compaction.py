"""Compaction of a partition in memory, as Kafka's LogCleaner does it: of each key the newest record stays.

Batches are compacted up to the newest one, the oldest open transaction and ``min.compaction.lag.ms``. These go:

* records with an older value than another record of the same key, and records without a key;
* records of aborted transactions;
* tombstones and transaction markers that are older than ``delete.retention.ms``.

Offsets do not change, so there are gaps. A batch whose records cannot be read stays as it is, and so does one whose
records are compressed and have more than ``INFLATED_MAX`` bytes without it.

The compacted batches are made beside the old ones, in steps, and replace them at once. Meanwhile the partition can be
read, written and shortened. What cannot be divided into steps is a blocking call: decompression, and the checksums of
large batches. ``RunBlocking`` decides where it runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from ...actors.steps import ITEMS_PER_STEP, Steps
from ..log.format.batch import CODEC_BITS, Batch, attributes_of, with_records
from ..log.format.errors import DamagedBatch, UnsupportedCompression
from .keyed_records import BYTES_PER_STEP, KeyedRecord, decompressed, keyed_records, pieces_of
from .partition_log import PartitionLog
from .policy import CompactionPolicy
from .stored_batches import StoredBatch, StoredBatches
from .transactions import AbortedTransaction

INFLATED_MAX = 16 * 1024 * 1024
"""The largest uncompressed size of a compressed batch's records that are compacted. A batch has at most
``max.message.bytes`` as it is sent, by default 1 MB; its records could be 256 times as large."""

_first_offset = attrgetter("first_offset")

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a call that takes long, perhaps in another thread, and returns its result after some pauses."""

    def __call__(self, call: Callable[[], T], /) -> Steps[T]: ...


def run_here(call: Callable[[], T]) -> Steps[T]:
    """Run a call on this thread, between two pauses."""
    yield
    result = call()
    yield
    return result


class Freed(NamedTuple):
    """What a compaction has removed."""

    size_bytes: int
    batches: int


class Compaction:
    """One compaction of one partition. ``now_ms`` counts from 1970."""

    def __init__(self, log: PartitionLog, policy: CompactionPolicy, now_ms: int, run_blocking: RunBlocking) -> None:
        self._log = log
        self._policy = policy
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._newest: dict[bytes, int] = {}  # the offset of the newest record of each key
        self._aborted: dict[int, list[AbortedTransaction]] = {}  # by producer id, in order
        self._dropped_markers: set[int] = set()  # their offsets
        self._compacted = StoredBatches(log.batches.times.end)

    def run(self) -> Steps[Freed]:
        """Compact the partition, if enough of it is new since the last time."""
        log = self._log
        end_offset = (yield from self._end()) if self._is_dirty() else 0
        if end_offset <= log.compacted_end:
            return Freed(0, 0)
        yield from self._read_aborted(end_offset)
        yield from self._read_newest(end_offset)
        yield from self._compact_batches(end_offset)
        compacted_bytes = self._compacted.size_bytes
        yield from self._add_later(end_offset)
        freed = self._replace()
        log.compacted_end, log.compacted_bytes = end_offset, compacted_bytes
        return freed

    def _end(self) -> Steps[int]:
        """The offset before which batches are compacted."""
        log, newest_allowed_ms = self._log, self._now_ms - self._policy.min_lag_ms
        end_offset = min(log.last_stable_offset, log.batches.last_offset)
        for batch in self._batches_before(end_offset, log.compacted_end):
            if batch is None:
                yield
            elif batch.max_timestamp_ms > newest_allowed_ms:
                return batch.base_offset
        return end_offset

    def _is_dirty(self) -> bool:
        log = self._log
        return (
            bool(log.batches) and log.size_bytes - log.compacted_bytes > self._policy.min_dirty_ratio * log.size_bytes
        )

    def _batches_before(self, end_offset: int, offset: int = 0) -> Iterator[StoredBatch | None]:
        """Yield the batches from ``offset`` to ``end_offset``, and None for pauses, after which batches may be gone."""
        while piece := self._log.batches.from_offset(offset, ITEMS_PER_STEP):
            for batch in piece:
                if batch.base_offset >= end_offset:
                    return
                yield batch
            offset = piece[-1].base_offset + 1
            yield None

    def _read_aborted(self, end_offset: int) -> Steps[None]:
        for transaction in self._log.transactions.find_aborted(0, end_offset):
            if transaction is None:
                yield
            else:
                self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        for transactions in self._aborted.values():
            transactions.sort(key=_first_offset)

    def _read_newest(self, end_offset: int) -> Steps[None]:
        for stored in self._batches_before(end_offset):
            batch = (yield from self._read(stored)) if stored is not None else None
            if batch is not None and not batch.is_control and not self._is_aborted(batch):
                yield from self._read_keys(batch)
            yield

    def _read_keys(self, batch: Batch) -> Steps[None]:
        with suppress(DamagedBatch):
            for records in pieces_of(keyed_records(batch)):
                self._newest.update((record.key, record.offset) for record in records if record.key is not None)
                yield

    def _is_aborted(self, batch: Batch) -> bool:
        if not batch.is_transactional or batch.producer_id not in self._aborted:
            return False
        transactions = self._aborted[batch.producer_id]
        index = bisect_right(transactions, batch.base_offset, key=_first_offset) - 1
        return index >= 0 and batch.base_offset <= transactions[index].last_offset

    def _compact_batches(self, end_offset: int) -> Steps[None]:
        for stored in self._batches_before(end_offset):
            if stored is not None:
                data = yield from self._compact_batch(stored)
                if data:
                    self._compacted.append(stored.base_offset, data, stored.max_timestamp_ms)
            yield

    def _compact_batch(self, stored: StoredBatch) -> Steps[bytes]:
        """The batch with the records that stay; empty if none does."""
        batch = yield from self._read(stored)
        if batch is None:
            return stored.data
        if batch.is_control:
            return self._compact_marker(stored)
        if self._is_aborted(batch):
            return b""
        kept: list[memoryview] = []
        try:
            for records in pieces_of(keyed_records(batch)):
                kept += (record.data for record in records if self._stays(record))
                yield
        except DamagedBatch:
            return stored.data
        if len(kept) == batch.record_count:
            return stored.data
        if not kept:
            return b""
        call = partial(_with_kept, batch, kept)
        return (yield from self._run_blocking(call)) if sum(map(len, kept)) > BYTES_PER_STEP else call()

    def _read(self, stored: StoredBatch) -> Steps[Batch | None]:
        """The batch without compression; None if it cannot be read."""
        call = partial(_readable, stored.data)
        is_long = attributes_of(stored.data) & CODEC_BITS or len(stored.data) > BYTES_PER_STEP
        return (yield from self._run_blocking(call)) if is_long else call()

    def _compact_marker(self, stored: StoredBatch) -> bytes:
        if not self._is_over(stored.max_timestamp_ms):
            return stored.data
        self._dropped_markers.add(stored.base_offset)
        return b""

    def _stays(self, record: KeyedRecord) -> bool:
        if record.key is None or self._newest.get(record.key) != record.offset:
            return False
        return not (record.is_tombstone and self._is_over(record.timestamp_ms))

    def _is_over(self, timestamp_ms: int) -> bool:
        """Whether a tombstone or marker of this time has been kept long enough."""
        return timestamp_ms <= self._now_ms - self._policy.delete_retention_ms

    def _add_later(self, end_offset: int) -> Steps[None]:
        """Add the batches that are not compacted, also those that are appended meanwhile."""
        while later := self._log.batches.from_offset(end_offset, ITEMS_PER_STEP):
            for batch in later:
                self._compacted.append(*batch)
            end_offset = later[-1].base_offset + 1
            yield

    def _replace(self) -> Freed:
        """Replace the batches. Those that were dropped meanwhile are dropped from the new ones too."""
        log, old, new = self._log, self._log.batches, self._compacted
        first_offset = old.first_offset if old else log.end_offset
        while new and new.first_offset < first_offset:
            new.drop_oldest()
        log.batches = new
        log.transactions.forget(self._dropped_markers)
        return Freed(old.size_bytes - new.size_bytes, len(old) - len(new))


def _with_kept(batch: Batch, kept: list[memoryview]) -> bytes:
    return with_records(batch, batch.attributes & ~CODEC_BITS, b"".join(kept), len(kept))


def _readable(data: bytes) -> Batch | None:
    """The batch without compression; None if it cannot be decompressed."""
    try:
        return decompressed(data, INFLATED_MAX)
    except (DamagedBatch, UnsupportedCompression):
        return None
