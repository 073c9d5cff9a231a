"""TopicLeadership: which topics this node leads. The owner of one partition of ``__consumer_offsets`` leads a topic.

Records are in the memory of the leader, so a topic is empty when it has moved. Offsets are never used again: with each
epoch the partitions of a topic begin at a higher offset, which follows from the epoch. So nothing has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache

from ...actors.javahash import offsets_partition
from ..topics.topic import Topic

OFFSETS_PER_EPOCH = 10**12
"""A topic begins at a multiple of this number: its first epoch at 0."""


@lru_cache(maxsize=20_000)
def led_with(topic: str, offsets_partitions: int) -> int:
    """The partition of ``__consumer_offsets`` whose owner leads all partitions of a topic."""
    return offsets_partition(topic, offsets_partitions)


class TopicLeadership:
    """Keeps ``leader_epoch`` of all topics. ``first_epoch``: in which a topic was created, by its name."""

    def __init__(self, offsets_partitions: int, first_epoch: Callable[[str], int]) -> None:
        self._offsets_partitions = offsets_partitions
        self._first_epoch = first_epoch
        self._epochs: dict[int, int] = {}  # of owned partitions

    def gain(self, epochs: Mapping[int, int], topics: Iterable[Topic]) -> None:
        self._epochs.update(epochs)
        self._place(epochs, topics)

    def lose(self, partitions: Collection[int], topics: Iterable[Topic]) -> None:
        for partition in partitions:
            self._epochs.pop(partition, None)
        self._place(partitions, topics)

    def _place(self, partitions: Collection[int], topics: Iterable[Topic]) -> None:
        for topic in topics:
            if led_with(topic.name, self._offsets_partitions) in partitions:
                self.place(topic)

    def place(self, topic: Topic) -> None:
        """Call it for each topic that appears."""
        epoch = self._epochs.get(led_with(topic.name, self._offsets_partitions))
        if topic.is_internal:
            return
        if epoch is None:
            topic.give_up()
        else:
            topic.lead(epoch, max(epoch - self._first_epoch(topic.name), 0) * OFFSETS_PER_EPOCH)
