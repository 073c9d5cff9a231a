"""Kafka's round robin assignor: all partitions of all topics, dealt to the members one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import Assignment, Assignor, Partition, Subscribed
from .order import by_member, in_order, wanted


class RoundRobin(Assignor):
    """The same results as Java's RoundRobinAssignor: whoever does not subscribe to a topic is passed over."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        ordered = in_order(members)
        shares: list[list[Partition]] = [[] for _ in ordered]
        turn = 0
        for topic, who in wanted(partitions, ordered).items():
            for number in range(partitions[topic]):
                place = _next(who, turn)
                shares[place].append((topic, number))
                turn = place + 1
        return by_member(ordered, shares)


def _next(who: int, turn: int) -> int:
    """The first place that is set at the turn or behind it, else the first of all."""
    rest = who >> turn
    return turn + _first(rest) if rest else _first(who)


def _first(who: int) -> int:
    return (who & -who).bit_length() - 1
