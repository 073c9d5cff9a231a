"""TopicAdmin: the only place that creates, deletes and grows topics while the coordinator runs, and deletes records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps
from ..settings.admin import GroupConfigAdmin
from .catalogue import (
    ChangeOverrides,
    CreateOutcome,
    DeleteOutcome,
    SeenCount,
    TopicCatalogue,
    TopicLimits,
    altered_row,
    unseen,
)
from .store import NewTopic
from .topic import Topic

DELETED_NAMES_MAX = 10_000
"""Deleted topics that are remembered; the oldest are forgotten."""

TO_THE_END = -1
"""The offset of DeleteRecords that stands for the end of the partition."""


class SharedTopicLimits(TopicLimits, Protocol):
    """The settings that changes of topics in a cluster use."""

    @property
    def offsets_commit_timeout_ms(self) -> int: ...


class Admins(NamedTuple):
    """What changes the topics, and the settings of groups."""

    topics: TopicAdmin
    groups: GroupConfigAdmin


class TopicAdmin:
    """Changes of topics. Each calls ``done`` when it is durable, or with the refusal.

    ``on_deleted`` gets the names of topics that were just deleted, before anyone can create them again: the groups
    delete their offsets.
    """

    def __init__(self, catalogue: TopicCatalogue, on_deleted: Callable[[frozenset[str]], None]) -> None:
        self._catalogue = catalogue
        self._on_deleted = on_deleted
        self._deleted_names: dict[str, None] = {}  # until a client asks for one

    def check_new(self, name: str, partitions: int, other_partitions: int = 0) -> None:
        """Raise CoordinatorError, with Kafka's error code, unless such a topic can be created.

        ``other_partitions``: partitions of other topics that are about to be created too.
        """
        self._catalogue.check_new(name, partitions, other_partitions)

    def create(self, requests: Sequence[NewTopic], done: Callable[[list[CreateOutcome]], None]) -> None:
        """Create topics; ``done`` gets the outcome of each."""
        self._catalogue.create_many(requests, done)

    def check_deletable(self, topic: Topic) -> None:
        """Raise CoordinatorError for the coordinator's own topics, which cannot be deleted."""
        self._catalogue.files.table.find(topic.name, topic.topic_id)

    def delete(self, topics: Sequence[Topic], done: Callable[[list[DeleteOutcome]], None]) -> None:
        """Delete topics; ``done`` gets for each the refusal, or None if it is deleted.

        The offsets that groups committed for them are deleted soon after, and before any later commit.
        """
        self._catalogue.delete_many(topics, partial(self._finish_delete, topics, done))

    def _finish_delete(
        self,
        topics: Sequence[Topic],
        done: Callable[[list[DeleteOutcome]], None],
        outcomes: list[DeleteOutcome],
    ) -> None:
        deleted = frozenset(topic.name for topic, refusal in zip(topics, outcomes, strict=True) if refusal is None)
        if deleted:
            self.remember_deleted(deleted)
            self._on_deleted(deleted)
        done(outcomes)

    def remember_deleted(self, names: Iterable[str]) -> None:
        """Topics were deleted, see ``take_deleted``."""
        self._deleted_names.update(dict.fromkeys(names))
        while len(self._deleted_names) > DELETED_NAMES_MAX:
            del self._deleted_names[next(iter(self._deleted_names))]

    def take_deleted(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that were deleted since the last call for them."""
        taken = frozenset(name for name in names if name in self._deleted_names)
        for name in taken:
            del self._deleted_names[name]
        return taken

    def check_growable(self, topic: Topic, partitions: int) -> None:
        """Raise CoordinatorError unless a topic may have so many partitions."""
        self._catalogue.check_growable(topic, partitions)

    def grow(
        self, topic: Topic, partitions: int, done: Callable[[CoordinatorError | None], None], seen: SeenCount = unseen
    ) -> None:
        """Give a topic more partitions. ``partitions``: the new total.

        ``seen`` is called when the change is made, and again if it is made again: the last call counts.
        """
        self._catalogue.grow(topic, partitions, done, seen)

    def check_alter(self, topic: Topic, change: ChangeOverrides) -> None:
        """Raise CoordinatorError, with Kafka's error code, unless the settings of a topic can change so."""
        altered_row(self._catalogue.files.table, topic, change)

    def alter(self, topic: Topic, change: ChangeOverrides, done: Callable[[CoordinatorError | None], None]) -> None:
        """Change the settings of a topic."""
        self._catalogue.alter(topic, change, done)

    def delete_records(self, topic: Topic, partition: int, offset: int) -> Steps[int]:
        """Delete the records of a partition before ``offset``, or all (TO_THE_END). Returns the new start offset.

        Raises CoordinatorError for internal topics, unknown partitions and offsets out of range. Records are in
        memory, so nothing has to become durable.
        """
        if topic.is_internal:
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name!r} is internal")
        log = topic.partition(partition)
        if log is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {partition}"
            )
        yield from topic.delete_records(partition, log.end_offset if offset == TO_THE_END else offset)
        return log.start_offset
