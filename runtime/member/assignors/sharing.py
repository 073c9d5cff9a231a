"""What the sticky assignors have in common: each member keeps what it holds, as far as that is fair.

Balance works out numbers; here they become partitions. A member keeps as many of a kind as it may, and what is free or
has been taken is dealt round, topic by topic, to those that are to have more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .balance import Balance
from .base import Partition, Subscribed
from .order import wanted


class _Kind:
    """Partitions that the same members want."""

    def __init__(self, who: int) -> None:
        self.who = who
        self.held: dict[int, list[Partition]] = {}
        self.free: list[Partition] = []

    def take_in(self, partition: Partition, holder: int) -> None:
        """``holder`` below 0 for none. Who does not subscribe any more holds nothing."""
        if holder >= 0 and self.who >> holder & 1:
            self.held.setdefault(holder, []).append(partition)
        else:
            self.free.append(partition)

    def deal(self, counts: Mapping[int, int], shares: list[list[Partition]]) -> None:
        """As many to each place as ``counts`` says, of what it held as far as possible."""
        left = list(self.free)
        needs = dict(counts)
        for place, mine in self.held.items():
            kept = needs.get(place, 0)
            shares[place] += mine[:kept]
            left += mine[kept:]
            needs[place] = kept - len(mine)
        _deal_round(iter(left), {place: need for place, need in sorted(needs.items()) if need > 0}, shares)


def _deal_round(left: Iterator[Partition], needs: dict[int, int], shares: list[list[Partition]]) -> None:
    while needs:
        for place in list(needs):
            shares[place].append(next(left))
            needs[place] -= 1
            if not needs[place]:
                del needs[place]


def share_out(
    partitions: Mapping[str, int],
    members: Sequence[Subscribed],
    holders: Mapping[Partition, int],
    weights: Sequence[float],
) -> list[list[Partition]]:
    """Everybody's partitions by the members' places; ``holders`` has who holds which now, below 0 for nobody."""
    kinds = _kinds(partitions, members, holders)
    held: list[dict[int, int]] = [{} for _ in members]
    for number, kind in enumerate(kinds):
        for place, mine in kind.held.items():
            held[place][number] = len(mine)
    balance = Balance(weights, [kind.who for kind in kinds], held)
    for number, kind in enumerate(kinds):
        for _ in kind.free:
            balance.give(number)
    balance.settle(new_only=True)
    balance.settle(new_only=False)
    return _dealt(kinds, balance.shares)


def _kinds(
    partitions: Mapping[str, int], members: Sequence[Subscribed], holders: Mapping[Partition, int]
) -> list[_Kind]:
    """Those that few members want first: the others can make up for how these fall."""
    kinds: dict[int, _Kind] = {}
    for topic, who in wanted(partitions, members).items():
        kind = kinds.get(who) or kinds.setdefault(who, _Kind(who))
        for number in range(partitions[topic]):
            kind.take_in((topic, number), holders.get((topic, number), -1))
    return sorted(kinds.values(), key=lambda kind: kind.who.bit_count())


def _dealt(kinds: Sequence[_Kind], counts: Sequence[Mapping[int, int]]) -> list[list[Partition]]:
    of_kind: list[dict[int, int]] = [{} for _ in kinds]
    for place, share in enumerate(counts):
        for number, count in share.items():
            of_kind[number][place] = count
    shares: list[list[Partition]] = [[] for _ in counts]
    for kind, needs in zip(kinds, of_kind, strict=True):
        kind.deal(needs, shares)
    return shares
