"""Kafka's ``uniform`` for members that all subscribe to the same topics.

Each member has a quota and keeps at most so many of its partitions; the others are dealt to members that have less.
Source of the rules: ``UniformHomogeneousAssignmentBuilder`` of Kafka 4.3.1.
"""

from __future__ import annotations

from ...javahash import cached_java_hash
from .base import AssignmentFailed, GroupMember, GroupToAssign, TargetAssignment
from .hash_order import copied_set_order, member_order, partition_order, topic_order, uuid_hash


def assign_homogeneous(group: GroupToAssign) -> TargetAssignment:
    members = {member.member_id: member for member in group.members}
    return _Allocation(group, [members[member_id] for member_id in member_order(members)]).assign()


class _Allocation:
    """``extra``: members that still get one partition more than the ``quota``. ``unfilled``: with what they lack."""

    def __init__(self, group: GroupToAssign, members: list[GroupMember]) -> None:
        self.members = members
        counts = _partition_counts(group, members[0])
        self.topic_ids = frozenset(counts)
        self.unassigned = _unowned(counts, members)
        self.quota, self.extra = divmod(sum(counts.values()), len(members))
        self.unfilled: list[tuple[str, int]] = []
        self.target: TargetAssignment = {}

    def assign(self) -> TargetAssignment:
        for index, member in enumerate(self.members):
            self._keep_owned(member, waiting=len(self.members) - index)
        self._deal_unassigned()
        return {
            member_id: {topic_id: sorted(numbers) for topic_id, numbers in partitions.items() if numbers}
            for member_id, partitions in self.target.items()
        }

    def _keep_owned(self, member: GroupMember, waiting: int) -> None:
        """``waiting``: this member and those behind it. The last ones must take an extra partition."""
        takes_extra = self.extra > 0
        missing = self._keep_within(member, self.quota + takes_extra)
        if missing and takes_extra and waiting > self.extra:
            missing -= 1
            takes_extra = False
        if missing:
            self.unfilled.append((member.member_id, missing))
        self.extra -= takes_extra

    def _keep_within(self, member: GroupMember, quota: int) -> int:
        """Returns how many partitions the member lacks."""
        kept = self.target[member.member_id] = {}
        for topic_id in topic_order(member.owned):
            if topic_id not in self.topic_ids:
                continue
            numbers = partition_order(member.owned[topic_id])
            kept[topic_id] = numbers[:quota]
            self.unassigned += [(topic_id, number) for number in numbers[quota:]]
            quota -= len(kept[topic_id])
        return quota

    def _deal_unassigned(self) -> None:
        start = 0
        for member_id, missing in self.unfilled:
            partitions = self.target[member_id]
            for topic_id, number in self.unassigned[start : start + missing]:
                partitions.setdefault(topic_id, []).append(number)
            start += missing
        if start < len(self.unassigned):
            raise AssignmentFailed("Partitions were left unassigned")


def _partition_counts(group: GroupToAssign, member: GroupMember) -> dict[bytes, int]:
    """The subscribed topics that exist, in the order in which their partitions are dealt."""
    names = [name for name in copied_set_order(member.topics, cached_java_hash) if name in group.topics]
    counts = {group.topics[name].topic_id: group.topics[name].partition_count for name in names}
    return {topic_id: counts[topic_id] for topic_id in copied_set_order(counts, uuid_hash, len(member.topics))}


def _unowned(counts: dict[bytes, int], members: list[GroupMember]) -> list[tuple[bytes, int]]:
    owned = {(topic_id, number) for member in members for topic_id in member.owned for number in member.owned[topic_id]}
    partitions = ((topic_id, number) for topic_id, count in counts.items() for number in range(count))
    return [partition for partition in partitions if partition not in owned]
