"""What a node counts for ``memory_limit_bytes``, in addition to its groups."""

from __future__ import annotations

from collections.abc import Sized

from ..kafka.connections.client_buffers import ClientBuffers
from ..topics.catalogue import TopicCatalogue
from .actors import NodeActors

CONNECTION_BYTES = 24_000
"""A connection, with what is too little to be counted: half of ``UNCOUNTED_BYTES``, and small responses."""


def count_memory(actors: NodeActors, buffers: ClientBuffers, connections: Sized, topics: TopicCatalogue) -> None:
    """Add the sources of a node to the limit of its groups, and apply it to topics."""
    limit = actors.groups.memory_limit
    limit.sources["connections"] = lambda: len(connections) * CONNECTION_BYTES
    limit.sources["unsent responses"] = lambda: buffers.unsent.total_bytes
    limit.sources["unread requests"] = lambda: buffers.unread.total_bytes
    limit.sources["waiting fetches"] = lambda: buffers.fetches.total_bytes
    limit.sources["topics"] = lambda: topics.memory_bytes
    limit.sources["transactional ids"] = lambda: actors.transaction_table.memory_bytes
    limit.sources["waiting rounds"] = lambda: actors.waiting_bytes
    topics.refuses_new = limit.refuses_new
