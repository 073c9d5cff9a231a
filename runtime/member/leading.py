"""A member's subscription in JoinGroup, and the assignments that the leader computes from all of them. Pure.

As ``assignors/leading.py``, with names (``named.py``) in front of the assignors' user data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from ...actors.messages import JoinedMember, Protocol
from .assignors.base import Assignor, Own
from .assignors.leading import assign, subscribed
from .assignors.wire import Assigned, Subscription, read_subscription, write_assignment, write_subscription
from .named import PREFIX, Names, ResourceSet, named_topics, pack_names, unpack_names

log = logging.getLogger("callboard.member")


def protocol_name(assignor: Assignor, has_names: bool) -> str:
    return (PREFIX if has_names else "") + assignor.name


def offer(assignor: Assignor, wanted: ResourceSet, own: Own, has_names: bool, holds: bool) -> Protocol:
    """One of the protocols of a JoinGroup. Without names its bytes are those of Kafka's clients.

    ``holds``: whether the member still owns its partitions; with an eager assignor it does not.
    """
    user_data = pack_names(wanted.names, assignor.metadata(own))
    owned = own.owned if holds else ()
    subscription = Subscription(tuple(wanted.numbers), user_data, owned, own.generation, own.rack_id)
    return Protocol(protocol_name(assignor, has_names), write_subscription(subscription))


class Group:
    """All members' subscriptions, for the leader."""

    def __init__(self, joined: Sequence[JoinedMember]) -> None:
        read = [(member, *_read(member)) for member in joined]
        self.names = _union(names for _, _, names in read)
        self.topics = sorted({topic for _, subscription, _ in read for topic in subscription.topics})
        self._members = [subscribed(member, _with_names(subscription, names)) for member, subscription, names in read]

    def assign(self, assignor: Assignor, numbers: Mapping[str, int]) -> tuple[tuple[str, bytes], ...]:
        """Every member's assignment, for SyncGroup. ``numbers``: how many partitions the numbered topics have."""
        partitions = {topic: numbers[topic] for topic in self.topics if numbers.get(topic)}
        given, problem = assign(assignor, {**partitions, **named_topics(self.names)}, self._members)
        if problem is not None:
            log.error("%s", problem)
        ids = [member.member_id for member in self._members]
        return tuple((member_id, write_assignment(Assigned(tuple(given.get(member_id, ()))))) for member_id in ids)


def _read(member: JoinedMember) -> tuple[Subscription, Names]:
    subscription = read_subscription(member.metadata)
    if subscription is None:
        log.error("member %r gets nothing: its subscription cannot be decoded", member.member_id)
        return Subscription(()), {}
    names, user_data = unpack_names(subscription.user_data)
    return subscription._replace(user_data=user_data), names


def _with_names(subscription: Subscription, names: Names) -> Subscription:
    return subscription._replace(topics=(*subscription.topics, *named_topics(names)))


def _union(each: Iterable[Names]) -> Names:
    together: dict[str, dict[str, None]] = {}
    for names in each:
        for resource, some in names.items():
            together.setdefault(resource, {}).update(dict.fromkeys(some))
    return {resource: tuple(some) for resource, some in together.items()}
