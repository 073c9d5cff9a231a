"""ClusterConnection: everything that a node needs of its cluster, on one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ...actors.ports import Random
from ..client.security import NO_SECURITY, ClientSecurity
from ..log.due_partition import DuePartition
from ..log.partition_counts import PartitionCounts
from ..security.store import SecurityStore
from ..settings.address import Address
from ..settings.dynamic import DynamicSettings
from ..settings.listeners import PLAINTEXT
from ..settings.table import Settings
from ..topics.admin import Admins
from ..topics.catalogue import TopicCatalogue
from .cluster_log import ClusterLog
from .cluster_node import ClusterNode
from .content_loader import ContentLoader
from .known_file import KnownFile
from .node_gate import NodeGate
from .node_peers import NodePeers
from .node_questions import NodeQuestions
from .offset_cleanups import DeleteOffsets
from .register import Endpoint
from .register_view import RegisterView
from .session import NodeIdentity
from .session_environment import SessionEnvironment
from .shared_topics import SharedTopics
from .store import Store
from .twins import TwinWatch


class LogCleaner(Protocol):
    """``node.cluster.LogCleaner``."""

    runs: int
    is_running: bool

    def start(self) -> None: ...

    def compact_now(self) -> None: ...

    async def compactable(self) -> Sequence[DuePartition]: ...

    async def stop(self) -> None: ...

    def halt(self) -> None: ...


MakeCleaner = Callable[[ClusterNode, Settings], LogCleaner]


class ClusterConnection:
    """``node.cluster.Cluster``. ``ownership`` joins the cluster when the node starts it."""

    def __init__(
        self,
        store: Store,
        name: str,
        addresses: Mapping[str, Address],
        counts: PartitionCounts,
        *,
        max_message_bytes: int,
        on_failed: Callable[[Exception], None],
        scratch: Path | None = None,
        known_file: KnownFile | None = None,
        version: str = "",
        environment: SessionEnvironment | None = None,
        is_exclusive: bool = False,
        inter_broker_listener: str = PLAINTEXT,
        peer_security: ClientSecurity = NO_SECURITY,
        make_cleaner: MakeCleaner | None = None,
    ) -> None:
        """``addresses``: where clients reach this node. ``scratch``: a folder for files of large partitions.

        ``on_failed`` is called with the error when the node cannot take part any more. ``is_exclusive``: see
        ``NodeIdentity``. ``peer_security``: of connections to the ``inter_broker_listener`` of other nodes.
        ``make_cleaner``: makes what compacts the partitions of this node; None: nobody does here.
        """
        endpoints = {listener: Endpoint(*address) for listener, address in addresses.items()}
        identity = NodeIdentity(name, endpoints, version, is_exclusive)
        self._store = store
        loader = ContentLoader(store, scratch)
        self._environment = (environment or SessionEnvironment())._replace(expect=loader.expect)
        self._topics: SharedTopics | None = None
        self._make_cleaner = make_cleaner
        self.ownership = ClusterNode(store, self._environment, identity, counts, on_failed)
        self.ownership.known_file = known_file
        self.log = ClusterLog(self.ownership, counts, max_message_bytes, loader)
        self.view = RegisterView(self.ownership, addresses)
        ttl_s = self._environment.ttl_s
        self.peers = NodePeers(self.ownership, self.view, ttl_s, inter_broker_listener, peer_security)
        self.questions = NodeQuestions(self.ownership, inter_broker_listener, peer_security)
        self._twins = TwinWatch(self.ownership, ttl_s)
        self.peer_gate = NodeGate(self.ownership)
        self.producer_ids = self.ownership.producer_ids
        self.has_lease = self.ownership.has_lease
        self.leave = self.ownership.leave

    def cleaner(self, settings: Settings) -> LogCleaner | None:
        """What compacts the partitions that this node owns."""
        return None if self._make_cleaner is None else self._make_cleaner(self.ownership, settings)

    def follow_topics(
        self,
        catalogue: TopicCatalogue,
        configs: DynamicSettings,
        random: Random,
        delete_offsets: DeleteOffsets,
        is_served: Callable[[int], bool],
        topics: Sequence[tuple[str, int]],
    ) -> Admins:
        """See ``SharedTopics``."""
        shared = SharedTopics(
            *(self.ownership, self._environment, catalogue, configs, random, delete_offsets, is_served, topics)
        )
        catalogue.follower = self._topics = shared
        self.ownership.followed = shared
        self.ownership.add_listener(shared)
        self.ownership.add_listener(self._twins)
        self.log.begin_load = shared.begin_load
        return Admins(shared.admin, shared.group_admin)

    async def wait_until_ready(self) -> None:
        """Return when the node has joined, knows the cluster's topics and users, and the other nodes know it."""
        assert self._topics is not None, "follow_topics comes first"
        await self._topics.ready.wait()

    def follow_security(self, security: SecurityStore) -> None:
        """See ``SharedTopics``, which there are."""
        assert self._topics is not None, "follow_topics comes first"
        self._topics.follow_security(security)

    def halt(self) -> None:
        if self._topics is not None:
            self._topics.halt()
        self.peers.close()
        self.questions.close()
        self._twins.close()

    async def close(self) -> None:
        self.halt()
        await self._store.close()
