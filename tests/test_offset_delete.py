"""OffsetDelete: single offsets go, durably, unless somebody is about to need them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from harness import async_test, commit_values, join_and_sync, offsets, running_node
from hypothesis import given
from hypothesis import strategies as st
from stage.requests import GROUP, commit, fetch, join, leave
from stage.world import World

from callboard.actors.errors import ErrorCode
from callboard.actors.group.subscription import subscribed_topics
from callboard.actors.messages import DeleteGroup, OffsetDelete, OffsetsDeleted, Protocol
from callboard.actors.records import OffsetRecord

SUBSCRIBED, NONE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE


def subscription(*topics: str, version: int = 1, behind: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + behind


def consumers_of(*topics: str) -> tuple[Protocol, ...]:
    return (Protocol("range", subscription(*topics)),)


def delete(*topics: str, group_id: str = GROUP) -> OffsetDelete:
    return OffsetDelete(group_id, tuple((topic, (0,)) for topic in topics))


def left(world: World) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, partition, _ in world.group().data.offsets]


def with_offsets(*topics: str, holds_back: bool = False) -> World:
    world = World(holds_back=holds_back)
    for topic in topics:
        world.post(commit(5, topic=topic))
    return world


def test_the_answer_comes_when_the_tombstones_are_durable() -> None:
    world = with_offsets("t", "u", holds_back=True)
    world.keep_all()
    deleting = world.post(delete("t", "never committed"))
    assert deleting.is_waiting
    assert left(world) == [("t", 0), ("u", 0)]
    world.keep()
    assert deleting.value == OffsetsDeleted(NONE, (NONE, NONE))
    assert left(world) == [("u", 0)]
    tombstones = [record for _, record in world.log.durable if isinstance(record, OffsetRecord) and not record.value]
    assert tombstones == [OffsetRecord(GROUP, "t", 0, None)], "what was never committed needs none"


def test_a_deletion_that_cannot_be_kept_is_refused() -> None:
    world = with_offsets("t", holds_back=True)
    world.keep_all()
    deleting = world.post(delete("t"))
    world.fail()
    assert deleting.value == OffsetsDeleted(ErrorCode.NOT_COORDINATOR)
    assert left(world) == [("t", 0)]


def test_a_commit_on_its_way_is_deleted_too() -> None:
    """It was sent before; so it must not outlive the deletion, which was sent after it."""
    world = World(holds_back=True)
    commit_values, deleting = world.post(commit(5)), world.post(delete("t"))
    world.keep_all()
    assert commit_values.value.errors == deleting.value.topics == (NONE,)
    assert left(world) == []


def test_a_group_that_is_not_there() -> None:
    assert World().post(delete("t")).value == OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)


def test_what_members_subscribe_to_stays() -> None:
    """Also while they rebalance: what counts is the last generation; a first one may be of anything."""
    world = with_offsets("t", "u")
    first = world.post(join(protocols=consumers_of("t")))
    assert world.post(delete("t", "u")).value.topics == (SUBSCRIBED, SUBSCRIBED), "nobody knows yet"
    world.advance(3000)
    assert world.post(delete("t", "u")).value.topics == (SUBSCRIBED, NONE)
    world.post(join(protocols=consumers_of("u")))
    assert world.group()._group.state == "PreparingRebalance"
    assert world.post(delete("t", "u")).value.topics == (SUBSCRIBED, NONE)
    assert left(world) == [("t", 0)]
    world.post(leave(first.value.member_id))


def test_an_empty_group_subscribes_to_nothing() -> None:
    world = with_offsets("t")
    [member] = world.form({"protocols": consumers_of("t")})
    assert world.post(delete("t")).value.topics == (SUBSCRIBED,)
    again = World(world.log.groups())
    assert again.post(delete("t")).value.topics == (SUBSCRIBED,), "after a restart too"
    world.post(leave(member.member_id))
    assert world.post(delete("t")).value.topics == (NONE,)


def test_consumers_whose_subscription_cannot_be_read_may_subscribe_to_anything() -> None:
    world = with_offsets("t")
    world.form({"protocols": (Protocol("range", b"nonsense"),)})
    assert world.post(delete("t")).value.topics == (SUBSCRIBED,)


def test_members_that_are_no_consumers_keep_everything() -> None:
    world = with_offsets("t")
    [member] = world.form({"protocol_type": "connect"})
    assert world.post(delete("t")).value == OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
    world.post(leave(member.member_id))
    assert world.post(delete("t")).value.topics == (NONE,)


def test_a_deletion_meets_the_group_as_it_is_after_the_groups_own() -> None:
    world = with_offsets("t", holds_back=True)
    world.keep_all()
    ending, deleting = world.post(DeleteGroup(GROUP)), world.post(delete("t"))
    world.keep_all()
    assert (ending.value, deleting.value) == (NONE, OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND))


def test_a_group_that_lost_its_last_offset_is_still_there() -> None:
    world = with_offsets("t")
    world.post(delete("t"))
    world.advance(300_000)
    assert GROUP in world.directory.asleep
    assert world.post(fetch()).value.topics[0][1][0].offset == -1


# Subscriptions -------------------------------------------------------------------------------------------------------


@given(topics=st.lists(st.lists(st.text(max_size=9))), behind=st.binary(max_size=9), version=st.integers(0, 9))
def test_every_versions_topics_are_read(topics: list[list[str]], behind: bytes, version: int) -> None:
    """What later versions add stands behind."""
    sent = [subscription(*one, version=version, behind=b"\0\0\0\0" + behind) for one in topics]
    assert subscribed_topics(sent) == frozenset({topic for one in topics for topic in one})


@given(st.binary(max_size=40))
def test_nonsense_is_noticed(data: bytes) -> None:
    """Whatever comes, it is topics or nothing, and no exception."""
    found = subscribed_topics([data])
    assert found is None or all(isinstance(topic, str) for topic in found)


@pytest.mark.parametrize("size", range(len(subscription("one", "two"))))
def test_a_subscription_that_is_cut_off_is_none(size: int) -> None:
    assert subscribed_topics([subscription("one", "two")[:size]]) is None


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_a_count_that_cannot_be_is_noticed(count: int) -> None:
    assert subscribed_topics([struct.pack(">hi", 1, count) + bytes(40)]) is None


# Through the front door ----------------------------------------------------------------------------------------------


@async_test
async def test_through_the_front_door(tmp_path: Path) -> None:
    """Unknown topics and partitions are refused first, each by itself; what goes is gone after a restart."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        wanted = [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
        wanted += [{"name": "nowhere", "partitions": [{"partition_index": 0}]}]
        answer = await client.ask("offset_delete", group_id="g", topics=wanted)
        codes = {(t["name"], p["partition_index"]): p["error_code"] for t in answer["topics"] for p in t["partitions"]}
        unknown = "UNKNOWN_TOPIC_OR_PARTITION"
        assert (answer["error_code"], codes) == (
            "NONE",
            {("t", 7): unknown, ("nowhere", 0): unknown, ("t", 0): "NONE"},
        )
        await harness.restart()
        client = await harness.connect()
        assert await offsets(client, "g") == {}
        assert (await client.ask("offset_delete", group_id="g", topics=[]))["error_code"] == "GROUP_ID_NOT_FOUND"
        assert (await client.ask("offset_delete", group_id="", topics=[]))["error_code"] == "INVALID_GROUP_ID"


@async_test
async def test_a_members_topic_is_kept(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        offered = [{"name": "range", "metadata": subscription("t")}]
        member = await join_and_sync(client, "g", protocols=offered)
        await client.ask("offset_commit", 8, **commit_values("g", member))
        wanted = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        [topic] = (await client.ask("offset_delete", group_id="g", topics=wanted))["topics"]
        assert topic["partitions"] == [{"partition_index": 0, "error_code": "GROUP_SUBSCRIBED_TO_TOPIC"}]
        assert await offsets(client, "g") == {("t", 0): 42}
