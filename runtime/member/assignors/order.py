"""The order in which members and partitions are taken, so that the same group has the same result whoever leads it.

Sets of members are integers here, a bit for each member's place in the order: ten thousand topics that each have their
own hundred out of a thousand members are then a few milliseconds' work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .base import Assignment, Partition, Subscribed


def in_order(members: Iterable[Subscribed]) -> list[Subscribed]:
    """Static members first, by instance id, then the others by member id: Kafka's order since KIP-345.

    So a static member that is restarted, and has a new member id, keeps its place.
    """
    return sorted(members, key=_place)


def _place(member: Subscribed) -> tuple[bool, str]:
    instance_id = member.group_instance_id
    return instance_id is None, member.member_id if instance_id is None else instance_id


def wanted(partitions: Mapping[str, int], members: Sequence[Subscribed]) -> dict[str, int]:
    """Of each topic that exists and has subscribers, sorted, which members want it: a bit for each member's place.

    Members with the same topics, which is nearly always all of them, are looked at together.
    """
    alike: dict[frozenset[str], int] = {}
    for place, member in enumerate(members):
        alike[member.topics] = alike.get(member.topics, 0) | 1 << place
    found: dict[str, int] = {}
    for topics, who in alike.items():
        for topic in topics:
            found[topic] = found.get(topic, 0) | who
    return {topic: found[topic] for topic in sorted(found) if partitions.get(topic, 0) > 0}


def places(who: int) -> Iterator[int]:
    """The places whose bits are set, in order."""
    while who:
        lowest = who & -who
        yield lowest.bit_length() - 1
        who ^= lowest


def by_member(members: Sequence[Subscribed], shares: Sequence[list[Partition]]) -> Assignment:
    """The result that an assignor gives, of shares by the members' places."""
    return {member.member_id: sorted(share) for member, share in zip(members, shares, strict=True)}
