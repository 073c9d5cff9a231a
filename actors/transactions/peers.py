"""Peers: the other nodes of a cluster, which coordinate transactions and own partitions that this node does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from ..errors import ErrorCode
from ..records import MarkerRecord
from .messages import AddPartitions, VerifyPartitions

TopicPartition = tuple[str, int]


class Peers(Protocol):
    """Requests to other nodes. Callbacks are called on the loop's thread, once, and never before the method returns.

    A node that cannot be reached gives an error that a retry may solve.
    """

    def check(self, request: AddPartitions | VerifyPartitions, done: Callable[[ErrorCode], None]) -> None:
        """Ask the coordinator of a transactional id to add partitions, or whether all of them are part of it."""

    def write_marker(
        self,
        marker: MarkerRecord,
        partitions: Collection[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """End a transaction in partitions of other nodes. ``done`` gets the outcome of each."""

    def leads(self, topic: str) -> bool:
        """Whether this node leads the partitions of a topic of clients."""
