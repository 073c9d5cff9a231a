"""SubscribedResources: the resources of one member, their topics, and the shards that partitions of these are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import Random

from ...actors.errors import CoordinatorError, ErrorCode
from .channel import ChannelLost, Connector
from .errors import MemberError
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff
from .resources import ResourceSet
from .shards import TopicPartition

log = logging.getLogger("callboard.member")

ADVICE = {ErrorCode.INVALID_TOPIC_EXCEPTION: "; choose other names"}


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
        """Create the topics that the current resources do not have.

        Retries until a coordinator is reached, and while it cannot create topics, for example because its disk is full.
        Raises MemberError if it refuses them.
        """
        before = self.resources.topics()
        new = {topic: number for topic, number in resources.topics().items() if before.get(topic) != number}
        backoff = Backoff(random)
        while new and not await self._create(new, logging.DEBUG if backoff.has_waited else logging.INFO):
            await backoff.wait()

    async def _create(self, partitions: Mapping[str, int], log_level: int) -> bool:
        """False if a retry may succeed."""
        try:
            await self._connector.ensure_topics(partitions)
        except (ChannelLost, CoordinatorError) as error:
            if isinstance(error, CoordinatorError) and not _is_temporary(error.code):
                advice = ADVICE.get(error.code, "")
                text = f"the topics of group {self._group_id!r} cannot be created: {error}{advice}"
                raise MemberError(text, error.code) from error
            log.log(log_level, "the topics of group %r cannot be created yet: %s; retrying", self._group_id, error)
            return False
        return True

    def find_shard(self, partition: TopicPartition) -> tuple[str, int | str] | None:
        """The resource of a partition, and the shard's number or name; None if the member has no such resource.

        Any number of a numbered resource is found, because another member may have seen new shards before this one.
        """
        topic, number = partition
        if number == 0 and topic in self._named_shards:
            return self._named_shards[topic]
        return partition if topic in self.resources.numbers else None


def _is_temporary(error: ErrorCode) -> bool:
    return reaction_to(RequestKind.CREATE_TOPICS, error) in (Reaction.RETRY, Reaction.RECONNECT)
