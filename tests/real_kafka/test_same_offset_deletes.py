"""OffsetDelete to our server and to a real Kafka: the answers and what is left afterwards have to be the same."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from peers.waiting import wait_until

from .asking import commit_values, fetch_all, fetch_values, join, leave, metadata_values, sync_values
from .twins import Line, Twin, Twins


@pytest.fixture
def line(twins: Twins) -> Line:
    return twins.line()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(line: Line) -> str:
    """A topic with two partitions that both servers have and show."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    new = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    line.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
    wait_until(lambda: line.look("metadata", 9, **metadata_values([{"name": name}])), _is_there, "the new topic")
    return name


def _is_there(metadata: Twin) -> bool:
    codes = [
        part["error_code"] for side in (metadata.ours, metadata.theirs) for part in side["topics"][0]["partitions"]
    ]
    return codes == ["NONE"] * 4


def delete(line: Line, group: str, *topics: tuple[str, list[int]]) -> Twin:
    asked = [{"name": name, "partitions": [{"partition_index": one} for one in parts]} for name, parts in topics]
    return line.ask("offset_delete", 0, group_id=group, topics=asked)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def stable(line: Line, group: str, **changes: Any) -> Twin:
    member = join(line, group, version=3, **changes)["member_id"]
    line.ask("sync_group", 3, **sync_values(group, member, [{"member_id": member, "assignment": b"all"}]))
    return member


@pytest.mark.parametrize("name", ["", "never-made"])
def test_offset_delete_in_unknown_group(line: Line, topic: str, name: str) -> None:
    delete(line, name)
    delete(line, name, (topic, [0]), ("never-made", [0]))


def test_offset_delete_in_simple_group(line: Line, group: str, topic: str) -> None:
    """What has an offset, what has none, what does not exist, and the same twice."""
    line.ask("offset_commit", 8, **commit_values(group, topic))
    delete(line, group)
    delete(line, group, ("never-made", [0]))
    delete(line, group, (topic, [0, 9, -1]), ("never-made", [0, 1]), (topic, [0]))
    fetch_all(line, group)
    delete(line, group, (topic, [0, 1]))
    fetch_all(line, group)
    delete(line, group, (topic, [0, 1]))
    line.ask("describe_groups", 5, groups=[group], include_authorized_operations=False)


def test_offset_delete_in_group_of_consumers(line: Line, group: str, topic: str) -> None:
    """What its members subscribe to is needed; everything else is not, and nothing when they have gone."""
    line.ask("offset_commit", 8, **commit_values(group, topic))
    member = stable(line, group, protocols=[{"name": "range", "metadata": subscription("another", topic)}])
    delete(line, group, (topic, [0, 9]))
    fetch_all(line, group)
    leave(line, 3, group, member)
    delete(line, group, (topic, [0]))
    fetch_all(line, group)


def test_offset_delete_of_unsubscribed_topic(line: Line, group: str, topic: str) -> None:
    line.ask("offset_commit", 8, **commit_values(group, topic))
    stable(line, group, protocols=[{"name": "range", "metadata": subscription("another")}])
    delete(line, group, (topic, [1]))
    fetch_all(line, group)


@pytest.mark.parametrize("protocol_type", ["connect", "consumerx"])
def test_offset_delete_in_group_of_other_protocol_type(line: Line, group: str, topic: str, protocol_type: str) -> None:
    line.ask("offset_commit", 8, **commit_values(group, topic))
    offers = [{"name": "range", "metadata": b"of no consumer"}]
    member = stable(line, group, protocol_type=protocol_type, protocols=offers)
    delete(line, group)
    delete(line, group, (topic, [0]), ("never-made", [0]))
    leave(line, 3, group, member)
    delete(line, group, (topic, [0]))
    fetch_all(line, group)


def test_offset_delete_after_topic_deletion(line: Line, group: str, topic: str) -> None:
    """They go by themselves; the group stays until the next sweep."""
    line.ask("offset_commit", 9, **commit_values(group, topic))
    line.ask("delete_topics", 5, topic_names=[topic], timeout=30_000)
    whole = fetch_values(9, group, None)
    line.ask_until(lambda answer: not answer["groups"][0]["topics"], "offset_fetch", 9, **whole)
    line.ask("describe_groups", 5, groups=[group], include_authorized_operations=False)
