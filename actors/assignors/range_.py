"""Kafka's range assignor: each member gets a range of each topic's partitions.

Each topic is distributed separately, and its first members get one more if the division leaves a remainder. With many
topics of one partition (named resources) the first member would get all of them; use another assignor for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from .base import Assignor, GroupAssignment, MemberSubscription, TopicPartition
from .order import by_member_id, member_indexes, sort_members, subscribers_by_topic


class Range(Assignor):
    """The same results as Java's RangeAssignor without racks."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        ordered = sort_members(members)
        shares: list[list[TopicPartition]] = [[] for _ in ordered]
        for topic, subscribers in subscribers_by_topic(partitions, ordered).items():
            _assign_topic(topic, partitions[topic], subscribers, shares)
        return by_member_id(ordered, shares)


def _assign_topic(topic: str, count: int, subscribers: int, shares: list[list[TopicPartition]]) -> None:
    quotient, remainder = divmod(count, subscribers.bit_count())
    start = 0
    for position, member in enumerate(islice(member_indexes(subscribers), count)):
        end = start + quotient + (position < remainder)
        shares[member] += [(topic, number) for number in range(start, end)]
        start = end
