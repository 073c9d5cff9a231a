"""Deletes the offsets of deleted topics, as in Kafka. The DeleteTopics request does not wait for it.

An offset that is committed for a new topic of the same name is kept, because a group gets the message before any later
request: from a scan, when it is activated, or ahead of the request, whichever is first. A partition that is loading is
scanned when it is loaded: its groups may come from records that are older than the deletion.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """One deletion of topics. Its ``scans`` visit all groups.

    ``done`` is called at its end. ``loading``: the numbers of partitions that are scanned when they are loaded.
    """

    def __init__(self, topics: frozenset[str], done: Callable[[], None] | None = None) -> None:
        self.done = done
        self.message = DeleteTopicOffsets(topics)
        self.scans: list[GroupScan] = []
        self.loading: set[int] = set()
        self._names = tuple(topic.encode() for topic in topics)
        self._notified: set[str] = set()

    @property
    def is_complete(self) -> bool:
        return not self.loading and all(scan.is_complete for scan in self.scans)

    def add_notified(self, group_id: str) -> bool:
        """Note that an active group gets the message. False if it has got it before."""
        is_new = group_id not in self._notified
        self._notified.add(group_id)
        return is_new

    def may_concern(self, group_id: str, packed: bytes) -> bool:
        """Whether a passivated group may have offsets of these topics: ``packed`` contains one of their names."""
        return group_id not in self._notified and any(name in packed for name in self._names)


class TopicCleanups:
    """The cleanups that are not complete."""

    def __init__(self) -> None:
        self._running: list[TopicCleanup] = []

    def add(self, cleanup: TopicCleanup) -> None:
        self._running.append(cleanup)

    def remove_complete(self) -> None:
        complete = [cleanup for cleanup in self._running if cleanup.is_complete]
        self._running = [cleanup for cleanup in self._running if not cleanup.is_complete]
        for cleanup in complete:
            if cleanup.done is not None:
                cleanup.done()

    def take_waiting_for(self, number: int) -> list[TopicCleanup]:
        """The cleanups that have waited for a partition to be loaded."""
        waiting = [cleanup for cleanup in self._running if number in cleanup.loading]
        for cleanup in waiting:
            cleanup.loading.remove(number)
        return waiting

    def __len__(self) -> int:
        return len(self._running)

    def notify(self, group_id: str, ref: ActorRef) -> None:
        """Send the messages of the cleanups to an active group, each once: later commits are for topics that exist."""
        for cleanup in self._running:
            if cleanup.add_notified(group_id):
                ref.post(cleanup.message, IGNORED_REPLY)
