"""How many partitions each member gets: as fair as possible, with as few moves as possible.

Partitions with the same subscribers form a *pool*; here they are only counted. A member's next partition costs it (2 *
count + 1) / weight. The counts are fair when no partition can move to a member where it costs less, neither directly
nor along a chain of members that each pass one on. With equal weights and subscriptions the counts differ by at most
one, as in Kafka. With weights it is the method of Sainte-Lague, which distributes seats in parliaments. With different
subscriptions the result is fairer than Kafka's, which considers no chains.

Fair counts minimize the sum of all costs. So a cooperative assignor needs only two generations: when the partitions
that move were revoked in the first, the second calculation moves no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from sortedcontainers import SortedDict

from .order import member_indexes

LINEAR_SEARCH_MAX = 32
"""Up to this many members are compared one by one; with more, whole cost levels are searched. Both then take 1 us."""


class Transfer(NamedTuple):
    """One partition of a pool moves from one member to another. Members are given by index."""

    giver: int
    pool: int
    taker: int


class Balance:
    """Balances partition counts. ``counts_by_pool`` has, for each member index, its partition count in each pool.

    ``subscribers``: for each pool, the members that subscribe to it, as a bit set. ``owned``: the counts to begin with.
    """

    def __init__(self, weights: Sequence[float], subscribers: Sequence[int], owned: Sequence[dict[int, int]]) -> None:
        self.counts_by_pool = [dict(counts) for counts in owned]
        self._owned = owned
        self._weights = weights
        self._subscribers = subscribers
        self._counts = [sum(counts.values()) for counts in owned]
        self._costs = [(2 * count + 1) / weight for count, weight in zip(self._counts, weights, strict=True)]
        self._members_by_cost: SortedDict[float, int] = SortedDict()  # bit sets, by the cost of the next partition
        for member, cost in enumerate(self._costs):
            self._members_by_cost[cost] = self._members_by_cost.get(cost, 0) | 1 << member

    def add_partition(self, pool: int) -> None:
        """Give one more partition of a pool to the member with the lowest cost."""
        member = self._cheapest(self._subscribers[pool])
        self._change_pool_count(member, pool, 1)
        self._change_count(member, 1)

    def equalize(self, new_only: bool) -> None:
        """Move partitions until the counts are fair. With ``new_only`` members keep what they owned at the beginning.

        The most expensive partition is moved first. If no member that can get it, directly or along a chain, has a
        lower cost, then no partition of these members can move to a better place: they are done.
        """
        self._fixed: Sequence[dict[int, int]] = self._owned if new_only else [{}] * len(self._owned)
        self._done = 0
        queue = [(-self._last_cost(member), member) for member in range(len(self.counts_by_pool))]
        heapify(queue)
        while queue:
            cost, member = heappop(queue)
            if self._done >> member & 1 or -cost != self._last_cost(member):
                continue
            chain = self._find_direct_transfer(member) or self._find_chain(member)
            if chain:
                self._apply(chain)
                for end in (chain[0].giver, chain[-1].taker):
                    heappush(queue, (-self._last_cost(end), end))

    def _last_cost(self, member: int) -> float:
        """The cost of the partition that the member would give away."""
        return (2 * self._counts[member] - 1) / self._weights[member]

    def _cheapest(self, members: int) -> int:
        if members.bit_count() <= LINEAR_SEARCH_MAX:
            return min(member_indexes(members), key=self._costs.__getitem__)
        level = next(level for level in self._members_by_cost.values() if level & members)
        return next(member_indexes(level & members))

    def _movable_pools(self, member: int) -> Iterator[int]:
        fixed = self._fixed[member]
        return (pool for pool, count in self.counts_by_pool[member].items() if count > fixed.get(pool, 0))

    def _find_direct_transfer(self, giver: int) -> list[Transfer]:
        """A chain of one transfer, or an empty list."""
        pools = list(self._movable_pools(giver))
        takers = 0
        for pool in pools:
            takers |= self._subscribers[pool]
        takers &= ~(self._done | 1 << giver)
        if not takers or self._costs[taker := self._cheapest(takers)] >= self._last_cost(giver):
            return []
        transfers = (Transfer(giver, pool, taker) for pool in pools if self._subscribers[pool] >> taker & 1)
        return [min(transfers, key=self._disruption)]

    def _disruption(self, transfer: Transfer) -> tuple[bool, bool, int]:
        """Lowest for a partition that is new to the giver and was owned by the taker."""
        giver, pool, taker = transfer
        is_new_to_giver = self.counts_by_pool[giver][pool] > self._owned[giver].get(pool, 0)
        was_owned_by_taker = self.counts_by_pool[taker].get(pool, 0) < self._owned[taker].get(pool, 0)
        return not is_new_to_giver, not was_owned_by_taker, pool

    def _find_chain(self, giver: int) -> list[Transfer]:
        """The shortest chain to the cheapest reachable member. If it is no better, all reachable ones are done."""
        transfers: dict[int, Transfer] = {}
        reached = 1 << giver
        queue = [giver]
        for member in queue:
            for pool in self._movable_pools(member):
                new = self._subscribers[pool] & ~(reached | self._done)
                reached |= new
                for taker in member_indexes(new):
                    transfers[taker] = Transfer(member, pool, taker)
                    queue.append(taker)
        taker = self._cheapest(reached)
        if self._costs[taker] < self._last_cost(giver):
            return _chain_to(taker, transfers)
        self._done |= reached
        return []

    def _apply(self, chain: list[Transfer]) -> None:
        for giver, pool, taker in chain:
            self._change_pool_count(giver, pool, -1)
            self._change_pool_count(taker, pool, 1)
        self._change_count(chain[0].giver, -1)
        self._change_count(chain[-1].taker, 1)

    def _change_pool_count(self, member: int, pool: int, change: int) -> None:
        counts = self.counts_by_pool[member]
        counts[pool] = counts.get(pool, 0) + change

    def _change_count(self, member: int, change: int) -> None:
        bit, old_cost = 1 << member, self._costs[member]
        self._counts[member] += change
        cost = self._costs[member] = (2 * self._counts[member] + 1) / self._weights[member]
        levels = self._members_by_cost
        levels[old_cost] ^= bit
        if not levels[old_cost]:
            del levels[old_cost]
        levels[cost] = levels.get(cost, 0) | bit


def _chain_to(member: int, transfers: dict[int, Transfer]) -> list[Transfer]:
    """The transfers that lead to a member, in order."""
    chain: list[Transfer] = []
    while member in transfers:
        chain.append(transfers[member])
        member = transfers[member].giver
    return chain[::-1]
