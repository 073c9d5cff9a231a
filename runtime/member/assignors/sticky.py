"""Kafka's sticky assignor (KIP-54): balanced, and beyond that everybody keeps what it had.

It is eager: members hand everything back before they join, so what each had travels in its user data. Results are not
Java's one by one, which depend on the order of its hash maps; what they promise is the same, or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import NO_GENERATION, Assignment, Assignor, Own, Subscribed
from .claims import holders
from .order import by_member, in_order
from .sharing import share_out
from .user_data import Claims, read_claims, write_claims


class Sticky(Assignor):
    """Within one of each other for members with the same topics; over all topics together, not one by one."""

    name = "sticky"

    def metadata(self, own: Own) -> bytes | None:
        """Null before the first assignment, as Java's has it."""
        return None if own.generation == NO_GENERATION else write_claims(Claims(own.owned, own.generation))

    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        ordered = in_order(members)
        held = holders([read_claims(member.user_data) for member in ordered])
        return by_member(ordered, share_out(partitions, ordered, held, [1.0] * len(ordered)))
