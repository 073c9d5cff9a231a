"""A member's subscription in JoinGroup, and the assignments that the leader computes from all of them. Pure.

The names of named resources (``resources.py``) precede the assignors' user data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from ...actors.assignors.base import Assignor, MemberState
from ...actors.assignors.consumer_protocol import (
    MemberAssignment,
    Subscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from ...actors.assignors.fallback import assign_with_fallback, to_member_subscription
from ...actors.messages import JoinedMember, Protocol
from .resources import PROTOCOL_PREFIX, ResourceNames, ResourceSet, named_topics, pack_names, unpack_names

log = logging.getLogger("callboard.member")


def protocol_name(assignor: Assignor, has_names: bool) -> str:
    return (PROTOCOL_PREFIX if has_names else "") + assignor.name


def make_protocol(
    assignor: Assignor, resources: ResourceSet, own: MemberState, has_names: bool, owns_partitions: bool
) -> Protocol:
    """One of the protocols in a JoinGroup. Without names its bytes are those of Kafka's clients.

    ``owns_partitions``: whether the member still owns ``own.owned``; with an eager assignor it does not.
    """
    user_data = pack_names(resources.names, assignor.metadata(own))
    owned = own.owned if owns_partitions else ()
    subscription = Subscription(tuple(resources.numbers), user_data, owned, own.generation, own.rack_id)
    return Protocol(protocol_name(assignor, has_names), write_subscription(subscription))


class GroupSubscriptions:
    """The subscriptions of all members, for the leader."""

    def __init__(self, joined: Sequence[JoinedMember]) -> None:
        subscriptions = [(member, *_decode_subscription(member)) for member in joined]
        self.names = _union(names for _, _, names in subscriptions)
        self.topics = sorted({topic for _, subscription, _ in subscriptions for topic in subscription.topics})
        self._members = [
            to_member_subscription(member, _with_names(subscription, names))
            for member, subscription, names in subscriptions
        ]

    def assign(self, assignor: Assignor, numbers: Mapping[str, int]) -> tuple[tuple[str, bytes], ...]:
        """Each member's assignment, for SyncGroup. ``numbers``: the partition counts of the numbered topics."""
        partitions = {topic: numbers[topic] for topic in self.topics if numbers.get(topic)}
        assignment, problem = assign_with_fallback(assignor, {**partitions, **named_topics(self.names)}, self._members)
        if problem is not None:
            log.error("%s", problem)
        ids = [member.member_id for member in self._members]
        return tuple(
            (member_id, write_assignment(MemberAssignment(tuple(assignment.get(member_id, ()))))) for member_id in ids
        )


def _decode_subscription(member: JoinedMember) -> tuple[Subscription, ResourceNames]:
    subscription = read_subscription(member.metadata)
    if subscription is None:
        log.error("member %r gets nothing: its subscription cannot be decoded", member.member_id)
        return Subscription(()), {}
    names, user_data = unpack_names(subscription.user_data)
    return subscription._replace(user_data=user_data), names


def _with_names(subscription: Subscription, names: ResourceNames) -> Subscription:
    return subscription._replace(topics=(*subscription.topics, *named_topics(names)))


def _union(names_of_members: Iterable[ResourceNames]) -> ResourceNames:
    union: dict[str, dict[str, None]] = {}
    for names in names_of_members:
        for resource, listed in names.items():
            union.setdefault(resource, {}).update(dict.fromkeys(listed))
    return {resource: tuple(listed) for resource, listed in union.items()}
