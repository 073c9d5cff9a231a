"""OffsetDelete: deletes single offsets durably, except those of subscribed topics."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from actor_system.requests import GROUP, commit, fetch, join, leave
from actor_system.simulation import CoordinatorSimulation
from harness import async_test, commit_values, join_and_sync, offsets, running_node
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ErrorCode
from callboard.actors.group.subscription import subscribed_topics
from callboard.actors.messages import DeleteGroup, OffsetDelete, OffsetsDeleted, Protocol
from callboard.actors.records import OffsetRecord

SUBSCRIBED, NONE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE


def subscription(*topics: str, version: int = 1, later_fields: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + later_fields


def consumers_of(*topics: str) -> tuple[Protocol, ...]:
    return (Protocol("range", subscription(*topics)),)


def delete(*topics: str, group_id: str = GROUP) -> OffsetDelete:
    return OffsetDelete(group_id, tuple((topic, (0,)) for topic in topics))


def remaining_offsets(simulation: CoordinatorSimulation) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, partition, _ in simulation.group().data.offsets]


def with_offsets(*topics: str, holds_appends: bool = False) -> CoordinatorSimulation:
    simulation = CoordinatorSimulation(holds_appends=holds_appends)
    for topic in topics:
        simulation.post(commit(5, topic=topic))
    return simulation


def test_offset_delete_is_answered_when_tombstones_are_durable() -> None:
    simulation = with_offsets("t", "u", holds_appends=True)
    simulation.complete_all_appends()
    delete_reply = simulation.post(delete("t", "never committed"))
    assert delete_reply.is_waiting
    assert remaining_offsets(simulation) == [("t", 0), ("u", 0)]
    simulation.complete_append()
    assert delete_reply.value == OffsetsDeleted(NONE, (NONE, NONE))
    assert remaining_offsets(simulation) == [("u", 0)]
    tombstones = [
        record for _, record in simulation.log.durable if isinstance(record, OffsetRecord) and not record.value
    ]
    assert tombstones == [OffsetRecord(GROUP, "t", 0, None)], "a partition without an offset needs no tombstone"


def test_offset_delete_returns_error_if_append_fails() -> None:
    simulation = with_offsets("t", holds_appends=True)
    simulation.complete_all_appends()
    delete_reply = simulation.post(delete("t"))
    simulation.fail()
    assert delete_reply.value == OffsetsDeleted(ErrorCode.NOT_COORDINATOR)
    assert remaining_offsets(simulation) == [("t", 0)]


def test_offset_delete_deletes_commit_in_flight() -> None:
    """The commit was sent before the deletion, so its offset is deleted too."""
    simulation = CoordinatorSimulation(holds_appends=True)
    commit_reply, delete_reply = simulation.post(commit(5)), simulation.post(delete("t"))
    simulation.complete_all_appends()
    assert commit_reply.value.errors == delete_reply.value.topics == (NONE,)
    assert remaining_offsets(simulation) == []


def test_offset_delete_for_unknown_group_returns_69() -> None:
    assert CoordinatorSimulation().post(delete("t")).value == OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)


def test_offset_delete_for_subscribed_topic_returns_86() -> None:
    """During a rebalance the last generation counts. Before the first generation all topics count as subscribed."""
    simulation = with_offsets("t", "u")
    join_reply = simulation.post(join(protocols=consumers_of("t")))
    assert simulation.post(delete("t", "u")).value.topics == (SUBSCRIBED, SUBSCRIBED), (
        "the subscriptions are not known yet"
    )
    simulation.advance(3000)
    assert simulation.post(delete("t", "u")).value.topics == (SUBSCRIBED, NONE)
    simulation.post(join(protocols=consumers_of("u")))
    assert simulation.classic_group().state == "PreparingRebalance"
    assert simulation.post(delete("t", "u")).value.topics == (SUBSCRIBED, NONE)
    assert remaining_offsets(simulation) == [("t", 0)]
    simulation.post(leave(join_reply.value.member_id))


def test_offset_delete_in_empty_group_deletes_every_topic() -> None:
    simulation = with_offsets("t")
    [member] = simulation.form_group({"protocols": consumers_of("t")})
    assert simulation.post(delete("t")).value.topics == (SUBSCRIBED,)
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert restarted.post(delete("t")).value.topics == (SUBSCRIBED,), "the subscriptions are restored after a restart"
    simulation.post(leave(member.member_id))
    assert simulation.post(delete("t")).value.topics == (NONE,)


def test_offset_delete_with_unknown_subscriptions_returns_86() -> None:
    simulation = with_offsets("t")
    simulation.form_group({"protocols": (Protocol("range", b"nonsense"),)})
    assert simulation.post(delete("t")).value.topics == (SUBSCRIBED,)


def test_offset_delete_in_group_of_other_protocol_type_returns_68() -> None:
    simulation = with_offsets("t")
    [member] = simulation.form_group({"protocol_type": "connect"})
    assert simulation.post(delete("t")).value == OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
    simulation.post(leave(member.member_id))
    assert simulation.post(delete("t")).value.topics == (NONE,)


def test_offset_delete_during_group_deletion_waits_for_it() -> None:
    simulation = with_offsets("t", holds_appends=True)
    simulation.complete_all_appends()
    group_reply, offsets_reply = simulation.post(DeleteGroup(GROUP)), simulation.post(delete("t"))
    simulation.complete_all_appends()
    assert (group_reply.value, offsets_reply.value) == (NONE, OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND))


def test_group_exists_after_its_last_offset_is_deleted() -> None:
    simulation = with_offsets("t")
    simulation.post(delete("t"))
    simulation.advance(300_000)
    assert GROUP in simulation.directory.passivated
    assert simulation.post(fetch()).value.topics[0][1][0].offset == -1


# Subscriptions -------------------------------------------------------------------------------------------------------


@given(topics=st.lists(st.lists(st.text(max_size=9))), later_fields=st.binary(max_size=9), version=st.integers(0, 9))
def test_subscribed_topics_parses_every_version(topics: list[list[str]], later_fields: bytes, version: int) -> None:
    """Later versions append fields."""
    subscriptions = [subscription(*names, version=version, later_fields=b"\0\0\0\0" + later_fields) for names in topics]
    assert subscribed_topics(subscriptions) == frozenset({topic for names in topics for topic in names})


@given(st.binary(max_size=40))
def test_subscribed_topics_of_invalid_bytes_is_none(data: bytes) -> None:
    """Random bytes yield topics or None, never an exception."""
    parsed_topics = subscribed_topics([data])
    assert parsed_topics is None or all(isinstance(topic, str) for topic in parsed_topics)


@pytest.mark.parametrize("size", range(len(subscription("one", "two"))))
def test_subscribed_topics_of_truncated_bytes_is_none(size: int) -> None:
    assert subscribed_topics([subscription("one", "two")[:size]]) is None


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_subscription_with_impossible_count_is_invalid(count: int) -> None:
    assert subscribed_topics([struct.pack(">hi", 1, count) + bytes(40)]) is None


# Over TCP ------------------------------------------------------------------------------------------------------------


@async_test
async def test_offset_delete_over_tcp(tmp_path: Path) -> None:
    """Unknown topics and partitions get their own errors; deleted offsets stay deleted after a restart."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        topics = [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
        topics += [{"name": "nowhere", "partitions": [{"partition_index": 0}]}]
        response = await client.ask("offset_delete", group_id="g", topics=topics)
        codes = {
            (topic["name"], partition["partition_index"]): partition["error_code"]
            for topic in response["topics"]
            for partition in topic["partitions"]
        }
        unknown_partition = "UNKNOWN_TOPIC_OR_PARTITION"
        assert (response["error_code"], codes) == (
            "NONE",
            {("t", 7): unknown_partition, ("nowhere", 0): unknown_partition, ("t", 0): "NONE"},
        )
        await harness.restart()
        client = await harness.connect()
        assert await offsets(client, "g") == {}
        assert (await client.ask("offset_delete", group_id="g", topics=[]))["error_code"] == "GROUP_ID_NOT_FOUND"
        assert (await client.ask("offset_delete", group_id="", topics=[]))["error_code"] == "INVALID_GROUP_ID"


@async_test
async def test_offset_delete_over_tcp_for_subscribed_topic_returns_86(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        protocols = [{"name": "range", "metadata": subscription("t")}]
        member = await join_and_sync(client, "g", protocols=protocols)
        await client.ask("offset_commit", 8, **commit_values("g", member))
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        [topic] = (await client.ask("offset_delete", group_id="g", topics=topics))["topics"]
        assert topic["partitions"] == [{"partition_index": 0, "error_code": "GROUP_SUBSCRIBED_TO_TOPIC"}]
        assert await offsets(client, "g") == {("t", 0): 42}
