"""The allocation of the sticky assignors: each member keeps what it owns, as far as that is fair.

``Balance`` computes how many partitions each member gets from each pool; this module chooses which. A member keeps as
many of its own as its count allows. The rest of the pool is distributed in turn to the members that get more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .balance import Balance
from .base import MemberSubscription, TopicPartition
from .order import subscribers_by_topic


class _Pool:
    """The partitions that have the same subscribers (a bit set)."""

    def __init__(self, subscribers: int) -> None:
        self.subscribers = subscribers
        self.owned: dict[int, list[TopicPartition]] = {}  # by member index
        self.free: list[TopicPartition] = []

    def add(self, partition: TopicPartition, owner: int) -> None:
        """``owner``: a member index, below 0 for none. Ignored if that member does not subscribe to the topic."""
        if owner >= 0 and self.subscribers >> owner & 1:
            self.owned.setdefault(owner, []).append(partition)
        else:
            self.free.append(partition)

    def distribute(self, counts: Mapping[int, int], shares: list[list[TopicPartition]]) -> None:
        """Add ``counts[member]`` partitions to each member's share, first those that it owns."""
        rest = list(self.free)
        missing = dict(counts)
        for member, owned in self.owned.items():
            kept_count = missing.get(member, 0)
            shares[member] += owned[:kept_count]
            rest += owned[kept_count:]
            missing[member] = kept_count - len(owned)
        _distribute_in_turn(
            iter(rest), {member: count for member, count in sorted(missing.items()) if count > 0}, shares
        )


def _distribute_in_turn(
    partitions: Iterator[TopicPartition], counts: dict[int, int], shares: list[list[TopicPartition]]
) -> None:
    while counts:
        for member in list(counts):
            shares[member].append(next(partitions))
            counts[member] -= 1
            if not counts[member]:
                del counts[member]


def allocate_partitions(
    partitions: Mapping[str, int],
    members: Sequence[MemberSubscription],
    owners: Mapping[TopicPartition, int],
    weights: Sequence[float],
) -> list[list[TopicPartition]]:
    """Each member's partitions, by member index. ``owners``: the current owner's index, below 0 for none."""
    pools = _make_pools(partitions, members, owners)
    owned_counts: list[dict[int, int]] = [{} for _ in members]
    for number, pool in enumerate(pools):
        for member, owned in pool.owned.items():
            owned_counts[member][number] = len(owned)
    balance = Balance(weights, [pool.subscribers for pool in pools], owned_counts)
    for number, pool in enumerate(pools):
        for _ in pool.free:
            balance.add_partition(number)
    balance.equalize(new_only=True)
    balance.equalize(new_only=False)
    return _distribute(pools, balance.counts_by_pool)


def _make_pools(
    partitions: Mapping[str, int], members: Sequence[MemberSubscription], owners: Mapping[TopicPartition, int]
) -> list[_Pool]:
    """Pools with the fewest subscribers come first, since the others can compensate for them."""
    pools: dict[int, _Pool] = {}
    for topic, subscribers in subscribers_by_topic(partitions, members).items():
        pool = pools.get(subscribers) or pools.setdefault(subscribers, _Pool(subscribers))
        for number in range(partitions[topic]):
            pool.add((topic, number), owners.get((topic, number), -1))
    return sorted(pools.values(), key=lambda pool: pool.subscribers.bit_count())


def _distribute(pools: Sequence[_Pool], counts_by_pool: Sequence[Mapping[int, int]]) -> list[list[TopicPartition]]:
    """``counts_by_pool``: for each member, its partition count in each pool."""
    counts_by_member: list[dict[int, int]] = [{} for _ in pools]
    for member, counts in enumerate(counts_by_pool):
        for number, count in counts.items():
            counts_by_member[number][member] = count
    shares: list[list[TopicPartition]] = [[] for _ in counts_by_pool]
    for pool, member_counts in zip(pools, counts_by_member, strict=True):
        pool.distribute(member_counts, shares)
    return shares
