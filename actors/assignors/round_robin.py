"""Kafka's round robin assignor: the partitions of all topics are assigned to the members in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import Assignor, GroupAssignment, MemberSubscription, TopicPartition
from .order import by_member_id, sort_members, subscribers_by_topic


class RoundRobin(Assignor):
    """The same results as Java's RoundRobinAssignor: members that do not subscribe to a topic are skipped."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        ordered = sort_members(members)
        shares: list[list[TopicPartition]] = [[] for _ in ordered]
        next_index = 0
        for topic, subscribers in subscribers_by_topic(partitions, ordered).items():
            for number in range(partitions[topic]):
                member = _next_member(subscribers, next_index)
                shares[member].append((topic, number))
                next_index = member + 1
        return by_member_id(ordered, shares)


def _next_member(members: int, start: int) -> int:
    """The first index in the bit set from ``start`` on, or else its first index."""
    rest = members >> start
    return start + _first_member(rest) if rest else _first_member(members)


def _first_member(members: int) -> int:
    return (members & -members).bit_length() - 1
