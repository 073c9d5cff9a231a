"""ConsumerTopics: the resources of a member of the consumer protocol, and the ids of their topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...actors.consumer_group.records import Partition
from .channel import ChannelLost, Connector
from .shards import TopicPartition
from .subscribed_resources import SubscribedResources


class AssignedShard(NamedTuple):
    """A partition that belongs to a resource of the member. ``name``: of the shard."""

    topic_partition: TopicPartition
    resource: str
    name: int | str


class ConsumerTopics(SubscribedResources):
    """Assignments name topics by id. A topic that is deleted and created again has another one."""

    def __init__(self, connector: Connector, group_id: str) -> None:
        super().__init__(connector, group_id)
        self._names: dict[bytes, str] = {}

    def names(self) -> tuple[str, ...]:
        """The topics to subscribe to."""
        return tuple(sorted(self.resources.topics()))

    async def find_known(self, partitions: Collection[Partition]) -> list[Partition]:
        """Those of topics whose names are known. Asks for the ids of topics that are not."""
        if any(topic_id not in self._names for topic_id, _ in partitions):
            try:
                ids = await self._connector.topic_ids(self.names())
            except ChannelLost:
                ids = {}
            self._names |= {topic_id: name for name, topic_id in ids.items()}
        return [partition for partition in partitions if partition[0] in self._names]

    def topic_partitions(self, partitions: Iterable[Partition]) -> list[TopicPartition]:
        """By name. Their topics are known."""
        return [(self._names[topic_id], number) for topic_id, number in partitions]

    def shard_of(self, partition: Partition) -> AssignedShard | None:
        """None if the member has no resource with this partition."""
        [topic_partition] = self.topic_partitions((partition,))
        shard = self.find_shard(topic_partition)
        return None if shard is None else AssignedShard(topic_partition, *shard)
