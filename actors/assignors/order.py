"""The order of members and partitions, so that the same group has the same assignment whichever member is its leader.

A set of members is an int here, with one bit for each member's index in the order. So ten thousand topics, each with
its own hundred subscribers among a thousand members, take only a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .base import GroupAssignment, MemberSubscription, TopicPartition


def sort_members(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Static members first, by instance id, then the others by member id: Kafka's order since KIP-345.

    So a static member that restarts with a new member id keeps its index.
    """
    return sorted(members, key=_sort_key)


def _sort_key(member: MemberSubscription) -> tuple[bool, str]:
    instance_id = member.group_instance_id
    return instance_id is None, member.member_id if instance_id is None else instance_id


def subscribers_by_topic(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> dict[str, int]:
    """The subscribers of each topic, as bit sets of member indexes, sorted by topic.

    Topics that do not exist or have no subscribers are left out. Members with the same topics, nearly always all of
    them, are handled together.
    """
    members_by_topics: dict[frozenset[str], int] = {}
    for index, member in enumerate(members):
        members_by_topics[member.topics] = members_by_topics.get(member.topics, 0) | 1 << index
    subscribers: dict[str, int] = {}
    for topics, indexes in members_by_topics.items():
        for topic in topics:
            subscribers[topic] = subscribers.get(topic, 0) | indexes
    return {topic: subscribers[topic] for topic in sorted(subscribers) if partitions.get(topic, 0) > 0}


def member_indexes(bit_set: int) -> Iterator[int]:
    """The indexes of the bits that are set, in ascending order."""
    while bit_set:
        lowest = bit_set & -bit_set
        yield lowest.bit_length() - 1
        bit_set ^= lowest


def by_member_id(members: Sequence[MemberSubscription], shares: Sequence[list[TopicPartition]]) -> GroupAssignment:
    """The assignment, from each member's partitions by member index."""
    return {member.member_id: sorted(share) for member, share in zip(members, shares, strict=True)}
