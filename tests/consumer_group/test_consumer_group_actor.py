"""A consumer group and its actor: joining, appends in flight and failed ones, deadlines, restarts, offsets, its end.

The rules themselves are tested in test_heartbeats.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import commit, fetch, join, leave
from consumer_group.actor_world import GROUP, ActorWorld, two_members

from callboard.actors.consumer_group.messages import ConsumerHeartbeatReply
from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    DeleteGroup,
    DescribeGroup,
    LeaveGroup,
    LeavingMember,
    Shutdown,
)
from callboard.actors.records import GroupType

CONSUMER = GroupType("consumer")


@pytest.fixture
def world() -> ActorWorld:
    return ActorWorld()


class CountedId(str):
    """A member id that counts how often ids are compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return str.__eq__(self, other)


def state_of(world: ActorWorld) -> str:
    [listed] = world.listed()
    assert (listed.group_type, listed.protocol_type) == (CONSUMER, "consumer")
    return listed.state


# Heartbeats ----------------------------------------------------------------------------------------------------------


def test_join_is_answered_when_it_is_durable() -> None:
    world = ActorWorld(holds_appends=True)
    reply = world.join("a")
    assert (reply.is_waiting, state_of(world)) == (True, "Empty")
    world.complete_append()
    assert world.told(reply) == (2, "t0 t1 t2")
    assert world.key_types() == [5, 3, 7, 6, 8]
    assert state_of(world) == "Stable"
    assert sum(world.directory.rebalances.started.values()) == 1


def test_heartbeat_that_changes_nothing_writes_nothing(world: ActorWorld) -> None:
    world.join("a")
    rounds, deadlines = len(world.log.rounds), world.deadlines
    reply = world.beat("a", 2)
    assert reply.value == ConsumerHeartbeatReply(member_id="a", member_epoch=2, heartbeat_interval_ms=5_000)
    assert (len(world.log.rounds), world.deadlines) == (rounds, deadlines)


