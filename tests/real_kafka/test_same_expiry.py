"""Old offsets and empty groups go from a real Kafka and from ours in the same way, with sweeps every 0.3 s.

Nobody can wait for seven days, so offsets with a time of their own (OffsetCommit v2 to v4) are what grows old here.
That a sweep has been is seen by a group that the next one removes, whatever its age.
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
from .paired_requests import describe, fetch_all, join, leave, metadata_values, sync_values
from .side_by_side import PairedConnection, PairedValue, SideBySide

CHECK_MS = 300
OWN_TIME_MS = 500


@pytest.fixture(scope="module")
def connection(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairedConnection]:
    """To servers of their own. (That there is a real Kafka at all is checked by the fixture that is not used.)"""
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
            create(connection, "t")
            create(connection, "u")
            yield connection
    finally:
        kafka.stop()


def create(connection: PairedConnection, topic: str) -> None:
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    connection.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
    wait_until(
        lambda: connection.ask_uncompared("metadata", 9, **metadata_values([{"name": topic}])),
        _has_leader,
        "the new topic",
    )


def _has_leader(metadata: PairedValue) -> bool:
    topics = (metadata.ours["topics"][0], metadata.theirs["topics"][0])
    return [part["error_code"] for topic in topics for part in topic["partitions"]] == ["NONE"] * 2


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def commit(
    connection: PairedConnection, group: str, topic: str, member: Any = "", generation: int = -1, own_time: bool = True
) -> None:
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    connection.ask(
        "offset_commit",
        4,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time=OWN_TIME_MS if own_time else -1,
        topics=[{"name": topic, "partitions": [one]}],
    )


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def stable(connection: PairedConnection, group: str, **changes: Any) -> PairedValue:
    offers = [{"name": "range", "metadata": subscription("t")}]
    member = join(connection, group, version=3, **{"protocols": offers, **changes})["member_id"]
    connection.ask("sync_group", 3, **sync_values(group, member, [{"member_id": member, "assignment": b"all"}]))
    return member


def let_sweeps_pass(connection: PairedConnection) -> None:
    """Until a sweep has begun after what was committed has grown old: an empty group that is made then is gone."""
    age(connection)
    sentinel = f"sentinel-{uuid.uuid4().hex[:8]}"
    leave(connection, 3, sentinel, stable(connection, sentinel))
    wait_until(lambda: states(connection, sentinel), lambda found: found == ["Dead", "Dead"], "a sweep")


def age(connection: PairedConnection) -> None:
    """Until an offset that is committed now, with a time of its own, has gone."""
    group = f"clock-{uuid.uuid4().hex[:8]}"
    commit(connection, group, "t")
    wait_until(lambda: states(connection, group), lambda found: found == ["Dead", "Dead"], "the time of an offset")


def states(connection: PairedConnection, group: str) -> list[str]:
    answers = connection.ask_uncompared("describe_groups", 5, groups=[group], include_authorized_operations=False)
    return [side["groups"][0]["group_state"] for side in (answers.ours, answers.theirs)]


def compare(connection: PairedConnection, group: str) -> None:
    let_sweeps_pass(connection)
    fetch_all(connection, group)
    describe(connection, group)


def test_expiry_in_simple_group(connection: PairedConnection, group: str) -> None:
    """What has its own time goes, the rest stays, and the group with it."""
    commit(connection, group, "t")
    commit(connection, group, "u", own_time=False)
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
    """Its offsets are young by the group's age, but for those with their own time."""
    member = stable(connection, group)
    commit(connection, group, "t", member, 1, own_time=False)
    commit(connection, group, "u", member, 1)
    leave(connection, 3, group, member)
    compare(connection, group)


def test_expiry_in_completing_rebalance(connection: PairedConnection, group: str) -> None:
    """Nothing goes between two generations."""
    member = stable(connection, group)
    commit(connection, group, "u", member, 1)
    offers = [{"name": "range", "metadata": subscription("t", "u")}]
    join(connection, group, version=3, member_id=member, protocols=offers)
    compare(connection, group)
    assert states(connection, group) == ["CompletingRebalance"] * 2


def test_group_whose_offsets_were_deleted(connection: PairedConnection, group: str) -> None:
    commit(connection, group, "t", own_time=False)
    place = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    connection.ask("offset_delete", 0, group_id=group, topics=place)
    compare(connection, group)
    assert states(connection, group) == ["Dead", "Dead"]
