"""Kafka's ``uniform`` for members that subscribe to different topics.

Members keep what they own of the topics that they still subscribe to. The rest is dealt topic by topic to the members
with the fewest partitions. Then, again topic by topic, the members with the most give to those with the fewest.
Source of the rules: ``UniformHeterogeneousAssignmentBuilder`` of Kafka 4.3.1. Members are numbers here, in the order of
Kafka's hash map.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ...text import format_count
from .base import AssignmentFailed, GroupMember, GroupToAssign, TargetAssignment, Topic
from .hash_order import member_order
from .loads import LeastLoaded, MostLoaded

ROUNDS_MAX = 16
"""Passes over all topics, after which Kafka gives up to balance further."""

_TWO_LONGS = Struct(">2q")

NO_OWNER = -1


def assign_heterogeneous(group: GroupToAssign) -> TargetAssignment:
    members = {member.member_id: member for member in group.members}
    allocation = _Allocation(group, [members[member_id] for member_id in member_order(members)])
    allocation.deal_unowned()
    allocation.balance()
    return allocation.target()


class _Allocation:
    """``owners``: the member of each partition, by topic. ``loads``: the number of partitions of each member."""

    def __init__(self, group: GroupToAssign, members: list[GroupMember]) -> None:
        self.members = members
        self.subscribers: dict[bytes, list[int]] = {}
        topics: dict[bytes, Topic] = {}
        for index, member in enumerate(members):
            for topic in group.subscribed(member):
                topics[topic.topic_id] = topic
                self.subscribers.setdefault(topic.topic_id, []).append(index)
        self.topics = sorted(topics.values(), key=self._topic_key)
        self.owners = {topic.topic_id: [NO_OWNER] * topic.partition_count for topic in self.topics}
        self.loads = [0] * len(members)
        for index, member in enumerate(members):
            self._keep_owned(index, member)

    def _topic_key(self, topic: Topic) -> tuple[float, int, int, int]:
        """Most partitions per subscriber first, then fewest subscribers, then by id, whose halves Java compares."""
        subscribers = len(self.subscribers[topic.topic_id])
        return -(topic.partition_count / subscribers), subscribers, *_TWO_LONGS.unpack(topic.topic_id)

    def _keep_owned(self, index: int, member: GroupMember) -> None:
        for topic_id, numbers in member.owned.items():
            if index in self.subscribers.get(topic_id, ()):
                _check_numbers(member.member_id, topic_id, numbers, len(self.owners[topic_id]))
                for number in numbers:
                    self._assign(topic_id, number, index)

    def _assign(self, topic_id: bytes, number: int, index: int) -> None:
        owners = self.owners[topic_id]
        if owners[number] != NO_OWNER:
            self.loads[owners[number]] -= 1
        owners[number] = index
        self.loads[index] += 1

    def deal_unowned(self) -> None:
        for topic_id in (topic.topic_id for topic in self.topics):
            receivers = LeastLoaded(self._by_load(topic_id), self.loads)
            for number, owner in enumerate(self.owners[topic_id]):
                if owner == NO_OWNER:
                    self._assign(topic_id, number, receivers.next())

    def _by_load(self, topic_id: bytes) -> list[int]:
        """The subscribers of a topic, those with the fewest partitions first."""
        return sorted(self.subscribers[topic_id], key=self.loads.__getitem__)

    def balance(self) -> None:
        """Ends when no topic has changed since the last change, or after ``ROUNDS_MAX``."""
        topic_ids = [topic.topic_id for topic in self.topics if len(self.subscribers[topic.topic_id]) >= 2]
        last_changed: bytes | None = None
        for topic_id in topic_ids * ROUNDS_MAX:
            if topic_id == last_changed:
                return
            if self._balance_topic(topic_id) or last_changed is None:
                last_changed = topic_id

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Whether a partition has moved."""
        subscribers = self._by_load(topic_id)
        if self.loads[subscribers[-1]] - self.loads[subscribers[0]] <= 1:
            return False
        numbers: dict[int, list[int]] = {}
        for number, owner in enumerate(self.owners[topic_id]):
            numbers.setdefault(owner, []).append(number)
        receivers, givers = LeastLoaded(subscribers, self.loads), MostLoaded(subscribers, self.loads)
        has_changed = False
        while (giver := givers.next(numbers)) is not None:
            number = numbers[giver].pop()
            receiver = receivers.next()
            if givers.level - receivers.level <= 1:
                break
            self._assign(topic_id, number, receiver)
            has_changed = True
        return has_changed

    def target(self) -> TargetAssignment:
        target: TargetAssignment = {member.member_id: {} for member in self.members}
        for topic_id, owners in self.owners.items():
            for number, owner in enumerate(owners):
                target[self.members[owner].member_id].setdefault(topic_id, []).append(number)
        return target


def _check_numbers(member_id: str, topic_id: bytes, numbers: Sequence[int], count: int) -> None:
    if numbers and max(numbers) >= count:
        raise AssignmentFailed(
            f"member {member_id} owns partition {max(numbers)} of topic {topic_id.hex()}, which has"
            f" {format_count(count, 'partition')}"
        )
