"""The offsets of topics in a cluster, as their leaders know them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ..client.connection import Connection
from ..client.reaching import ask_metadata
from ..settings.address import Address
from .admin_requests import no_such_topic
from .results import PartitionRange, TopicDescription

EARLIEST, LATEST = -2, -1  # timestamps of ListOffsets
NO_TOPIC_ID = UUID(int=0)

Ask = Callable[[Address, str, Mapping[str, Any]], Awaitable[Any]]
"""Sends a request to a node."""

Led = dict[Address, dict[str, list[int]]]
"""The partitions that each node leads, by topic."""


async def describe_topics(ask: Ask, connection: Connection, names: Sequence[str] | None) -> list[TopicDescription]:
    """Names and numbers are known to all nodes, the offsets of its records only to the leader of a topic."""
    topics, led = await _find_leaders(connection, names)
    ranges: dict[tuple[str, int], PartitionRange] = {}
    for found in await asyncio.gather(*(_ranges(ask, *item) for item in led.items())):
        ranges |= found
    return [
        TopicDescription(
            topic.name,
            topic.topic_id or NO_TOPIC_ID,
            tuple(ranges[topic.name, number] for number in range(len(topic.partitions))),
            topic.is_internal,
        )
        for topic in sorted(topics, key=lambda topic: str(topic.name))
    ]


async def offsets_since(
    ask: Ask, connection: Connection, name: str, numbers: Sequence[int], time_ms: int
) -> dict[int, int]:
    """Of these partitions with a record of this time or later. Raises CoordinatorError for an unknown topic."""
    topics, led = await _find_leaders(connection, [name])
    if not topics:
        raise no_such_topic(name)
    wanted = set(numbers)
    asked = {node: {name: [each for each in topics_led[name] if each in wanted]} for node, topics_led in led.items()}
    found = await asyncio.gather(*(_list_offsets(ask, *item, time_ms) for item in asked.items()))
    return {index: offset for offsets in found for (_, index), offset in offsets.items() if offset >= 0}


async def _find_leaders(connection: Connection, names: Sequence[str] | None) -> tuple[list[Any], Led]:
    metadata = await ask_metadata(connection, names)
    brokers = {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
    topics = [topic for topic in metadata.topics if not topic.error_code]
    led: Led = defaultdict(dict)
    for topic in topics:
        for row in topic.partitions:
            if row.leader_id not in brokers:
                raise _no_leader(topic.name)
            led[brokers[row.leader_id]].setdefault(topic.name, []).append(row.partition_index)
    return topics, led


async def _ranges(
    ask: Ask, leader: Address, topics: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], PartitionRange]:
    starts = await _list_offsets(ask, leader, topics, EARLIEST)
    ends = await _list_offsets(ask, leader, topics, LATEST)
    return {partition: PartitionRange(start, ends[partition]) for partition, start in starts.items()}


async def _list_offsets(
    ask: Ask, leader: Address, topics: Mapping[str, Sequence[int]], timestamp: int
) -> dict[tuple[str, int], int]:
    rows = [
        {
            "name": name,
            "partitions": [
                {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp} for number in numbers
            ],
        }
        for name, numbers in topics.items()
    ]
    response = await ask(leader, "list_offsets", {"replica_id": -1, "isolation_level": 0, "topics": rows})
    offsets: dict[tuple[str, int], int] = {}
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:  # the leader may not have read of a new topic yet
                raise _no_leader(topic.name)
            offsets[topic.name, row.partition_index] = row.offset
    return offsets


def _no_leader(topic: str) -> CoordinatorError:
    error = ErrorCode.LEADER_NOT_AVAILABLE
    return CoordinatorError(error, f"topic {topic!r}: {error.name}")
