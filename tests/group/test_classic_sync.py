"""SyncGroup of a classic group: parked until the leader's assignment is durable, or until a rebalance begins."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Synced
from callboard.actors.records import MemberValue


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    """Appends complete only when the test completes them."""
    return SimulatedGroup(holds_appends=True)


def assignments_of(*members: Any) -> dict[str, bytes]:
    return {member.member_id: b"of " + member.member_id.encode() for member in members}


def test_sync_is_answered_when_assignment_is_durable(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    replies = [
        simulated_group.sync(follower.member_id, 1),
        simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower)),
    ]
    assert all(reply.is_waiting for reply in replies)
    assert simulated_group.state() is State.COMPLETING_REBALANCE
    assert all(member.assignment == b"" for member in simulated_group.group.members)
    simulated_group.complete_append()
    assignments = [b"of " + joined.member_id.encode() for joined in (follower, leader)]
    assert [reply.value for reply in replies] == [
        Synced(ErrorCode.NONE, "consumer", "range", assignment) for assignment in assignments
    ]
    assert simulated_group.state() is State.STABLE


def test_sync_of_follower_appends_no_record(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.sync(follower.member_id, 1, assignments_of(leader, follower))
    assert not simulated_group.pending_appends
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower))
    assert len(simulated_group.pending_appends) == 1


def test_assignment_record_contains_generation(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({"host": "/10.0.0.1", "instance": "i"}, {"session_ms": 7000})
    at_ms = simulated_group.clock.wall_ms()
    simulated_group.advance(5)
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower), instance="i")
    value = simulated_group.pending_appends[0].record.value
    assert value is not None
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    assert (value.leader, value.current_state_timestamp_ms) == (leader.member_id, at_ms)
    assignment = b"of " + leader.member_id.encode()
    leader_value = MemberValue(leader.member_id, "i", "m0", "/10.0.0.1", 60_000, 10_000, b"range v1", assignment)
    assert value.members[0] == leader_value
    assert value.members[1].session_timeout_ms == 7000


def test_sync_ignores_unknown_members_and_gives_others_empty_assignment(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.sync(leader.member_id, 1, {leader.member_id: b"all", "ghost": b"some"})
    simulated_group.complete_append()
    assert reply.value == Synced(ErrorCode.NONE, "consumer", "range", b"")
    assert [member.assignment for member in simulated_group.durable[-1].members] == [b"all", b""]


def test_sync_in_stable_group_is_answered_at_once(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower))
    simulated_group.complete_append()
    assert simulated_group.state() is State.STABLE
    reply = simulated_group.sync(follower.member_id, 1)
    assert reply.value.assignment == b"of " + follower.member_id.encode()
    second_reply = simulated_group.sync(leader.member_id, 1, {leader.member_id: b"other"})
    assert second_reply.value.assignment == b"of " + leader.member_id.encode(), (
        "a stable generation keeps its assignment"
    )
    assert not simulated_group.pending_appends


# Rebalances and failures ---------------------------------------------------------------------------------------------


def test_rebalance_answers_parked_sync_with_27(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    replies = [
        simulated_group.sync(follower.member_id, 1),
        simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower)),
    ]
    simulated_group.join(client="newcomer")
    assert [reply.value for reply in replies] == [Synced(ErrorCode.REBALANCE_IN_PROGRESS)] * 2
    simulated_group.complete_append()
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in simulated_group.group.members)


def test_append_of_old_generation_is_ignored(simulated_group: SimulatedGroup) -> None:
    """The record becomes durable in the next generation, which waits for its own record."""
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower))
    simulated_group.join(leader.member_id, protocols=offers("range", metadata=b"2"))
    simulated_group.join(follower.member_id)
    assert (simulated_group.state(), simulated_group.generation) == (State.COMPLETING_REBALANCE, 2)
    reply = simulated_group.sync(follower.member_id, 2)
    simulated_group.complete_append()
    assert reply.is_waiting
    assert simulated_group.state() is State.COMPLETING_REBALANCE
    simulated_group.sync(leader.member_id, 2, {follower.member_id: b"new"})
    simulated_group.complete_append()
    assert reply.value.assignment == b"new"


def test_failed_append_of_old_generation_is_ignored(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower))
    simulated_group.join(leader.member_id, protocols=offers("range", metadata=b"2"))
    simulated_group.join(follower.member_id)
    reply = simulated_group.sync(follower.member_id, 2)
    simulated_group.fail()
    assert reply.is_waiting
    assert simulated_group.state() is State.COMPLETING_REBALANCE


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_failed_assignment_append_answers_all_and_starts_rebalance(
    simulated_group: SimulatedGroup, error: ErrorCode
) -> None:
    leader, follower = simulated_group.join_all({}, {})
    replies = [
        simulated_group.sync(follower.member_id, 1),
        simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower)),
    ]
    simulated_group.fail(error)
    assert [reply.value for reply in replies] == [Synced(error)] * 2
    assert simulated_group.state() is State.PREPARING_REBALANCE
    join_replies = [simulated_group.join(member.member_id) for member in (leader, follower)]
    assert [reply.value.generation_id for reply in join_replies] == [2, 2]


def test_second_sync_of_leader_does_not_change_durable_assignment(simulated_group: SimulatedGroup) -> None:
    """The leader sent another assignment before the first was durable. Members must get what a restart would load."""
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.sync(leader.member_id, 1, {follower.member_id: b"first"})
    reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.sync(leader.member_id, 1, {follower.member_id: b"second"})
    while simulated_group.pending_appends:
        simulated_group.complete_append()
    durable_assignments = {member.member_id: member.assignment for member in simulated_group.durable[-1].members}
    assert reply.value.assignment == durable_assignments[follower.member_id]
    assert simulated_group.group.members.by_id[follower.member_id].assignment == durable_assignments[follower.member_id]


def test_second_sync_of_member_replaces_parked_sync(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    replaced_reply, last_reply = (
        simulated_group.sync(follower.member_id, 1),
        simulated_group.sync(follower.member_id, 1),
    )
    simulated_group.sync(leader.member_id, 1, assignments_of(leader, follower))
    simulated_group.complete_append()
    assert replaced_reply.is_waiting
    assert last_reply.error is ErrorCode.NONE


# Checks --------------------------------------------------------------------------------------------------------------


def test_sync_checks_identity_then_generation_then_protocol_then_state(simulated_group: SimulatedGroup) -> None:
    """Instance id, member id, generation, protocol; then the state."""
    leader, follower = simulated_group.join_all({"instance": "i"}, {})

    def error(member_id: str, generation: int, **options: Any) -> ErrorCode:
        return simulated_group.sync(member_id, generation, **options).error

    assert error("ghost", 9, instance="j", protocol_name="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error("ghost", 9, instance="i", protocol_name="x") is ErrorCode.FENCED_INSTANCE_ID
    assert error(follower.member_id, 9, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert error("ghost", 9, protocol_name="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(leader.member_id, 9, protocol_name="x") is ErrorCode.ILLEGAL_GENERATION
    assert error(leader.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert error(leader.member_id, 1, protocol_name="x") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(leader.member_id, 1, protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated_group.sync(leader.member_id, 1, protocol_type="consumer", protocol_name="range").is_waiting


def test_refused_sync_does_not_count_for_sync_deadline(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.join_all({}, {})
    simulated_group.sync(leader.member_id, 1, protocol_name="x")
    assert leader.member_id in simulated_group.group.sync_phase.pending


def test_sync_without_protocol_fields_skips_protocol_check(simulated_group: SimulatedGroup) -> None:
    leader = simulated_group.join_all({})[0]
    assert simulated_group.sync(leader.member_id, 1, protocol_type=None, protocol_name=None).is_waiting


def test_sync_in_preparing_rebalance_returns_27(simulated_group: SimulatedGroup) -> None:
    simulated_group.holds_appends = False
    leader, follower = simulated_group.form_group({}, {})
    simulated_group.join(leader.member_id)
    assert simulated_group.sync(follower.member_id, 1).value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)


def test_sync_in_empty_group_returns_25(simulated_group: SimulatedGroup) -> None:
    assert simulated_group.sync("ghost", 0).value == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


# The sync deadline ---------------------------------------------------------------------------------------------------


def test_member_without_sync_is_removed_at_sync_deadline(simulated_group: SimulatedGroup) -> None:
    """KAFKA-12890: a leader that dies after its JoinGroup must not block the others forever."""
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    _leader, follower = simulated_group.join_all(times, times)
    reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.advance(4999)
    assert reply.is_waiting
    simulated_group.advance(1)
    assert reply.value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    assert list(simulated_group.group.members.by_id) == [follower.member_id]
    assert simulated_group.join(follower.member_id).value.leader == follower.member_id


def test_static_member_without_sync_is_removed_at_sync_deadline(simulated_group: SimulatedGroup) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = simulated_group.join_all(times, {"instance": "i", **times})
    simulated_group.sync(leader.member_id, 1)
    simulated_group.complete_append()
    assert simulated_group.state() is State.STABLE
    simulated_group.advance(5000)
    assert list(simulated_group.group.members.by_id) == [leader.member_id]
    assert simulated_group.state() is State.PREPARING_REBALANCE


def test_sync_deadline_is_cancelled_when_all_synced(simulated_group: SimulatedGroup) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = simulated_group.join_all(times, times)
    simulated_group.sync(leader.member_id, 1)
    simulated_group.sync(follower.member_id, 1)
    assert ("sync",) not in simulated_group.alarms
    simulated_group.complete_append()
    simulated_group.advance(50_000)
    assert simulated_group.state() is State.STABLE


def test_each_generation_has_own_sync_deadline(simulated_group: SimulatedGroup) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = simulated_group.join_all(times, times)
    simulated_group.advance(4000)
    simulated_group.join(leader.member_id, protocols=offers("range", metadata=b"2"), rebalance_ms=5000)
    simulated_group.join(follower.member_id, rebalance_ms=5000)
    simulated_group.advance(4999)
    assert len(simulated_group.group.members) == 2
    simulated_group.advance(1)
    assert len(simulated_group.group.members) == 0


def test_answered_parked_sync_renews_session(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({"session_ms": 10_000}, {"session_ms": 10_000})
    simulated_group.sync(follower.member_id, 1)
    simulated_group.advance(9000)
    simulated_group.sync(leader.member_id, 1)
    simulated_group.complete_append()
    simulated_group.advance(9999)
    assert len(simulated_group.group.members) == 2
    simulated_group.advance(1)
    assert len(simulated_group.group.members) == 0


def test_sync_in_stable_group_does_not_renew_session(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({"session_ms": 10_000}, {"session_ms": 10_000})
    simulated_group.sync(leader.member_id, 1)
    simulated_group.complete_append()
    simulated_group.advance(9000)
    simulated_group.heartbeat(leader.member_id, 1)
    simulated_group.sync(follower.member_id, 1)
    simulated_group.advance(1000)
    assert list(simulated_group.group.members.by_id) == [leader.member_id]
