"""TransactionEnvironment: dependencies of TransactionsActor and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base import ActorRef
from ..coordinator.directory import Directory
from ..engine_ports import Clock
from ..errors import ErrorCode
from ..javahash import offsets_partition
from ..ports import TransactionSettings, TransactionTopics
from .messages import Partitions
from .peers import Peers

OFFSETS_TOPIC = "__consumer_offsets"

Then = Callable[[ErrorCode], None]
"""Called with the outcome of an append."""


class TransactionEnvironment(NamedTuple):
    """Settings, clock, topics, and the actors that transactions send messages to.

    ``peers``: the other nodes of a cluster; None on a single node, which has all partitions.
    """

    settings: TransactionSettings
    clock: Clock
    timer: ActorRef
    writer: ActorRef
    directory: Directory
    topics: TransactionTopics
    peers: Peers | None = None

    @property
    def offsets_partitions(self) -> int:
        """The number of partitions of ``__consumer_offsets``. Those of transactions are numbered after them."""
        return len(self.directory.partitions)

    def limit_reached(self, count: int) -> str:
        """The setting that allows no more than the ``count`` transactional ids that exist; "" if none does."""
        if count >= self.settings.max_transactional_ids:
            return "max_transactional_ids"
        return "memory_limit_bytes" if self.directory.memory_limit.refuses_new() else ""

    def offsets_partition_of(self, group_id: str) -> Partitions:
        """A group's offsets, as a partition of a transaction."""
        return frozenset({(OFFSETS_TOPIC, offsets_partition(group_id, self.offsets_partitions))})
