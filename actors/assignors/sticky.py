"""Kafka's sticky assignor (KIP-54): balanced, and members keep their partitions where the balance allows.

It is eager: members revoke everything before they join, so their previous partitions are in the user data. Results may
differ from Java's, which depend on the order of its hash maps; the guarantees are the same, or stronger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .allocation import allocate_partitions
from .base import NO_GENERATION, Assignor, GroupAssignment, MemberState, MemberSubscription
from .order import by_member_id, sort_members
from .ownership import resolve_owners
from .user_data import OwnedPartitions, read_owned_partitions, write_owned_partitions


class Sticky(Assignor):
    """Members with the same topics differ by at most one partition over all topics, not in each topic."""

    name = "sticky"

    def metadata(self, own: MemberState) -> bytes | None:
        """Null before the first assignment, as in Java."""
        if own.generation == NO_GENERATION:
            return None
        return write_owned_partitions(OwnedPartitions(own.owned, own.generation))

    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        ordered = sort_members(members)
        owners = resolve_owners([read_owned_partitions(member.user_data) for member in ordered])
        return by_member_id(ordered, allocate_partitions(partitions, ordered, owners, [1.0] * len(ordered)))
