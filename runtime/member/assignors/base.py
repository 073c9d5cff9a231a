"""What an assignor is: who gets which partitions, decided by one member (the leader) for all. Pure, as all here.

A Member asks its assignor twice: before it joins, what of itself the leader should know (``metadata``); and when it
leads, who gets what (``assign``). Partitions are (topic, number) pairs, and a resource with a name is a topic with one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Partition = tuple[str, int]
Assignment = dict[str, list[Partition]]
"""Every member's partitions by its member id, sorted. A member that gets nothing has an empty list."""

NO_GENERATION = -1
NO_WEIGHT = 1.0


class Own(NamedTuple):
    """What a member knows of itself when it is about to join.

    ``owned`` is what it holds or, if it has just handed everything back to join (eager), what it held. ``generation``
    is that in which it got this, -1 if it never was in one. ``weight`` is a positive number.
    """

    topics: frozenset[str]
    owned: tuple[Partition, ...] = ()
    generation: int = NO_GENERATION
    weight: float = NO_WEIGHT
    rack_id: str | None = None


class Subscribed(NamedTuple):
    """What the leader knows of a member. ``generation`` is that of ``owned``, -1 if its client is too old to say so."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]
    owned: tuple[Partition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""
    weight: float = NO_WEIGHT


Function = Callable[[Mapping[str, int], Sequence[Subscribed]], Mapping[str, Iterable[Partition]]]
"""What ``FunctionAssignor`` calls: numbers of partitions by topic and the members in, partitions by member id out."""


class Assignor(ABC):
    """A way to share partitions out. Objects are stateless, so one serves any number of members.

    ``name`` is what members of a group must agree on (Kafka calls it the protocol's name). With ``is_cooperative``
    members keep what they hold while they join, and a partition that changes hands is taken in one generation and
    given in the next (KIP-429).
    """

    name: str
    is_cooperative: bool = False

    def metadata(self, own: Own) -> bytes | None:
        """User data for the leader; None for none, which Kafka writes as null."""
        return None

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        """Who gets what. The same for the same members in whatever order.

        ``partitions`` has the number of partitions of each topic that exists; topics that are not there are passed
        over. Every partition that somebody subscribes to is given once, save that a cooperative assignor holds back
        those that another member still has.
        """
