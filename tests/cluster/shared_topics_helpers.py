"""Nodes with topics on one store in memory, without servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from topics_helpers import SETTINGS

from callboard.actors.errors import CoordinatorError
from callboard.runtime.cluster.cluster_node import ClusterNode
from callboard.runtime.cluster.register import Endpoint
from callboard.runtime.cluster.session import NodeIdentity
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.shared_topics import SharedTopics
from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.dynamic import DynamicSettings
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.store import NewTopic
from callboard.runtime.topics.topic import Topic

from .memory_store import Memory, MemoryStore

COUNTS = PartitionCounts(4, 1)
ENVIRONMENT = SessionEnvironment()


class TopicsNode:
    """A node that owns what it is told. ``deleting``: cleanups that have begun."""

    def __init__(
        self,
        memory: Memory,
        name: str,
        topics: tuple[tuple[str, int], ...] = (),
        settings: Settings = SETTINGS,
        *,
        has_joined: bool = True,
        environment: SessionEnvironment = ENVIRONMENT,
    ) -> None:
        self.store = MemoryStore(memory)
        identity = NodeIdentity(name, {"": Endpoint(name, 9092)})
        node = ClusterNode(self.store, environment, identity, COUNTS, lambda reason: None)
        self.disk = disk = MemoryDisk()
        folder = Path("/data")
        disk.make_folder(folder)
        self.catalogue = TopicCatalogue(folder, settings, SystemRandom(), (COUNTS.offsets, COUNTS.transactions), disk)
        self.configs = DynamicSettings(settings)
        self.deleting: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.shared = SharedTopics(
            node,
            environment,
            self.catalogue,
            self.configs,
            SystemRandom(),
            lambda names, done: self.deleting.append((names, done)),
            lambda partition: True,
            topics,
        )
        self.catalogue.follower = self.shared
        if has_joined:
            self.shared.joined("id", is_new=False)
        self.security = SecurityStore(folder, disk, lambda: name.encode())
        self.shared.follow_security(self.security)

    async def create(self, *topics: NewTopic) -> list[Topic | CoordinatorError]:
        return await outcome_of(partial(self.shared.admin.create, topics))

    async def delete(self, name: str) -> CoordinatorError | None:
        topic = self.catalogue.get(name)
        assert topic is not None
        refusals: list[CoordinatorError | None] = await outcome_of(partial(self.shared.admin.delete, [topic]))
        return refusals[0]

    async def follow(self) -> None:
        """Apply what the other nodes have changed."""
        await self.shared.follow()

    async def own(self, epoch: int) -> None:
        """Own and load all partitions."""
        self.shared.gained(dict.fromkeys(range(sum(COUNTS)), epoch))
        for partition in range(sum(COUNTS)):
            await self.shared.begin_load(partition, epoch)

    def finish_cleanups(self) -> None:
        deleting, self.deleting = self.deleting, []
        for _, done in deleting:
            done()

    def names(self) -> set[str]:
        return {name for name in self.catalogue.names() if not name.startswith("__")}
