"""ResetOffsets in a group of the consumer protocol: the tombstones of its members and the offsets are one entry."""

from __future__ import annotations

import pytest
from actor_system.requests import commit, fetch
from actor_system.transactions import txn_commit
from consumer_group.actor_world import GROUP, ActorWorld
from consumer_group.migration_world import mixed

from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import Kind, Reason
from callboard.actors.group.reset_messages import OffsetsReset, ResetOffset, ResetOffsets
from callboard.actors.group.resets import GUARD_MIN_MS
from callboard.actors.messages import DescribeEvents, ExplainGroup
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
    assert reply.value == OffsetsReset(
        ErrorCode.NONE, ("a", "b"), (ResetOffset("t", 0, None),), world.clock.wall_ms() + GUARD_MIN_MS
    )
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
    until_ms = world.clock.wall_ms() + GUARD_MIN_MS
    assert again.value == OffsetsReset(ErrorCode.NONE, (), (ResetOffset("t", 0, 4),), until_ms)
    assert offset_of(world) == -1


# The guard -----------------------------------------------------------------------------------------------------------


def committed(world: ActorWorld, offset: int, member_id: str = "", epoch: int = -1) -> ErrorCode:
    sent = commit(offset, group_id=GROUP, member_id=member_id, generation_id=epoch)._replace(
        supports_group_id_not_found=True
    )
    error: ErrorCode
    [error] = world.post(sent).value.errors
    return error


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("session_ms", "length_ms"), [(45_000, GUARD_MIN_MS), (90_000, 90_000)])
def test_commits_without_an_epoch_to_its_partitions_are_refused_for_a_while(
    world: ActorWorld, restarts: bool, session_ms: int, length_ms: int
) -> None:
    world.settings.group_consumer_session_timeout_ms = session_ms
    world.post(RESET)
    if restarts:
        now_ms = world.clock.now_ms
        world = world.restarted()
        world.clock.now_ms = now_ms
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(world, 9, "a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert offset_of(world) == 4
    explained = world.post(ExplainGroup(GROUP)).value.now
    assert explained.guarded_until_ms == world.clock.wall_ms() + length_ms
    world.advance(length_ms - 1)
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(1)
    assert committed(world, 9) is ErrorCode.NONE


def test_commits_of_the_epochs_before_are_refused_before_and_after_the_member_is_back(world: ActorWorld) -> None:
    world.settle("a", "b")
    epoch = world.consumer_group.soft.members["a"].current.member_epoch
    assert committed(world, 9, "a", epoch) is ErrorCode.NONE
    world.post(RESET)
    assert committed(world, 9, "a", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    new_epoch, _ = world.told(world.join("a", "t"))
    assert committed(world, 9, "a", epoch) is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert offset_of(world) == 4
    assert committed(world, 5, "a", new_epoch) is ErrorCode.NONE


def test_next_stable_epoch_ends_the_guard(world: ActorWorld) -> None:
    world.post(RESET)
    world.join("a", "t")
    assert world.described().state == "Stable"
    world.beat("a", -1)
    assert committed(world, 9) is ErrorCode.NONE


def test_commits_are_refused_while_the_reset_is_in_flight(world: ActorWorld) -> None:
    world.holds_appends = True
    reply = world.post(RESET)
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.post(txn_commit((1000, 0), 9, group_id=GROUP)).value.errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert reply.is_waiting
    world.complete_all_appends()
    assert offset_of(world) == 4


@pytest.mark.parametrize("next_kind", ["classic", "consumer"])
def test_group_of_both_kinds_is_guarded_for_the_longest_session_also_if_it_changes_its_kind(next_kind: str) -> None:
    world, classic = mixed(session_ms=90_000)
    reply = world.post(RESET)
    assert set(reply.value.removed) == {classic, "C"}
    assert reply.value.guarded_until_ms == world.clock.wall_ms() + 90_000
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    if next_kind == "classic":
        world.classic_join()
    else:
        world.join("C")
    assert world.kind_and_state[0] == next_kind
    assert committed(world, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert offset_of(world) == 4