def test_partitions_move_to_a_second_member(world: ActorWorld) -> None:
    world.join("a")
    assert world.told(world.join("b")) == (3, "")
    assert state_of(world) == "Reconciling"
    epoch, kept = world.told(world.beat("a", 2, owned="t0 t1 t2"))
    assert (epoch, len(str(kept).split())) == (2, 2)
    assert world.told(world.beat("a", 2, owned=str(kept))) == (3, None)
    _, given = world.told(world.beat("b", 3, owned=""))
    assert sorted(f"{kept} {given}".split()) == ["t0", "t1", "t2"]
    assert state_of(world) == "Stable"


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "ServerAssignor best is not supported."),
        ({"epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_refused_heartbeats_create_no_group(
    world: ActorWorld, fields: dict[str, Any], code: ErrorCode, message: str
) -> None:
    given: dict[str, Any] = {
        "member_id": "a",
        "epoch": 0,
        "rebalance_timeout_ms": 1,
        "topics": ("t",),
        "owned": "",
    } | fields
    value = world.beat(given.pop("member_id"), given.pop("epoch"), **given).value
    assert (value.error, value.message[: len(message)]) == (code, message)
    assert world.listed() == ()


def test_unknown_members_and_invalid_requests_are_refused_by_the_group(world: ActorWorld) -> None:
    world.join("a")
    value = world.beat("b", 2).value
    assert (value.error, value.message) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group g.")
    assert world.beat("a", 0).value.error is ErrorCode.INVALID_REQUEST
    assert world.beat("a", 7).value.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_coordinator_makes_the_member_id_in_version_0(world: ActorWorld) -> None:
    made = world.join("", needs_member_id=False).value.member_id
    assert (len(made), made.isascii(), made.startswith("-")) == (22, True, False)
    assert world.told(world.beat(made, 2)) == (2, None)


def test_group_may_have_its_own_limit_of_members(world: ActorWorld) -> None:
    world.settings.group_consumer_max_size = 1
    world.join("a")
    assert world.join("b").value.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.told(world.join("a")) == (2, "t0 t1 t2")


def test_new_members_are_refused_at_the_limit_of_memory(world: ActorWorld) -> None:
    world.join("a")
    world.settings.memory_limit_bytes = 1
    assert world.join("b").value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.told(world.join("a")) == (2, "t0 t1 t2")


def test_assignment_interval_delays_the_second_member(world: ActorWorld) -> None:
    world.settings.group_consumer_assignment_interval_ms = 1_000
    world.join("a")
    assert world.told(world.join("b")) == (2, "")
    assert state_of(world) == "Assigning"
    rounds = len(world.log.rounds)
    world.advance(999)
    assert world.told(world.beat("b", 2)) == (2, None)
    assert len(world.log.rounds) == rounds
    world.advance(1)
    assert world.told(world.beat("b", 2)) == (3, None)
    assert state_of(world) == "Reconciling"


def test_topic_that_grows_is_assigned_at_the_next_heartbeat(world: ActorWorld) -> None:
    world.join("a")
    world.topics_view.counts["t"] = 4
    world.topics_view.version += 1
    assert world.told(world.beat("a", 2, owned="t0 t1 t2")) == (3, "t0 t1 t2 t3")


def test_change_of_a_topic_that_nobody_reads_changes_nothing(world: ActorWorld) -> None:
    world.join("a")
    world.topics_view.counts["jobs"] = 9
    world.topics_view.version += 1
    assert world.told(world.beat("a", 2)) == (2, None)


# Appends in flight ---------------------------------------------------------------------------------------------------


def test_requests_wait_for_the_entry_in_flight_and_share_the_next_one(world: ActorWorld) -> None:
    world.join("a")
    world.holds_appends = True
    first, second, third, beat = world.join("b"), world.join("c"), world.join("d"), world.beat("a", 2)
    assert all(reply.is_waiting for reply in (first, second, third, beat))
    world.complete_append()
    assert (world.told(first)[0], second.is_waiting, beat.is_waiting) == (3, True, True)
    rounds = len(world.log.rounds)
    world.complete_append()
    assert len(world.log.rounds) == rounds
    assert [world.told(reply)[0] for reply in (second, third, beat)] == [4, 5, 2]


def test_failed_append_is_the_reply_and_leaves_nothing(world: ActorWorld) -> None:
    world.holds_appends = True
    first, second = world.join("a"), world.join("b")
    world.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    world.complete_append()
    assert first.value == ConsumerHeartbeatReply(ErrorCode.NOT_COORDINATOR)
    assert world.told(second) == (2, "t0 t1 t2"), "b does not see a, which has not joined"
    world.holds_appends = False
    assert world.assigned() == {"b": "t0 t1 t2"}
    assert set(world.consumer_group.timers.sessions) == {"b"}


def test_failed_leave_keeps_the_member_and_its_session(world: ActorWorld) -> None:
    world.join("a")
    world.holds_appends = True
    reply = world.beat("a", -1)
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NON_EMPTY_GROUP
    world.fail()
    assert reply.value.error is ErrorCode.NOT_COORDINATOR
    world.holds_appends = False
    assert world.told(world.beat("a", 2)) == (2, None)
    world.advance(45_000)
    assert world.assigned() == {}


def test_joins_that_are_too_large_together_are_stored_one_by_one(world: ActorWorld) -> None:
    world.join("a")
    world.holds_appends = True
    replies = [world.join(member_id) for member_id in "bcd"]
    world.complete_append()
    world.fail(ErrorCode.MESSAGE_TOO_LARGE)
    world.complete_all_appends()
    assert [world.told(reply)[0] for reply in replies] == [3, 4, 5]
    assert world.consumer_group.soft.phase is world.consumer_group.durable.phase  # type: ignore[union-attr]


def test_group_is_not_deleted_while_a_join_waits(world: ActorWorld) -> None:
    world.join("a")
    world.holds_appends = True
    left, joined = world.beat("a", -1), world.join("b")
    deleted = world.post(DeleteGroup(GROUP))
    world.complete_all_appends()
    assert (left.value.member_epoch, world.told(joined)[0]) == (-1, 4)
    assert deleted.value is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("fails", [False, True])
def test_bug_while_an_entry_is_in_flight_loses_no_reply(
    world: ActorWorld, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    world.join("a")
    world.holds_appends = True
    first, second = world.join("b"), world.join("c")
    monkeypatch.setattr(type(world.consumer_group), "appended", None)
    monkeypatch.setattr(type(world.consumer_group), "append_failed", None)
    if fails:
        world.fail()
    else:
        world.complete_append()
    monkeypatch.undo()
    expected = ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE
    assert (first.value.error, second.value.error) == (expected, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.holds_appends = False
    assert set(world.assigned()) == ({"a"} if fails else {"a", "b"})
    assert world.told(world.beat("a", 2)) is not None


# Deadlines -----------------------------------------------------------------------------------------------------------


def test_session_ends_without_heartbeats() -> None:
    world = two_members()
    world.advance(30_000)
    world.beat("a", 3)
    world.advance(15_000)
    assert list(world.assigned()) == ["a"]
    assert world.directory.counters.expired_sessions == 1
    assert world.told(world.beat("a", 3)) == (4, "t0 t1 t2")


def test_heartbeat_that_waits_with_the_end_of_the_session_renews_it(world: ActorWorld) -> None:
    world.join("a")
    world.advance(44_000)
    world.holds_appends = True
    joined, beat = world.join("b"), world.beat("a", 2)
    world.advance(1_500)
    world.complete_all_appends()
    assert (world.told(joined)[0], world.told(beat)[0]) == (3, 2)
    assert set(world.consumer_group.soft.members) == {"a", "b"}


def test_member_that_does_not_give_back_is_removed(world: ActorWorld) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    for _ in range(3):
        world.beat("a", 2, owned="t0 t1 t2")
        world.advance(3_000)
    assert set(world.assigned()) == {"a", "b"}
    world.beat("a", 2, owned="t0 t1 t2")
    world.advance(1_000)
    assert set(world.assigned()) == {"b"}
    assert world.beat("a", 2).value.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.told(world.beat("b", 3, owned="")) == (4, "t0 t1 t2")


def test_member_that_has_given_back_stays(world: ActorWorld) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    _, kept = world.told(world.beat("a", 2, owned="t0 t1 t2"))
    world.beat("a", 2, owned=str(kept))
    world.advance(20_000)
    assert set(world.assigned()) == {"a", "b"}


def test_removal_that_cannot_be_stored_is_tried_again(world: ActorWorld) -> None:
    world.join("a")
    world.holds_appends = True
    world.advance(45_000)
    world.fail()
    assert set(world.consumer_group.soft.members) == {"a"}
    world.advance(500)
    world.complete_all_appends()
    assert set(world.consumer_group.soft.members) == set()


def test_mass_expiry_removes_all_members(world: ActorWorld) -> None:
    member_ids = [f"m{number}" for number in range(200)]
    for member_id in member_ids:
        world.join(member_id)
    world.advance(45_000)
    assert (state_of(world), world.described().members) == ("Empty", ())
    assert world.directory.counters.expired_sessions == len(member_ids)


# Static members and LeaveGroup ---------------------------------------------------------------------------------------


def test_static_member_returns_with_its_partitions() -> None:
    world = ActorWorld()
    world.join("a", instance_id="i")
    world.join("b")
    world.settle("a", "b")
    before = world.assigned()["a"]
    assert world.beat("a", -2, instance_id="i").value.member_epoch == -2
    assert world.join("a2", instance_id="other").value.error is ErrorCode.NONE
    world.beat("a2", -1, instance_id="other")
    epoch = world.consumer_group.soft.epoch.epoch
    assert world.told(world.join("a3", instance_id="i"))[1] == before
    assert world.consumer_group.soft.epoch.epoch == epoch, "no rebalance"
    world.advance(44_000)
    world.settle("a3", "b", rounds=1)
    world.advance(1_500)
    assert set(world.assigned()) == {"a3", "b"}, "the session of the old member does not count"


def test_static_member_that_does_not_return_is_removed(world: ActorWorld) -> None:
    world.join("a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    assert state_of(world) == "Reconciling"
    world.advance(45_000)
    assert state_of(world) == "Empty"


def test_admin_removes_members() -> None:
    world = ActorWorld()
    world.join("a", instance_id="i")
    world.join("b")
    members = (
        LeavingMember("", "i", "stuck"),
        LeavingMember("b", None),
        LeavingMember("x", None),
        LeavingMember("x", "i"),
    )
    left = world.post(LeaveGroup(GROUP, members)).value
    assert [(member.member_id, member.group_instance_id, member.error) for member in left.members] == [
        ("", "i", ErrorCode.NONE),
        ("b", None, ErrorCode.NONE),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
    ]
    assert world.key_types() == [-8, -7, -5, -8, -7, -5, 3]
    assert world.beat("b", 3).value.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.deadlines == 1, "only the one that passivates the group"


def test_leave_of_nobody_writes_nothing(world: ActorWorld) -> None:
    world.join("a")
    rounds = len(world.log.rounds)
    [left] = world.post(leave("x", group_id=GROUP)).value.members
    assert (left.error, len(world.log.rounds)) == (ErrorCode.UNKNOWN_MEMBER_ID, rounds)


# Restart, passivation, deletion --------------------------------------------------------------------------------------


def test_restart_restores_members_partitions_and_sessions() -> None:
    world = two_members()
    before = world.described()
    restarted = world.restarted()
    assert restarted.described() == before
    assert restarted.told(restarted.beat("a", 3)) == (3, None)
    restarted.advance(45_000)
    assert restarted.assigned() == {}


def test_restart_restores_the_time_to_give_back_partitions(world: ActorWorld) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.beat("a", 2, owned="t0 t1 t2")
    restarted = world.restarted()
    restarted.advance(10_000)
    assert set(restarted.assigned()) == {"b"}


def test_empty_group_is_passivated_and_its_epoch_goes_on(world: ActorWorld) -> None:
    world.join("a")
    world.beat("a", -1)
    world.advance(180_000)
    assert list(world.directory.passivated) == [GROUP]
    assert state_of(world) == "Empty"
    assert world.described().epoch == 3
    assert world.told(world.join("a")) == (4, "t0 t1 t2")


def test_empty_group_is_deleted(world: ActorWorld) -> None:
    world.join("a")
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NON_EMPTY_GROUP
    world.beat("a", -1)
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert world.key_types() == [-6, -3]
    assert world.log.groups().get(GROUP, GroupData()).is_empty()
    assert world.listed() == ()
    assert world.described().message == "Group g not found."
    assert world.told(world.join("a")) == (2, "t0 t1 t2")


def test_requests_after_shutdown_are_refused() -> None:
    world = two_members()
    world.holds_appends = True
    first, second = world.join("c"), world.beat("a", 3)
    world.tell(GROUP, Shutdown())
    assert second.value.error is ErrorCode.NOT_COORDINATOR
    world.complete_all_appends()
    assert first.value.error is ErrorCode.NONE
    assert world.beat("a", 3).value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Change of kind ------------------------------------------------------------------------------------------------------


def test_group_with_only_offsets_becomes_a_consumer_group(world: ActorWorld) -> None:
    world.post(commit(5, group_id=GROUP))
    assert world.told(world.join("a")) == (2, "t0 t1 t2")
    assert world.key_types() == [-2, 5, 3, 7, 6, 8]
    assert state_of(world) == "Stable"
    assert world.post(fetch(group_id=GROUP)).value.topics[0][1][0].offset == 5
    assert state_of(world.restarted()) == "Stable"


def test_empty_consumer_group_becomes_a_classic_group(world: ActorWorld) -> None:
    world.join("a")
    world.beat("a", -1)
    assert world.post(join(group_id=GROUP)).is_waiting
    assert world.key_types() == [-6, -3, 2]
    world.advance(3_000)
    [listed] = world.listed()
    assert (listed.group_type, listed.state) == ("classic", "CompletingRebalance")
    value = world.join("a").value
    assert (value.error, value.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Cannot upgrade classic group g to consumer group because the embedded consumer protocol is malformed.",
    )
    assert world.beat("a", -3).value.error is ErrorCode.INVALID_REQUEST


def test_passivated_classic_group_becomes_a_consumer_group(world: ActorWorld) -> None:
    world.post(commit(5, group_id=GROUP))
    world.advance(180_000)
    assert list(world.directory.passivated) == [GROUP]
    assert world.told(world.join("a")) == (2, "t0 t1 t2")


def test_classic_members_are_refused_by_a_group_that_may_not_change(world: ActorWorld) -> None:
    world.settings.group_consumer_migration_policy = "disabled"
    world.join("a")
    assert world.post(join(group_id=GROUP)).value.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.post(DescribeGroup(GROUP)).value.message == "Group g is not a classic group."


def test_classic_group_is_no_consumer_group(world: ActorWorld) -> None:
    world.post(commit(5, group_id=GROUP))
    assert world.beat("a", 3).value.message == "Group g is not a consumer group."
    described = world.described()
    assert (described.error, described.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


def test_members_that_leave_together_are_not_compared_with_each_other(world: ActorWorld) -> None:
    """An admin may remove thousands."""
    member_ids = [f"m{number}" for number in range(100)]
    for member_id in member_ids:
        world.join(member_id)
    CountedId.comparisons = 0
    assert not world.post(leave(*map(CountedId, member_ids), group_id=GROUP)).value.error
    assert state_of(world) == "Empty"
    assert CountedId.comparisons < 30 * len(member_ids)
