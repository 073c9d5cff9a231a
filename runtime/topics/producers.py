"""State of the idempotent producers of one partition: a batch that is sent again is stored once (KIP-98).

As in Kafka, the last five batches of a producer are remembered, the number that a client may have in flight, and an
unknown producer may begin at any sequence number.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from .batch import ProducerBatch

REMEMBERED_BATCHES = 5  # Kafka's ProducerStateEntry; clients keep at most five batches in flight
PRODUCERS_MAX = 10_000  # the least recently active is dropped; Kafka drops by time, after a day
SEQUENCES = 2**31  # sequence numbers wrap to 0 after the largest int32


class BatchSequence(NamedTuple):
    """A batch's first and last sequence number, and its base offset in the log."""

    first: int
    last: int
    base_offset: int


class ProducerState:
    """The state of one producer id in its newest epoch."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[BatchSequence] = deque(maxlen=REMEMBERED_BATCHES)

    def duplicate_of(self, batch: ProducerBatch) -> int | None:
        """The base offset of the same batch if it was stored before and is remembered."""
        sequence_range = (batch.base_sequence, last_sequence(batch))
        return next(
            (batch_sequence.base_offset for batch_sequence in self.batches if batch_sequence[:2] == sequence_range),
            None,
        )

    def expected_sequence(self, epoch: int) -> int:
        """The first sequence number that the next batch in ``epoch`` must have."""
        if epoch != self.epoch or not self.batches:
            return 0
        return (self.batches[-1].last + 1) % SEQUENCES


class ProducerStates:
    """The known producers of a partition, least recently active first."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}

    def check(self, batch: ProducerBatch) -> int | None:
        """The base offset of the stored batch if this one is a duplicate, None if it must be stored.

        Raises CoordinatorError: INVALID_PRODUCER_EPOCH for an old epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch < producer.epoch:
            raise CoordinatorError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.producer_epoch} of producer {batch.producer_id}: expected {producer.epoch} or later",
            )
        return self._check_order(producer, batch)

    def _check_order(self, producer: ProducerState, batch: ProducerBatch) -> int | None:
        if batch.producer_epoch == producer.epoch:
            base_offset = producer.duplicate_of(batch)
            if base_offset is not None:
                return base_offset
        expected = producer.expected_sequence(batch.producer_epoch)
        if batch.base_sequence != expected:
            raise CoordinatorError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {batch.base_sequence} of producer {batch.producer_id}: expected {expected}",
            )
        return None

    def epoch_of(self, producer_id: int) -> int | None:
        """The newest epoch of a known producer."""
        producer = self._producers.get(producer_id)
        return None if producer is None else producer.epoch

    def raise_epoch(self, producer_id: int, epoch: int) -> None:
        """A marker with a later epoch ends the earlier ones of a producer (KIP-890).

        An unknown producer stays unknown: after a restart it may go on in its epoch with any sequence number.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and producer.epoch < epoch:
            self._producers[producer_id] = ProducerState(epoch)

    def add_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Remember a stored batch. A batch without a producer id is ignored."""
        if batch.producer_id < 0:
            return
        producer = self._producers.pop(batch.producer_id, None)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = ProducerState(batch.producer_epoch)
        producer.batches.append(BatchSequence(batch.base_sequence, last_sequence(batch), base_offset))
        self._producers[batch.producer_id] = producer
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]


def last_sequence(batch: ProducerBatch) -> int:
    return (batch.base_sequence + batch.record_count - 1) % SEQUENCES
