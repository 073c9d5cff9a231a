"""Idempotent producers of one partition: a batch that is sent again is stored once (KIP-98).

As in Kafka, the last five batches of a producer are remembered, which is as many as a client keeps in flight, and a
producer that nobody remembers may begin at any sequence number.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from .batch import SentBatch

REMEMBERED_BATCHES = 5  # Kafka's ProducerStateEntry; clients keep at most five batches in flight
PRODUCERS_MAX = 10_000  # the one that was quiet longest is forgotten; Kafka forgets by time instead, after a day
SEQUENCES = 2**31  # sequence numbers start again at 0 behind the largest int32


class Sequence(NamedTuple):
    """A batch's first and last sequence number, and where the log put it."""

    first: int
    last: int
    base_offset: int


class Producer:
    """One producer id in its newest epoch."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Sequence] = deque(maxlen=REMEMBERED_BATCHES)

    def duplicate_of(self, batch: SentBatch) -> int | None:
        """The base offset under which this very batch was stored before, if it is remembered."""
        wanted = (batch.base_sequence, last_sequence(batch))
        return next((known.base_offset for known in self.batches if known[:2] == wanted), None)

    def expected_sequence(self, epoch: int) -> int | None:
        """What the next batch in ``epoch`` must begin with; None when anything goes."""
        if epoch != self.epoch:
            return 0
        return (self.batches[-1].last + 1) % SEQUENCES if self.batches else None


class Producers:
    """The producers that a partition remembers, the quietest first."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def check(self, batch: SentBatch) -> int | None:
        """The base offset of the batch when it is a duplicate, None when it is to be stored.

        Raises CoordinatorError: INVALID_PRODUCER_EPOCH for an epoch that is over, OUT_OF_ORDER_SEQUENCE_NUMBER for a
        gap.
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

    def _check_order(self, producer: Producer, batch: SentBatch) -> int | None:
        if batch.producer_epoch == producer.epoch:
            base_offset = producer.duplicate_of(batch)
            if base_offset is not None:
                return base_offset
        expected = producer.expected_sequence(batch.producer_epoch)
        if expected is not None and batch.base_sequence != expected:
            raise CoordinatorError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {batch.base_sequence} of producer {batch.producer_id}: expected {expected}",
            )
        return None

    def stored(self, batch: SentBatch, base_offset: int) -> None:
        """Remember a batch that the log took; one without a producer id is nobody's."""
        if batch.producer_id < 0:
            return
        producer = self._producers.pop(batch.producer_id, None)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = Producer(batch.producer_epoch)
        producer.batches.append(Sequence(batch.base_sequence, last_sequence(batch), base_offset))
        self._producers[batch.producer_id] = producer
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]


def last_sequence(batch: SentBatch) -> int:
    return (batch.base_sequence + batch.record_count - 1) % SEQUENCES
