"""SubscribedResources: the resources of one member, their topics, and the shards that partitions of these are."""

from __future__ import annotations

import logging
from random import Random

from ...actors.errors import CoordinatorError
from .channel import ChannelLost, Connector
from .errors import MemberError
from .reconnecting_channel import Backoff
from .resources import ResourceSet
from .shards import TopicPartition

log = logging.getLogger("callboard.member")


class SubscribedResources:
    """The resources that a member subscribes to, in any protocol."""

    def __init__(self, connector: Connector, group_id: str) -> None:
        self.resources = ResourceSet({}, {})
        self._connector = connector
        self._group_id = group_id
        self._named_shards: dict[str, tuple[str, str]] = {}

    def subscribe(self, resources: ResourceSet) -> None:
        """Subscribe to these resources. Their topics exist."""
        self.resources, self._named_shards = resources, resources.named_shards()

    async def create_topics(self, resources: ResourceSet, random: Random) -> None:
        """Create the topics that the current resources do not have, with retries until a coordinator is reached."""
        before = self.resources.topics()
        new = {topic: number for topic, number in resources.topics().items() if before.get(topic) != number}
        backoff = Backoff(random)
        while new:
            try:
                await self._connector.ensure_topics(new)
                break
            except ChannelLost as error:
                level = logging.DEBUG if backoff.has_waited else logging.INFO  # once for an outage
                log.log(level, "the topics of group %r cannot be created yet: %s; retrying", self._group_id, error)
                await backoff.wait()
            except CoordinatorError as error:
                raise MemberError(
                    f"the topics of group {self._group_id!r} cannot be created: {error}; choose other names", error.code
                ) from error

    def find_shard(self, partition: TopicPartition) -> tuple[str, int | str] | None:
        """The resource of a partition, and the shard's number or name; None if the member has no such resource.

        Any number of a numbered resource is found, because another member may have seen new shards before this one.
        """
        topic, number = partition
        if number == 0 and topic in self._named_shards:
            return self._named_shards[topic]
        return partition if topic in self.resources.numbers else None
