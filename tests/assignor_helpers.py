"""What the tests of the assignors share: groups in which members come and go and take over what they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from callboard.runtime.member.assignors.base import (
    Assignor,
    GroupAssignment,
    MemberState,
    MemberSubscription,
    TopicPartition,
)
from callboard.runtime.member.assignors.user_data import read_weight


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


def all_of(partitions: Mapping[str, int], topics: Iterable[str] | None = None) -> list[TopicPartition]:
    names = sorted(partitions if topics is None else set(topics) & partitions.keys())
    return [(topic, number) for topic in names for number in range(partitions[topic])]


def given(assignment: GroupAssignment) -> list[TopicPartition]:
    """All that was given to anybody, sorted; twice if it was given twice."""
    return sorted(partition for share in assignment.values() for partition in share)


@dataclass
class Group:
    """A group whose members behave: each holds what it was given, and says so when it joins again."""

    assignor: Assignor
    partitions: dict[str, int]
    members: dict[str, MemberState] = field(default_factory=dict)
    generation: int = 0

    def subscribed(self) -> list[MemberSubscription]:
        return [self._joins(name, own) for name, own in self.members.items()]

    def _joins(self, name: str, own: MemberState) -> MemberSubscription:
        data = self.assignor.metadata(own) or b""
        owned = own.owned if self.assignor.is_cooperative else ()
        return MemberSubscription(name, None, own.topics, owned, own.generation, data, read_weight(data))

    def rebalance(self) -> GroupAssignment:
        """One generation."""
        result = self.assignor.assign(self.partitions, self.subscribed())
        self.generation += 1
        for name, own in self.members.items():
            self.members[name] = own._replace(owned=tuple(result[name]), generation=self.generation)
        return result

    def settle(self) -> GroupAssignment:
        """As many generations as a change takes: two for a cooperative assignor."""
        self.rebalance()
        return self.rebalance()

    def join(self, name: str, topics: Iterable[str], weight: float = 1.0) -> None:
        self.members[name] = MemberState(frozenset(topics), weight=weight)

    def subscribe(self, name: str, topics: Iterable[str]) -> None:
        """A cooperative client lets go at once of what it does not want any more."""
        own, wanted = self.members[name], frozenset(topics)
        kept = tuple(partition for partition in own.owned if partition[0] in wanted)
        self.members[name] = own._replace(topics=wanted, owned=kept)

    def wanted(self) -> list[TopicPartition]:
        return all_of(self.partitions, {topic for own in self.members.values() for topic in own.topics})

    def holders(self) -> dict[TopicPartition, str]:
        return {partition: name for name, own in self.members.items() for partition in own.owned}
