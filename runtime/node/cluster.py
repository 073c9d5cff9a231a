"""Cluster: what a node needs of the cluster that it belongs to. Without one it owns everything and is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...actors.ports import Random
from ...actors.transactions.peers import Peers
from ..kafka.cluster_view import ClusterView
from ..kafka.peer_gate import PeerGate
from ..kafka.questions import Questions
from ..log.due_partition import DuePartition
from ..log.store import LogStore, Ownership
from ..security.store import SecurityStore
from ..settings.dynamic import DynamicSettings
from ..settings.table import Settings
from ..topics.admin import Admins
from ..topics.catalogue import TopicCatalogue
from ..topics.producer_ids import ProducerIdAllocator


class LogCleaner(Protocol):
    """Compacts the log while the node runs. ``runs``: how often it has compacted partitions."""

    runs: int
    is_running: bool

    def start(self) -> None:
        """Begin, unless the settings disable it. The log is loaded."""

    def compact_now(self) -> None:
        """Begin to compact all partitions. Raises CompactionRuns."""

    async def compactable(self) -> Sequence[DuePartition]:
        """The partitions that this compacts."""

    async def stop(self) -> None:
        """End. A partition in progress is as before, or compacted."""

    def halt(self) -> None:
        """The same without waiting."""


class Cluster(Protocol):
    @property
    def log(self) -> LogStore: ...

    @property
    def ownership(self) -> Ownership: ...

    @property
    def view(self) -> ClusterView: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def questions(self) -> Questions: ...

    @property
    def peer_gate(self) -> PeerGate: ...

    @property
    def producer_ids(self) -> ProducerIdAllocator: ...

    def follow_topics(
        self,
        catalogue: TopicCatalogue,
        configs: DynamicSettings,
        random: Random,
        delete_offsets: Callable[[frozenset[str], Callable[[], None]], None],
        is_served: Callable[[int], bool],
        topics: Sequence[tuple[str, int]],
    ) -> Admins:
        """Have the cluster's topics in the catalogue, and the settings of groups in ``configs``, from now on.

        ``delete_offsets`` deletes the offsets of topics in all groups of the node, then calls back. ``is_served``:
        whether a partition of the log is loaded. ``topics``: names and partition counts of topics that shall exist.
        """

    def follow_security(self, security: SecurityStore) -> None:
        """Have the cluster's users, ACLs and quotas in ``security`` from now on, and make its changes in the cluster.

        Call it after ``follow_topics``.
        """

    def cleaner(self, settings: Settings) -> LogCleaner | None:
        """What compacts the partitions that the node owns; None if this process does not compact."""

    async def wait_until_ready(self) -> None:
        """Return when the node has joined, knows the cluster's topics and users, and the other nodes know it.

        Before that clients would get wrong answers. It waits for as long as the store is not available.
        """

    def has_lease(self) -> bool:
        """Whether the node may answer for its groups now, because no other node can have changed them."""

    async def leave(self) -> None:
        """Give all partitions to other nodes, before a stop."""

    def halt(self) -> None:
        """Change and follow nothing any more, as at the death of the process. The ownership is stopped separately."""

    async def close(self) -> None:
        """End the connections to the store, as the last step of a stop."""
