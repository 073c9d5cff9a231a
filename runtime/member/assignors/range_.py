"""Kafka's range assignor: of each topic, a run of partitions for each member.

Topics are looked at one by one, and what is left over goes to the first members. So with many topics of one partition
(resources with names) the first member gets them all: such want one of the other assignors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from .base import Assignment, Assignor, Partition, Subscribed
from .order import by_member, in_order, places, wanted


class Range(Assignor):
    """The same results as Java's RangeAssignor, if racks play no part."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        ordered = in_order(members)
        shares: list[list[Partition]] = [[] for _ in ordered]
        for topic, who in wanted(partitions, ordered).items():
            _deal(topic, partitions[topic], who, shares)
        return by_member(ordered, shares)


def _deal(topic: str, count: int, who: int, shares: list[list[Partition]]) -> None:
    each, more = divmod(count, who.bit_count())
    start = 0
    for turn, place in enumerate(islice(places(who), count)):  # with few partitions only the first members get one
        end = start + each + (turn < more)
        shares[place] += [(topic, number) for number in range(start, end)]
        start = end
