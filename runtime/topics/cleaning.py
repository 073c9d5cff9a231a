"""TopicCleaner: drops records that are too old, and compacts topics, while the server runs."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.steps import Steps
from .catalogue import TopicCatalogue
from .compaction import RunBlocking, run_here
from .policy import CompactionDefaults, compaction_policy_of
from .topic import Topic


class TopicCleaner:
    """Both checks are work in steps for the loop's thread. ``wall_ms`` returns the time since 1970."""

    def __init__(
        self,
        catalogue: TopicCatalogue,
        settings: CompactionDefaults,
        wall_ms: Callable[[], int],
        run_blocking: RunBlocking = run_here,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._wall_ms = wall_ms
        self._run_blocking = run_blocking

    def expire(self) -> Steps[None]:
        """Drop the records of all topics that are older than their ``retention.ms``."""
        for topic in self._topics():
            yield from self._while_it_exists(topic, topic.expire(self._wall_ms()))

    def compact(self) -> Steps[None]:
        """Compact the partitions that are due."""
        for topic in self._topics():
            if topic.policy.is_compacted:
                policy = compaction_policy_of(topic.policy.overrides, self._settings)
                for log in tuple(topic.partitions.active()):
                    yield from self._while_it_exists(
                        topic, topic.compact(log, policy, self._wall_ms(), self._run_blocking)
                    )
            yield

    def _topics(self) -> list[Topic]:
        topics = (self._catalogue.get(name) for name in self._catalogue.names())
        return [topic for topic in topics if topic is not None]

    def _while_it_exists(self, topic: Topic, steps: Steps[None]) -> Steps[None]:
        """Give up the work if the topic is deleted, or not led any more, which has released its records."""
        partitions = topic.partitions
        for _ in steps:
            yield
            if self._catalogue.get(topic.name) is not topic or topic.partitions is not partitions:
                return
