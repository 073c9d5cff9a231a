"""Kafka's cooperative sticky assignor (KIP-429): members keep what they hold while they join.

Only what moves stops. It is taken in one generation and given in the next: whoever had it lets go when it sees that it
was not given it again, and joins once more; then it is nobody's. After any change two generations are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import NO_GENERATION, Assignment, Assignor, Own, Partition, Subscribed
from .claims import holders
from .order import by_member, in_order
from .sharing import share_out
from .user_data import Claims, read_generation, write_generation


class CooperativeSticky(Assignor):
    """As ``Sticky`` shares out, in two steps. What members hold stands in their subscriptions (version 1 and later)."""

    name = "cooperative-sticky"
    is_cooperative = True

    def metadata(self, own: Own) -> bytes | None:
        """The generation, for leaders that read no newer subscription than version 1."""
        return write_generation(own.generation)

    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        ordered = in_order(members)
        held = held_by(ordered)
        return by_member(ordered, hold_back(share_out(partitions, ordered, held, self._weights(ordered)), held))

    def _weights(self, members: Sequence[Subscribed]) -> list[float]:
        return [1.0] * len(members)


def held_by(members: Sequence[Subscribed]) -> dict[Partition, int]:
    """Who holds which partition, by the members' places, from what their subscriptions say."""
    return holders([Claims(member.owned, _generation(member)) for member in members])


def _generation(member: Subscribed) -> int:
    return read_generation(member.user_data) if member.generation == NO_GENERATION else member.generation


def hold_back(shares: Sequence[list[Partition]], held: Mapping[Partition, int]) -> list[list[Partition]]:
    """The shares without what another member still has, or two members claim."""
    return [[one for one in share if held.get(one, place) == place] for place, share in enumerate(shares)]
