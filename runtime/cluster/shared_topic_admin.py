"""SharedTopicAdmin: changes of topics in a cluster. Each is answered when it is durable in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.ports import Random
from ..topics.admin import TopicAdmin
from ..topics.catalogue import (
    ChangeOverrides,
    CreateOutcome,
    DeleteOutcome,
    SeenCount,
    TopicCatalogue,
    TopicLimits,
    unseen,
)
from ..topics.ids import new_topic_id
from ..topics.store import NewTopic
from ..topics.topic import Topic
from .topic_changes import TopicChanges
from .topics_draft import SharedTopicsDraft


class SharedTopicAdmin(TopicAdmin):
    """``epoch_of``: the epoch of the leader of a topic, by its name."""

    def __init__(
        self,
        catalogue: TopicCatalogue,
        changes: TopicChanges,
        limits: TopicLimits,
        random: Random,
        epoch_of: Callable[[str], int],
    ) -> None:
        super().__init__(catalogue, lambda names: None)  # cleanups delete the offsets, on all nodes
        self._changes = changes
        self._limits = limits
        self._random = random
        self._epoch_of = epoch_of

    def create(self, requests: Sequence[NewTopic], done: Callable[[list[CreateOutcome]], None]) -> None:
        """Two nodes may create the same topic: one of them gets TOPIC_ALREADY_EXISTS."""
        ids = [new_topic_id(self._random) for _ in requests]
        refusals: dict[UUID, CoordinatorError] = {}

        def apply(draft: SharedTopicsDraft) -> None:
            for new in requests:
                draft.check_cleaned(new.name)
            refusals.clear()
            for new, topic_id in zip(requests, ids, strict=True):
                try:
                    draft.create(new, topic_id, self._epoch_of(new.name), self._limits.max_partitions)
                except CoordinatorError as refusal:
                    refusals[topic_id] = refusal.with_traceback(None)

        def finish(error: CoordinatorError | None) -> None:
            done([error or refusals.get(topic_id) or self._created(topic_id) for topic_id in ids])

        self._changes.submit(apply, finish)

    def _created(self, topic_id: UUID) -> CreateOutcome:
        deleted = CoordinatorError(ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted as soon as it was created")
        return self._catalogue.by_id(topic_id) or deleted

    def delete(self, topics: Sequence[Topic], done: Callable[[list[DeleteOutcome]], None]) -> None:
        refusals: dict[UUID, CoordinatorError] = {}

        def apply(draft: SharedTopicsDraft) -> None:
            refusals.clear()
            for topic in topics:
                try:
                    draft.delete(topic.name, topic.topic_id)
                except CoordinatorError as refusal:
                    refusals[topic.topic_id] = refusal.with_traceback(None)

        def finish(error: CoordinatorError | None) -> None:
            done([error or refusals.get(topic.topic_id) for topic in topics])

        self._changes.submit(apply, finish)

    def grow(
        self, topic: Topic, partitions: int, done: Callable[[CoordinatorError | None], None], seen: SeenCount = unseen
    ) -> None:
        def apply(draft: SharedTopicsDraft) -> None:
            seen(draft.table.find(topic.name, topic.topic_id).partitions)
            draft.grow(topic.name, topic.topic_id, partitions, self._limits.max_partitions)

        self._changes.submit(apply, done)

    def alter(self, topic: Topic, change: ChangeOverrides, done: Callable[[CoordinatorError | None], None]) -> None:
        self._changes.submit(lambda draft: draft.alter(topic.name, topic.topic_id, change), done)
