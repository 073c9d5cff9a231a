"""ResetOffsets in a group of the consumer protocol: the tombstones of its members and the offsets are one entry."""

from __future__ import annotations

import pytest
from actor_system.requests import fetch
from consumer_group.actor_world import GROUP, ActorWorld

from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import Kind, Reason
from callboard.actors.group.reset_messages import OffsetsReset, ResetOffset, ResetOffsets
from callboard.actors.messages import DescribeEvents
from callboard.actors.records import OffsetRecord

RESET = ResetOffsets(GROUP, (ResetOffset("t", 0, 4),), "skip 7 orders")
FAILURES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


@pytest.fixture
def world() -> ActorWorld:
    world = ActorWorld()
    for member_id in ("a", "b"):
        world.join(member_id, "t")
    return world


def offset_of(world: ActorWorld) -> int:
    offset: int = world.post(fetch(group_id=GROUP)).value.topics[0][1][0].offset
    return offset


def test_members_and_offsets_change_in_one_entry(world: ActorWorld) -> None:
    world.holds_appends = True
    reply = world.post(RESET)
    [entry] = world.log.in_flight
    assert [getattr(record, "key_type", 1) for record in entry.records] == [8, 7, 5, 8, 7, 5, 3, 1]
    assert isinstance(entry.records[-1], OffsetRecord)
    assert reply.is_waiting
    world.complete_append()
    assert reply.value == OffsetsReset(ErrorCode.NONE, ("a", "b"), (ResetOffset("t", 0, None),))
    assert (world.described().state, offset_of(world)) == ("Empty", 4)
    assert world.beat("a", 2).value.error is ErrorCode.UNKNOWN_MEMBER_ID
    events = world.post(DescribeEvents(GROUP)).value.events
    removals = [event for event in events if event.kind is Kind.MEMBER_REMOVED]
    assert [(event.reason, event.client_reason) for event in removals] == [(Reason.RESET, "skip 7 orders")] * 2


def test_reset_waits_for_the_decision_in_flight(world: ActorWorld) -> None:
    world.holds_appends = True
    joined, reply = world.join("c", "t"), world.post(RESET)
    assert joined.is_waiting and reply.is_waiting
    world.complete_all_appends()
    assert joined.value.error is ErrorCode.NONE
    assert set(reply.value.removed) == {"a", "b", "c"}
    assert world.described().members == ()


def test_failed_append_changes_nothing(world: ActorWorld) -> None:
    for error, told in FAILURES.items():
        world.holds_appends = True
        reply = world.post(RESET)
        world.fail(error)
        assert reply.value == OffsetsReset(told)
    world.holds_appends = False
    assert {member.member_id for member in world.described().members} == {"a", "b"}
    assert offset_of(world) == -1


def test_group_without_members_gets_its_offsets(world: ActorWorld) -> None:
    world.post(RESET)
    again = world.post(RESET._replace(offsets=(ResetOffset("t", 0, None),)))
    assert again.value == OffsetsReset(ErrorCode.NONE, (), (ResetOffset("t", 0, 4),))
    assert offset_of(world) == -1
