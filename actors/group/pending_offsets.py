"""Offsets of open transactions: durable, but only valid after a COMMIT marker. Pure.

A marker ends the transaction of its producer in one partition of the log. If a transaction and other commits write the
offset of the same partition, the later record wins, whenever the marker arrives (Kafka's OffsetMetadataManager). So a
pending offset that is followed by a plain commit is marked as superseded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import ErrorCode
from ..messages import Fetched, FetchedOffset
from ..records import OffsetValue, PendingOffsetRecord

TopicPartition = tuple[str, int]

NO_OFFSET = -1


class PendingOffsets:
    """The pending offsets of one group, by partition and producer id, in the order of the log. Usually empty."""

    __slots__ = ("by_partition",)

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, dict[int, OffsetValue | None]] = {}  # None: superseded

    def __bool__(self) -> bool:
        return bool(self.by_partition)

    def producers(self) -> set[int]:
        """The ids of producers with an open transaction."""
        return {producer_id for producers in self.by_partition.values() for producer_id in producers}

    def add(self, record: PendingOffsetRecord) -> None:
        producers = self.by_partition.setdefault((record.topic, record.partition), {})
        producers.pop(record.producer_id, None)  # so that the newest is last
        producers[record.producer_id] = record.value

    def supersede(self, topic: str, partition: int) -> None:
        """A commit outside of a transaction supersedes all pending offsets of a partition."""
        producers = self.by_partition.get((topic, partition), {})
        for producer_id in producers:
            producers[producer_id] = None

    def remove(self, topic: str, partition: int) -> None:
        """Remove the pending offsets of a partition whose offset was deleted."""
        self.by_partition.pop((topic, partition), None)

    def end_transaction(self, producer_id: int, committed: bool) -> list[tuple[TopicPartition, OffsetValue]]:
        """End a transaction. Returns the offsets that become valid: those that were not superseded."""
        committed_offsets = []
        for topic_partition in [
            topic_partition for topic_partition, producers in self.by_partition.items() if producer_id in producers
        ]:
            value = self._end_in_partition(topic_partition, producer_id, committed)
            if committed and value is not None:
                committed_offsets.append((topic_partition, value))
        return committed_offsets

    def _end_in_partition(
        self, topic_partition: TopicPartition, producer_id: int, committed: bool
    ) -> OffsetValue | None:
        producers = self.by_partition[topic_partition]
        if committed and producers[producer_id] is not None:
            for earlier in producers:
                if earlier == producer_id:
                    break
                producers[earlier] = None
        value = producers.pop(producer_id)
        if not producers:
            del self.by_partition[topic_partition]
        return value

    def mask_unstable(self, fetched: Fetched) -> Fetched:
        """Replace offsets with an open transaction by UNSTABLE_OFFSET_COMMIT, so that the client retries (KIP-447)."""
        return Fetched(
            fetched.error, tuple((topic, tuple(self._mask_topic(topic, offsets))) for topic, offsets in fetched.topics)
        )

    def _mask_topic(self, topic: str, offsets: Iterable[FetchedOffset]) -> Iterator[FetchedOffset]:
        for offset in offsets:
            if (topic, offset.partition) in self.by_partition:
                yield FetchedOffset(offset.partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                yield offset
