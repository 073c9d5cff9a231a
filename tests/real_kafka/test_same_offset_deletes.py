"""OffsetDelete on our server and on a real Kafka: the responses and the remaining offsets must be equal."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from .paired_requests import commit_values, create_topic, fetch_all, fetch_values, join, leave, sync_values
from .side_by_side import PairedConnection, PairedValue, SideBySide


@pytest.fixture
def connection(side_by_side: SideBySide) -> PairedConnection:
    return side_by_side.connection()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(connection: PairedConnection) -> str:
    """A topic with two partitions on both servers, with leaders."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(connection, name, partitions=2)
    return name


def delete(connection: PairedConnection, group: str, *topics: tuple[str, list[int]]) -> PairedValue:
    request_topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]} for name, indexes in topics
    ]
    return connection.ask("offset_delete", 0, group_id=group, topics=request_topics)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def stable(connection: PairedConnection, group: str, **changes: Any) -> PairedValue:
    member = join(connection, group, version=3, **changes)["member_id"]
    connection.ask("sync_group", 3, **sync_values(group, member, [{"member_id": member, "assignment": b"all"}]))
    return member


@pytest.mark.parametrize("name", ["", "never-made"])
def test_offset_delete_in_unknown_group(connection: PairedConnection, topic: str, name: str) -> None:
    delete(connection, name)
    delete(connection, name, (topic, [0]), ("never-made", [0]))


def test_offset_delete_in_simple_group(connection: PairedConnection, group: str, topic: str) -> None:
    """Partitions with and without offsets, unknown and repeated partitions."""
    connection.ask("offset_commit", 8, **commit_values(group, topic))
    delete(connection, group)
    delete(connection, group, ("never-made", [0]))
    delete(connection, group, (topic, [0, 9, -1]), ("never-made", [0, 1]), (topic, [0]))
    fetch_all(connection, group)
    delete(connection, group, (topic, [0, 1]))
    fetch_all(connection, group)
    delete(connection, group, (topic, [0, 1]))
    connection.ask("describe_groups", 5, groups=[group], include_authorized_operations=False)


def test_offset_delete_in_group_of_consumers(connection: PairedConnection, group: str, topic: str) -> None:
    """Offsets of topics with a subscription are protected until the members have left."""
    connection.ask("offset_commit", 8, **commit_values(group, topic))
    member = stable(connection, group, protocols=[{"name": "range", "metadata": subscription("another", topic)}])
    delete(connection, group, (topic, [0, 9]))
    fetch_all(connection, group)
    leave(connection, 3, group, member)
    delete(connection, group, (topic, [0]))
    fetch_all(connection, group)


def test_offset_delete_of_unsubscribed_topic(connection: PairedConnection, group: str, topic: str) -> None:
    connection.ask("offset_commit", 8, **commit_values(group, topic))
    stable(connection, group, protocols=[{"name": "range", "metadata": subscription("another")}])
    delete(connection, group, (topic, [1]))
    fetch_all(connection, group)


@pytest.mark.parametrize("protocol_type", ["connect", "consumerx"])
def test_offset_delete_in_group_of_other_protocol_type(
    connection: PairedConnection, group: str, topic: str, protocol_type: str
) -> None:
    connection.ask("offset_commit", 8, **commit_values(group, topic))
    protocols = [{"name": "range", "metadata": b"of no consumer"}]
    member = stable(connection, group, protocol_type=protocol_type, protocols=protocols)
    delete(connection, group)
    delete(connection, group, (topic, [0]), ("never-made", [0]))
    leave(connection, 3, group, member)
    delete(connection, group, (topic, [0]))
    fetch_all(connection, group)


def test_offset_delete_after_topic_deletion(connection: PairedConnection, group: str, topic: str) -> None:
    """The server deletes the offsets; the group remains until the next retention scan."""
    connection.ask("offset_commit", 9, **commit_values(group, topic))
    connection.ask("delete_topics", 5, topic_names=[topic], timeout=30_000)
    request = fetch_values(9, group, None)
    connection.ask_until(lambda answer: not answer["groups"][0]["topics"], "offset_fetch", 9, **request)
    connection.ask("describe_groups", 5, groups=[group], include_authorized_operations=False)
