"""The interface of assignors. One member of a group, the leader, computes the assignment of all. Pure.

A Member calls its assignor twice: ``metadata`` before it joins, for the data that the leader needs, and ``assign`` if
it is the leader. Partitions are (topic, number) pairs. Each name of a named resource is a topic with one partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

TopicPartition = tuple[str, int]
"""A topic and a partition."""

GroupAssignment = dict[str, list[TopicPartition]]
"""Each member's partitions by its member id, sorted. A member without partitions has an empty list."""

NO_GENERATION = -1
NO_WEIGHT = 1.0


class MemberState(NamedTuple):
    """A member's own data before it joins.

    ``owned``: the partitions that it owns or, with an eager assignor, has just revoked in order to join.
    ``generation``: the one in which it got them, -1 if it was never in one. ``weight``: a positive number.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    weight: float = NO_WEIGHT
    rack_id: str | None = None


class MemberSubscription(NamedTuple):
    """A member as the leader sees it, or the coordinator. ``generation``: that of ``owned``, -1 if it is not known.

    ``user_data`` and ``weight`` are for leaders only. ``client_id`` is for the coordinator only, because leaders do not
    know it.
    """

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""
    weight: float = NO_WEIGHT
    rack_id: str | None = None
    client_id: str = ""


AssignFunction = Callable[[Mapping[str, int], Sequence[MemberSubscription]], Mapping[str, Iterable[TopicPartition]]]
"""An assignor that is a function: (partition counts by topic, members) -> partitions by member id."""


class Assignor(ABC):
    """A way to distribute partitions. Objects have no state, so one serves any number of members.

    ``name``: the protocol name that the members of a group must have in common. ``is_cooperative``: members keep what
    they own while they join, and a partition that moves is revoked in one generation and assigned in the next
    (KIP-429).
    """

    name: str
    is_cooperative: bool = False

    def metadata(self, own: MemberState) -> bytes | None:
        """User data for the leader, None if there are none, which Kafka writes as null."""
        return None

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        """Compute the assignment. The order of ``members`` makes no difference.

        ``partitions``: the partition counts of the topics that exist; other topics are ignored. Every partition of a
        topic with subscribers is assigned once, but a cooperative assignor withholds those that another member still
        owns.
        """
