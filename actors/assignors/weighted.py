"""The weighted assignor: a member with weight 2 gets twice as many partitions as one with weight 1.

For workers on machines of different size. Sticky and cooperative. Kafka's clients do not have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import MemberState, MemberSubscription
from .cooperative import CooperativeSticky
from .user_data import is_weight, write_weight


class Weighted(CooperativeSticky):
    """Shares are whole numbers, rounded by the method of Sainte-Lague; see balance.py."""

    name = "callboard-weighted"

    def metadata(self, own: MemberState) -> bytes | None:
        """The weight. Raises ValueError if it is out of range."""
        return write_weight(own.weight)

    def _weights(self, members: Sequence[MemberSubscription]) -> list[float]:
        return [member.weight if is_weight(member.weight) else 1.0 for member in members]
