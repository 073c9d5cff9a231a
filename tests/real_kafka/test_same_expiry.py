"""A real Kafka and our server expire the same offsets and groups, with retention scans every 0.3 s.

The offsets that expire have a short retention time of their own (OffsetCommit v2 to v4), because the default is seven
days. To detect a scan, the tests create an empty group, which the next scan removes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from peers.server import TEST_SETTINGS as OUR_SETTINGS
from peers.server import ServerProcess
from peers.waiting import wait_until

from .kafka import TEST_SETTINGS, RealKafka
from .paired_requests import create_topic, describe, fetch_all, join, leave, sync_values
from .side_by_side import PairedConnection, PairedValue, SideBySide

CHECK_MS = 300
RETENTION_TIME_MS = 500


@pytest.fixture(scope="module")
def connection(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairedConnection]:
    """A connection to new servers with these settings. ``real_kafka`` is only used to skip without Java."""
    kafka = RealKafka(
        tmp_path_factory.mktemp("kafka"), {**TEST_SETTINGS, "offsets.retention.check.interval.ms": CHECK_MS}
    )
    settings = {**OUR_SETTINGS, "offsets_retention_check_interval_ms": CHECK_MS}
    kafka.start()
    try:
        with (
            ServerProcess(tmp_path_factory.mktemp("ours"), settings=settings) as server,
            SideBySide((server.host, server.port), (kafka.host, kafka.port)) as side_by_side,
        ):
            connection = side_by_side.connection()
            create_topic(connection, "t", partitions=1)
            create_topic(connection, "u", partitions=1)
            yield connection
    finally:
        kafka.stop()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def commit(
    connection: PairedConnection,
    group: str,
    topic: str,
    member: Any = "",
    generation: int = -1,
    has_retention_time: bool = True,
) -> None:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    connection.ask(
        "offset_commit",
        4,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time=RETENTION_TIME_MS if has_retention_time else -1,
        topics=[{"name": topic, "partitions": [partition]}],
    )


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def stable(connection: PairedConnection, group: str, **changes: Any) -> PairedValue:
    protocols = [{"name": "range", "metadata": subscription("t")}]
    member = join(connection, group, version=3, **{"protocols": protocols, **changes})["member_id"]
    connection.ask("sync_group", 3, **sync_values(group, member, [{"member_id": member, "assignment": b"all"}]))
    return member


def wait_for_scan(connection: PairedConnection) -> None:
    """Wait for a retention scan after the offsets have expired: it removes a new empty group."""
    wait_for_expiry(connection)
    sentinel = f"sentinel-{uuid.uuid4().hex[:8]}"
    leave(connection, 3, sentinel, stable(connection, sentinel))
    wait_until(lambda: states(connection, sentinel), lambda current: current == ["Dead", "Dead"], "a retention scan")


def wait_for_expiry(connection: PairedConnection) -> None:
    """Wait until a new offset with a retention time has expired."""
    group = f"clock-{uuid.uuid4().hex[:8]}"
    commit(connection, group, "t")
    wait_until(
        lambda: states(connection, group), lambda current: current == ["Dead", "Dead"], "the expiry of an offset"
    )


def states(connection: PairedConnection, group: str) -> list[str]:
    answers = connection.ask_uncompared("describe_groups", 5, groups=[group], include_authorized_operations=False)
    return [side["groups"][0]["group_state"] for side in (answers.ours, answers.theirs)]


def compare(connection: PairedConnection, group: str) -> None:
    wait_for_scan(connection)
    fetch_all(connection, group)
    describe(connection, group)


def test_expiry_in_simple_group(connection: PairedConnection, group: str) -> None:
    """Offsets with a retention time expire; the others and the group remain."""
    commit(connection, group, "t")
    commit(connection, group, "u", has_retention_time=False)
    compare(connection, group)


def test_simple_group_is_removed_with_last_offset(connection: PairedConnection, group: str) -> None:
    commit(connection, group, "t")
    compare(connection, group)
    assert states(connection, group) == ["Dead", "Dead"]


def test_expiry_with_consumers_of_one_of_two_topics(connection: PairedConnection, group: str) -> None:
    member = stable(connection, group)
    for topic in ("t", "u"):
        commit(connection, group, topic, member, 1)
    compare(connection, group)
    assert states(connection, group) == ["Stable", "Stable"]
    leave(connection, 3, group, member)
    compare(connection, group)
    assert states(connection, group) == ["Dead", "Dead"]


def test_expiry_with_members_of_other_protocol_type(connection: PairedConnection, group: str) -> None:
    member = stable(connection, group, protocol_type="connect")
    commit(connection, group, "u", member, 1)
    compare(connection, group)


def test_expiry_in_emptied_group(connection: PairedConnection, group: str) -> None:
    """The default retention has just begun; only offsets with a retention time expire."""
    member = stable(connection, group)
    commit(connection, group, "t", member, 1, has_retention_time=False)
    commit(connection, group, "u", member, 1)
    leave(connection, 3, group, member)
    compare(connection, group)


def test_expiry_in_completing_rebalance(connection: PairedConnection, group: str) -> None:
    """Nothing expires during a rebalance."""
    member = stable(connection, group)
    commit(connection, group, "u", member, 1)
    protocols = [{"name": "range", "metadata": subscription("t", "u")}]
    join(connection, group, version=3, member_id=member, protocols=protocols)
    compare(connection, group)
    assert states(connection, group) == ["CompletingRebalance"] * 2


def test_group_whose_offsets_were_deleted(connection: PairedConnection, group: str) -> None:
    commit(connection, group, "t", has_retention_time=False)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    connection.ask("offset_delete", 0, group_id=group, topics=topics)
    compare(connection, group)
    assert states(connection, group) == ["Dead", "Dead"]
