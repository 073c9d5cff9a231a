"""Numbers of partitions for members, as fair as can be, and with as few taken from anybody as that needs.

Partitions that the same members want are one *kind*; here they are only counted. A member's next partition costs it
(2 * count + 1) / weight, and shares are fair when no partition could be passed on, directly or along a chain of members
that each pass one on, to where it costs less. With equal weights and subscriptions that is Kafka's "within one"; with
weights it is the rule of Sainte-Lague, by which parliaments are filled; with different subscriptions it goes further
than Kafka, which looks at no chains. Such shares are the least of all sums of costs, which has a use besides being
fair: when those partitions that move are taken away in one generation and given in the next, the second calculation
cannot want any others to move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from sortedcontainers import SortedDict

from .order import places

FEW = 32
"""So few members are compared one by one; of more, whole levels of load are looked at. Both then cost a microsecond."""


class Step(NamedTuple):
    """One partition of a kind, from one member's place to another's."""

    giver: int
    kind: int
    taker: int


class Balance:
    """Counts while they are worked out: ``shares`` has, for each member's place, how many of each kind.

    ``kinds`` are the members that want each kind, as bits; ``held`` is what members have at the beginning.
    """

    def __init__(self, weights: Sequence[float], kinds: Sequence[int], held: Sequence[dict[int, int]]) -> None:
        self.shares = [dict(share) for share in held]
        self._held = held
        self._weights = weights
        self._kinds = kinds
        self._counts = [sum(share.values()) for share in held]
        self._costs = [(2 * count + 1) / weight for count, weight in zip(self._counts, weights, strict=True)]
        self._levels: SortedDict[float, int] = SortedDict()  # members by the cost of their next partition
        for place, cost in enumerate(self._costs):
            self._levels[cost] = self._levels.get(cost, 0) | 1 << place

    def give(self, kind: int) -> None:
        """One more partition of a kind, to the member that it costs least."""
        place = self._cheapest(self._kinds[kind])
        self._add(place, kind, 1)
        self._count(place, 1)

    def settle(self, new_only: bool) -> None:
        """Pass partitions on until shares are fair; with ``new_only`` nobody gives of what it held at the beginning.

        The dearest partition is looked at first. If nobody who could get it, or whom a chain from there reaches, has
        it cheaper, then nobody's partition can be better placed with any of those: they are done, together.
        """
        self._fixed: Sequence[dict[int, int]] = self._held if new_only else [{}] * len(self._held)
        self._done = 0
        queue = [(-self._last_cost(place), place) for place in range(len(self.shares))]
        heapify(queue)
        while queue:
            cost, place = heappop(queue)
            if self._done >> place & 1 or -cost != self._last_cost(place):
                continue
            chain = self._direct(place) or self._chain(place)
            if chain:
                self._pass_on(chain)
                for end in (chain[0].giver, chain[-1].taker):
                    heappush(queue, (-self._last_cost(end), end))

    def _last_cost(self, place: int) -> float:
        """What the partition costs that a member would give."""
        return (2 * self._counts[place] - 1) / self._weights[place]

    def _cheapest(self, who: int) -> int:
        if who.bit_count() <= FEW:
            return min(places(who), key=self._costs.__getitem__)
        level = next(level for level in self._levels.values() if level & who)
        return next(places(level & who))

    def _movable(self, place: int) -> Iterator[int]:
        fixed = self._fixed[place]
        return (kind for kind, count in self.shares[place].items() if count > fixed.get(kind, 0))

    def _direct(self, giver: int) -> list[Step]:
        """A chain of one step, or none."""
        kinds = list(self._movable(giver))
        who = 0
        for kind in kinds:
            who |= self._kinds[kind]
        who &= ~(self._done | 1 << giver)
        if not who or self._costs[taker := self._cheapest(who)] >= self._last_cost(giver):
            return []
        return [min((Step(giver, kind, taker) for kind in kinds if self._kinds[kind] >> taker & 1), key=self._harm)]

    def _harm(self, step: Step) -> tuple[bool, bool, int]:
        """Least for a partition that the giver has only just got and the taker had."""
        takes_new = self.shares[step.giver][step.kind] > self._held[step.giver].get(step.kind, 0)
        gets_back = self.shares[step.taker].get(step.kind, 0) < self._held[step.taker].get(step.kind, 0)
        return not takes_new, not gets_back, step.kind

    def _chain(self, giver: int) -> list[Step]:
        """The shortest chain to the cheapest member that can be reached; if it is no better, all these are done."""
        steps: dict[int, Step] = {}
        reached = 1 << giver
        queue = [giver]
        for place in queue:
            for kind in self._movable(place):
                new = self._kinds[kind] & ~(reached | self._done)
                reached |= new
                for taker in places(new):
                    steps[taker] = Step(place, kind, taker)
                    queue.append(taker)
        taker = self._cheapest(reached)
        if self._costs[taker] < self._last_cost(giver):
            return _back(steps, taker)
        self._done |= reached
        return []

    def _pass_on(self, chain: list[Step]) -> None:
        for giver, kind, taker in chain:
            self._add(giver, kind, -1)
            self._add(taker, kind, 1)
        self._count(chain[0].giver, -1)
        self._count(chain[-1].taker, 1)

    def _add(self, place: int, kind: int, change: int) -> None:
        share = self.shares[place]
        share[kind] = share.get(kind, 0) + change

    def _count(self, place: int, change: int) -> None:
        bit, old = 1 << place, self._costs[place]
        self._counts[place] += change
        cost = self._costs[place] = (2 * self._counts[place] + 1) / self._weights[place]
        self._levels[old] ^= bit
        if not self._levels[old]:
            del self._levels[old]
        self._levels[cost] = self._levels.get(cost, 0) | bit


def _back(steps: dict[int, Step], place: int) -> list[Step]:
    """The steps that lead to a place, the first one first."""
    chain: list[Step] = []
    while place in steps:
        chain.append(steps[place])
        place = steps[place].giver
    return chain[::-1]
