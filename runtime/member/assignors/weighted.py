"""Shares in proportion to weight: a member with weight 2 has twice what one with weight 1 has. Sticky and cooperative.

For workers on machines of different size. Not Kafka's; a group whose members are all Members can agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import Own, Subscribed
from .cooperative import CooperativeSticky
from .user_data import is_weight, write_weight


class Weighted(CooperativeSticky):
    """Shares are whole numbers, rounded as parliaments' seats are (Sainte-Lague); balance.py has the rule."""

    name = "callboard-weighted"

    def metadata(self, own: Own) -> bytes | None:
        """The weight. Raises ValueError for one that is no weight."""
        return write_weight(own.weight)

    def _weights(self, members: Sequence[Subscribed]) -> list[float]:
        return [member.weight if is_weight(member.weight) else 1.0 for member in members]
