"""Topics were deleted: what groups have committed of them goes too, as in Kafka, and nobody waits for it.

Who makes such a topic anew and commits to it keeps that offset: a group that is awake is told at once, ahead of all
that is sent to it later; one that sleeps is told by the walk, or when something else wakes it, whichever is first.
"""

from __future__ import annotations

from typing import Any

from ..base import ActorRef
from ..messages import ForgetTopics
from .group_scan import Walk


class Nobody:
    """The place for answers that nobody waits for."""

    def set(self, value: Any = None) -> None:
        pass

    def set_exception(self, exc_info: Any = None) -> None:
        pass


NOBODY = Nobody()


class Purge:
    """One deletion of topics. Belongs to the coordinator, which walks through the groups that sleep."""

    walk: Walk

    def __init__(self, topics: frozenset[str]) -> None:
        self.message = ForgetTopics(topics)
        self._names = tuple(topic.encode() for topic in topics)
        self._told: set[str] = set()

    def tell(self, group_id: str, ref: ActorRef) -> None:
        """A group is awake. It is told once: what it commits afterwards is of topics that are there."""
        if group_id not in self._told:
            self._told.add(group_id)
            ref.post(self.message, NOBODY)

    def concerns(self, group_id: str, packed: bytes) -> bool:
        """Whether a group that sleeps could have offsets of these topics: their names stand in what it has left."""
        return group_id not in self._told and any(name in packed for name in self._names)
