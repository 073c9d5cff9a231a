"""Topics of a cluster, for commands. Each function raises what ``Cluster`` raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from .cluster import EARLIEST, LATEST, Cluster
from .errors import raise_if_error

TIMEOUT = timedelta(seconds=30)
"""How long the server may take for a change."""

SERVER_DEFAULT = -1
"""The replication factor of new topics: the server's default (KIP-464, from CreateTopics v4 on)."""


class TopicListing(NamedTuple):
    name: str
    partition_count: int
    is_internal: bool


class PartitionDescription(NamedTuple):
    """``leader``: the id of its broker, None without one. Offsets are None if they could not be read."""

    partition: int
    leader: int | None
    first_offset: int | None
    end_offset: int | None


def list_topics(cluster: Cluster) -> list[TopicListing]:
    """All topics, sorted by name."""
    return sorted(
        TopicListing(topic.name, len(topic.partitions), topic.is_internal) for topic in cluster.metadata(None).topics
    )


def describe_topic(cluster: Cluster, name: str) -> list[PartitionDescription]:
    """The partitions of a topic."""
    [topic] = cluster.metadata([name]).topics
    raise_if_error(f"topic '{name}'", topic.error_code)
    keys = [(name, partition.partition_index) for partition in topic.partitions]
    first, end = cluster.list_offsets(keys, EARLIEST), cluster.list_offsets(keys, LATEST)
    return sorted(
        PartitionDescription(
            partition.partition_index,
            partition.leader_id if partition.leader_id >= 0 else None,
            first.get((name, partition.partition_index)),
            end.get((name, partition.partition_index)),
        )
        for partition in topic.partitions
    )


def create_topic(cluster: Cluster, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
    """Create a topic with the server's default replication factor."""
    topic = {
        "name": name,
        "num_partitions": partition_count,
        "replication_factor": SERVER_DEFAULT,
        "assignments": (),
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    _change(cluster, "create_topics", "topics", f"topic '{name}' was not created", topics=[topic], validate_only=False)


def add_partitions(cluster: Cluster, name: str, partition_count: int) -> None:
    """Give a topic more partitions. ``partition_count``: with the present ones."""
    topic = {"name": name, "count": partition_count, "assignments": None}
    _change(
        cluster,
        "create_partitions",
        "results",
        f"topic '{name}' has no more partitions",
        topics=[topic],
        validate_only=False,
    )


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic with its records. The groups lose their offsets of it."""
    _change(cluster, "delete_topics", "responses", f"topic '{name}' was not deleted", topic_names=[name])


def _change(cluster: Cluster, api: str, results: str, failure: str, **values: Any) -> None:
    """Send a request about one topic, and check its result. ``results``: the field of the response."""
    [result] = getattr(cluster.ask(api, timeout=TIMEOUT, **values), results)
    raise_if_error(failure, result.error_code, getattr(result, "error_message", None))
