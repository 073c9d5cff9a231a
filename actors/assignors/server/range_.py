"""Kafka's ``range`` of the coordinator: each subscriber of a topic gets a range of its partitions. Not sticky."""

from __future__ import annotations

from .base import GroupMember, GroupToAssign, TargetAssignment


class ServerRange:
    """Topics with equally many partitions are divided in the same way, so that members can join their records.

    As in Kafka, the first member speaks for all members that are said to subscribe equally, even if they do not.
    """

    name = "range"

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        members = sorted(group.members, key=_sort_key)
        target: TargetAssignment = {member.member_id: {} for member in members}
        subscribers: dict[bytes, list[GroupMember]] = {}
        counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
        for member in members:
            for topic in group.subscribed(members[0] if group.is_homogeneous else member):
                subscribers.setdefault(topic.topic_id, []).append(member)
        for topic_id, topic_members in subscribers.items():
            _assign_topic(topic_id, counts[topic_id], topic_members, target)
        return target


def _sort_key(member: GroupMember) -> tuple[bool, bytes]:
    """Static members first, by instance id, then the others by member id, as Java sorts strings."""
    instance_id = member.instance_id
    text = member.member_id if instance_id is None else instance_id
    return instance_id is None, text.encode("utf-16-be", "surrogatepass")


def _assign_topic(topic_id: bytes, count: int, members: list[GroupMember], target: TargetAssignment) -> None:
    quota, remainder = divmod(count, len(members))
    start = 0
    for index, member in enumerate(members[:count]):
        end = start + quota + (index < remainder)
        target[member.member_id][topic_id] = list(range(start, end))
        start = end
