"""ResourceSubscription: the resources of one member, what it asks for in JoinGroup, what it computes as the leader."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from ...actors.assignors.base import MemberState
from ...actors.messages import Joined, Protocol
from .channel import ChannelLost, Connector
from .leader import GroupSubscriptions, make_protocol, protocol_name
from .options import MemberOptions
from .resources import ResourceSet, named_topics
from .shards import TopicPartition
from .subscribed_resources import SubscribedResources

log = logging.getLogger("callboard.member")


class ResourceSubscription(SubscribedResources):
    """The resources of a member of the classic protocol.

    ``last_assignment``: the partitions that the member was assigned last, and their generation. ``claimed``: those that
    the last JoinGroup said it owned; with a cooperative assignor the leader assigns them to nobody else.
    """

    def __init__(self, connector: Connector, group_id: str, options: MemberOptions) -> None:
        super().__init__(connector, group_id)
        self.last_assignment: tuple[tuple[TopicPartition, ...], int] = (), -1
        self.claimed: tuple[TopicPartition, ...] = ()
        self._weight = options.weight
        self._assignors = options.assignors()
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._is_static = options.instance_id is not None
        self._has_names = False

    def replace_resources(self, resources: ResourceSet, is_leader: bool) -> bool:
        """Subscribe to these resources. Whether the member must rejoin, so that they are assigned."""
        old = self.resources
        self.subscribe(resources)
        self._has_names = self._has_names or bool(resources.names)
        has_other_topics = resources.names != old.names or set(resources.numbers) != set(old.numbers)
        return has_other_topics or (is_leader and resources.numbers != old.numbers)  # the leader's numbers are used

    def partitions_to_revoke(self, owned: Iterable[TopicPartition]) -> list[TopicPartition]:
        """What a joining member must not own: all shards, or with a cooperative assignor the unwanted ones."""
        return [partition for partition in owned if not self._is_cooperative or self.find_shard(partition) is None]

    def protocols(self, owned: Collection[TopicPartition]) -> tuple[Protocol, ...]:
        """The protocols of a JoinGroup. ``owned``: what the member owns at this moment."""
        last_owned, generation = self.last_assignment
        self.claimed = tuple(owned)
        if self._is_cooperative:
            last_owned = self.claimed
        own = MemberState(frozenset(self.resources.topics()), last_owned, generation, self._weight)
        return tuple(
            make_protocol(assignor, self.resources, own, self._has_names, self._is_cooperative)
            for assignor in self._assignors
        )

    async def compute_assignments(self, joined: Joined) -> tuple[tuple[str, bytes], ...]:
        """The assignments of all members, by the leader."""
        group, numbers = await self._look_up(joined)
        assignor = next(
            assignor for assignor in self._assignors if protocol_name(assignor, self._has_names) == joined.protocol_name
        )
        return group.assign(assignor, numbers)

    async def partitions_to_check(self, joined: Joined) -> set[TopicPartition]:
        """The partitions that may be unassigned, because a static member has joined without a rebalance (KIP-345).

        Its resources may have changed. Or it had given back a shard, and its JoinGroup that said so was lost: the
        leader has assigned the shard to nobody yet. All of the group if it is the leader (KIP-814), else its own.
        """
        if not self._is_static or self.last_assignment[1] >= 0:
            return set()
        topics = self.resources.topics()
        if joined.skip_assignment:
            group, numbers = await self._look_up(joined)
            topics = {**{topic: numbers.get(topic, 0) for topic in group.topics}, **named_topics(group.names)}
        elif joined.leader == joined.member_id:
            return set()
        return {(topic, number) for topic, count in topics.items() for number in range(count)}

    async def _look_up(self, joined: Joined) -> tuple[GroupSubscriptions, dict[str, int]]:
        """The subscriptions of all members, and the partition counts of their numbered topics."""
        group = GroupSubscriptions(joined.members)
        numbers = dict(self.resources.numbers)
        foreign = [topic for topic in group.topics if topic not in numbers]
        if foreign:
            try:
                numbers.update(await self._connector.partitions(foreign))
            except ChannelLost:
                log.warning("topics of other members could not be looked up: %s", ", ".join(foreign))
        return group, numbers
