"""Kafka's cooperative sticky assignor (KIP-429): members keep what they own while they join.

Only partitions that move are interrupted. Such a partition is revoked in one generation and assigned in the next: its
owner sees that it is missing from the new assignment, revokes it and joins again; then it has no owner. After any
change two generations are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .allocation import allocate_partitions
from .base import NO_GENERATION, Assignor, GroupAssignment, MemberState, MemberSubscription, TopicPartition
from .order import by_member_id, sort_members
from .ownership import resolve_owners
from .user_data import OwnedPartitions, read_generation, write_generation


class CooperativeSticky(Assignor):
    """As ``Sticky``, in two generations. Subscriptions of version 1 and later have the owned partitions."""

    name = "cooperative-sticky"
    is_cooperative = True

    def metadata(self, own: MemberState) -> bytes | None:
        """The generation, for leaders that decode subscriptions only up to version 1."""
        return write_generation(own.generation)

    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        ordered = sort_members(members)
        owners = current_owners(ordered)
        shares = allocate_partitions(partitions, ordered, owners, self._weights(ordered))
        return by_member_id(ordered, withhold_owned(shares, owners))

    def _weights(self, members: Sequence[MemberSubscription]) -> list[float]:
        return [1.0] * len(members)


def current_owners(members: Sequence[MemberSubscription]) -> dict[TopicPartition, int]:
    """The owner's index for each partition, according to the subscriptions."""
    return resolve_owners([OwnedPartitions(member.owned, _generation(member)) for member in members])


def _generation(member: MemberSubscription) -> int:
    return read_generation(member.user_data) if member.generation == NO_GENERATION else member.generation


def withhold_owned(
    shares: Sequence[list[TopicPartition]], owners: Mapping[TopicPartition, int]
) -> list[list[TopicPartition]]:
    """The shares without the partitions that another member still owns, or that two members claim."""
    return [
        [partition for partition in share if owners.get(partition, member) == member]
        for member, share in enumerate(shares)
    ]
