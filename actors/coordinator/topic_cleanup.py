"""Deletes the offsets of deleted topics, as in Kafka. The DeleteTopics request does not wait for it.

An offset that is committed for a new topic of the same name is kept: an active group gets the message at once, before
any later request; a passivated group gets it from the scan or when it is activated, whichever is first.
"""

from __future__ import annotations

from typing import Any

from ..base import ActorRef
from ..messages import DeleteTopicOffsets
from .group_scan import GroupScan


class IgnoredReply:
    """``ReplyTo`` for replies that are not needed."""

    def set(self, value: Any = None) -> None:
        pass

    def set_exception(self, exc_info: Any = None) -> None:
        pass


IGNORED_REPLY = IgnoredReply()


class TopicCleanup:
    """One deletion of topics, owned by the coordinator, which scans the passivated groups."""

    scan: GroupScan

    def __init__(self, topics: frozenset[str]) -> None:
        self.message = DeleteTopicOffsets(topics)
        self._names = tuple(topic.encode() for topic in topics)
        self._notified: set[str] = set()

    def notify(self, group_id: str, ref: ActorRef) -> None:
        """Send the message to an active group, once: later commits are for topics that exist."""
        if group_id not in self._notified:
            self._notified.add(group_id)
            ref.post(self.message, IGNORED_REPLY)

    def may_concern(self, group_id: str, packed: bytes) -> bool:
        """Whether a passivated group may have offsets of these topics: ``packed`` contains one of their names."""
        return group_id not in self._notified and any(name in packed for name in self._names)
