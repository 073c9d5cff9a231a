"""Helpers of the assignors' tests: a group whose members join, leave and adopt their assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from callboard.actors.assignors.base import (
    Assignor,
    GroupAssignment,
    MemberState,
    MemberSubscription,
    TopicPartition,
)
from callboard.actors.assignors.user_data import read_weight


def member(
    name: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition] = (),
    generation: int = -1,
    instance: str | None = None,
    user_data: bytes = b"",
    weight: float = 1.0,
) -> MemberSubscription:
    return MemberSubscription(name, instance, frozenset(topics), tuple(owned), generation, user_data, weight)


def partitions_of(partitions: Mapping[str, int], topics: Iterable[str] | None = None) -> list[TopicPartition]:
    names = sorted(partitions if topics is None else set(topics) & partitions.keys())
    return [(topic, number) for topic in names for number in range(partitions[topic])]


def assigned_partitions(assignment: GroupAssignment) -> list[TopicPartition]:
    """All partitions of an assignment, sorted; a partition that is assigned twice appears twice."""
    return sorted(partition for share in assignment.values() for partition in share)


@dataclass
class AssignorGroup:
    """A group whose members own what was assigned to them, and report it when they join again."""

    assignor: Assignor
    partitions: dict[str, int]
    members: dict[str, MemberState] = field(default_factory=dict)
    generation: int = 0

    def subscriptions(self) -> list[MemberSubscription]:
        return [self._subscription(name, own) for name, own in self.members.items()]

    def _subscription(self, name: str, own: MemberState) -> MemberSubscription:
        data = self.assignor.metadata(own) or b""
        owned = own.owned if self.assignor.is_cooperative else ()
        return MemberSubscription(name, None, own.topics, owned, own.generation, data, read_weight(data))

    def rebalance(self) -> GroupAssignment:
        """Run one generation."""
        result = self.assignor.assign(self.partitions, self.subscriptions())
        self.generation += 1
        for name, own in self.members.items():
            self.members[name] = own._replace(owned=tuple(result[name]), generation=self.generation)
        return result

    def rebalance_twice(self) -> GroupAssignment:
        """Run the generations that a change takes: two for a cooperative assignor."""
        self.rebalance()
        return self.rebalance()

    def join(self, name: str, topics: Iterable[str], weight: float = 1.0) -> None:
        self.members[name] = MemberState(frozenset(topics), weight=weight)

    def subscribe(self, name: str, topics: Iterable[str]) -> None:
        """Change a subscription. A cooperative client revokes the partitions of other topics at once."""
        own, subscribed = self.members[name], frozenset(topics)
        owned = tuple(partition for partition in own.owned if partition[0] in subscribed)
        self.members[name] = own._replace(topics=subscribed, owned=owned)

    def subscribed_partitions(self) -> list[TopicPartition]:
        return partitions_of(self.partitions, {topic for own in self.members.values() for topic in own.topics})

    def owners(self) -> dict[TopicPartition, str]:
        return {partition: name for name, own in self.members.items() for partition in own.owned}
