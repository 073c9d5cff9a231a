"""Classic groups: sessions, heartbeats, commits, close and describe."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.requests import offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.group_value import value_of
from callboard.actors.group.states import State
from callboard.actors.messages import DescribedMember, Joined, Synced
from callboard.actors.records import GroupValue, MemberValue
from callboard.actors.steps import run_steps


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    return SimulatedGroup()


# Sessions ------------------------------------------------------------------------------------------------------------


def test_member_without_heartbeat_is_removed_after_session_timeout(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({"session_ms": 30_000}, {"session_ms": 10_000})
    simulated_group.advance(9999)
    assert simulated_group.state() is State.STABLE
    simulated_group.advance(1)
    assert list(simulated_group.group.members.by_id) == [leader.member_id]
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert simulated_group.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_renews_session_without_scheduling_an_alarm(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"session_ms": 10_000})[0]
    scheduled = dict(simulated_group.alarms)
    for _ in range(5):
        simulated_group.advance(1999)
        assert simulated_group.heartbeat(member.member_id, 1) is ErrorCode.NONE
        assert simulated_group.alarms == scheduled, "the alarm stays and is rescheduled when it fires"
    simulated_group.advance(9_999)
    assert simulated_group.state() is State.STABLE
    simulated_group.advance(1)
    assert simulated_group.state() is State.EMPTY


@pytest.mark.parametrize("state", [State.STABLE, State.PREPARING_REBALANCE])
def test_offset_commit_renews_session(simulated_group: SimulatedGroup, state: State) -> None:
    leader, follower = simulated_group.form_group(*[{"session_ms": 10_000, "rebalance_ms": 100_000}] * 2)
    if state is State.PREPARING_REBALANCE:
        simulated_group.join(leader.member_id, rebalance_ms=100_000)
    simulated_group.advance(9000)
    assert simulated_group.commit(member_id=follower.member_id, generation_id=1) is ErrorCode.NONE
    simulated_group.advance(9999)
    assert follower.member_id in simulated_group.group.members.by_id
    simulated_group.advance(1)
    assert follower.member_id not in simulated_group.group.members.by_id


def test_refused_offset_commit_does_not_renew_session(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({"session_ms": 50_000}, {"session_ms": 10_000})
    simulated_group.advance(9000)
    assert simulated_group.commit(member_id=follower.member_id, generation_id=1) is ErrorCode.REBALANCE_IN_PROGRESS
    simulated_group.advance(1000)
    assert list(simulated_group.group.members.by_id) == [leader.member_id]


def test_heartbeat_with_old_generation_does_not_renew_session(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"session_ms": 10_000})[0]
    simulated_group.advance(9000)
    assert simulated_group.heartbeat(member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    simulated_group.advance(1000)
    assert simulated_group.state() is State.EMPTY


def test_parked_join_prevents_session_expiry(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.form_group(
        {"session_ms": 6000, "rebalance_ms": 100_000}, {"session_ms": 99_000, "rebalance_ms": 100_000}
    )
    reply = simulated_group.join(leader.member_id, session_ms=6000, rebalance_ms=100_000)
    simulated_group.advance(60_000)
    assert reply.is_waiting
    simulated_group.advance(39_000)
    assert reply.value.generation_id == 2, "the other session expired, so all remaining members have joined"
    simulated_group.advance(5999)
    assert simulated_group.state() is State.COMPLETING_REBALANCE
    simulated_group.advance(1)
    assert simulated_group.state() is State.EMPTY, "the JoinGroup response starts a new session"


def test_parked_sync_prevents_session_expiry(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({"session_ms": 100_000}, {"session_ms": 6000})
    reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.advance(50_000)
    assert reply.is_waiting
    assert ("session", follower.member_id) not in simulated_group.alarms
    simulated_group.sync(leader.member_id, 1)
    assert simulated_group.alarms["session", follower.member_id] == simulated_group.clock.now_ms + 6000


def test_sessions_that_expire_in_one_turn_append_one_record(simulated_group: SimulatedGroup) -> None:
    """Both alarms fire together; the group becomes Empty once, with one record."""
    simulated_group.form_group({"session_ms": 10_000}, {"session_ms": 10_000})
    simulated_group.durable.clear()
    simulated_group.advance(10_000)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 2)
    assert len(simulated_group.durable) == 1


def test_leader_session_expiry_before_assignment_starts_rebalance(simulated_group: SimulatedGroup) -> None:
    _, follower = simulated_group.join_all({"session_ms": 6000}, {"session_ms": 30_000})
    reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.advance(6000)
    assert reply.value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    assert simulated_group.join(follower.member_id).value.leader == follower.member_id


def test_static_member_is_removed_after_session_timeout(simulated_group: SimulatedGroup) -> None:
    simulated_group.form_group({"instance": "a", "session_ms": 10_000})
    simulated_group.advance(10_000)
    assert simulated_group.state() is State.EMPTY
    assert simulated_group.group.members.static == {}


def test_session_expiry_of_last_missing_member_completes_join_phase(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.form_group({"session_ms": 30_000}, {"session_ms": 10_000})
    reply = simulated_group.join(leader.member_id)
    simulated_group.advance(10_000)
    assert reply.value.generation_id == 2


def test_alarm_of_removed_or_cancelled_deadline_is_ignored(simulated_group: SimulatedGroup) -> None:
    """The timer sent it before the member left or the deadline was cancelled."""
    leader, follower = simulated_group.form_group({}, {})
    simulated_group.leave(follower.member_id)
    for name in (("session", follower.member_id), ("pending", "ghost"), ("join",), ("sync",)):
        simulated_group.alarms[name] = simulated_group.clock.now_ms
    simulated_group.fire_alarms()
    assert list(simulated_group.group.members.by_id) == [leader.member_id]
    assert (simulated_group.state(), simulated_group.generation) == (State.PREPARING_REBALANCE, 1)
    assert simulated_group.alarms["join",] == simulated_group.clock.now_ms + 60_000, "an early alarm is rescheduled"


# Heartbeats ----------------------------------------------------------------------------------------------------------


def test_heartbeat_checks_identity_then_generation_then_state(simulated_group: SimulatedGroup) -> None:
    static_member, dynamic_member = simulated_group.form_group({"instance": "i"}, {})
    assert simulated_group.heartbeat("ghost", 9, instance="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.heartbeat("ghost", 9, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert simulated_group.heartbeat(dynamic_member.member_id, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert simulated_group.heartbeat("ghost", 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.heartbeat("", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.heartbeat(static_member.member_id, 2, instance="i") is ErrorCode.ILLEGAL_GENERATION
    assert simulated_group.heartbeat(static_member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert simulated_group.heartbeat(static_member.member_id, 1, instance="i") is ErrorCode.NONE
    assert simulated_group.heartbeat(static_member.member_id, 1) is ErrorCode.NONE, "the instance id is optional"


def test_heartbeat_in_empty_group_returns_25(simulated_group: SimulatedGroup) -> None:
    assert simulated_group.heartbeat("ghost", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.heartbeat("", -1) is ErrorCode.UNKNOWN_MEMBER_ID


# Commits -------------------------------------------------------------------------------------------------------------


def test_simple_commit_is_accepted_only_while_group_is_empty(simulated_group: SimulatedGroup) -> None:
    """Rule 2: without a generation the sender is not checked."""
    assert simulated_group.commit() is ErrorCode.NONE
    assert simulated_group.commit(member_id="ghost", instance="nobody") is ErrorCode.NONE
    pending = simulated_group.join(version=4).value.member_id
    assert simulated_group.commit(member_id=pending) is ErrorCode.NONE, (
        "a pending member does not count as a member, as in Kafka"
    )


def test_commit_with_generation_in_empty_group_is_refused(simulated_group: SimulatedGroup) -> None:
    """Rules 3 to 5 in an empty group."""
    assert simulated_group.commit(generation_id=0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.commit(generation_id=0, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.commit(generation_id=1, member_id="ghost") is ErrorCode.UNKNOWN_MEMBER_ID


def in_preparing_rebalance(simulated_group: SimulatedGroup) -> list[Joined]:
    joined = simulated_group.form_group({"instance": "i"}, {})
    simulated_group.join(joined[1].member_id, protocols=offers("range", metadata=b"2"))
    return joined


def in_completing_rebalance(simulated_group: SimulatedGroup) -> list[Joined]:
    return simulated_group.join_all({"instance": "i"}, {})


def in_stable(simulated_group: SimulatedGroup) -> list[Joined]:
    return simulated_group.form_group({"instance": "i"}, {})


@pytest.mark.parametrize(
    ("form_group", "expected_error"),
    [
        (in_preparing_rebalance, ErrorCode.NONE),
        (in_completing_rebalance, ErrorCode.REBALANCE_IN_PROGRESS),
        (in_stable, ErrorCode.NONE),
    ],
)
def test_offset_commit_checks_identity_then_generation_then_state(
    simulated_group: SimulatedGroup, form_group: Callable[[SimulatedGroup], list[Joined]], expected_error: ErrorCode
) -> None:
    """Rules 3 to 9 in a group with members: identity, generation, then the state."""
    static_member, dynamic_member = form_group(simulated_group)
    unknown_member, fenced_instance, illegal_generation = (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
    )
    assert simulated_group.commit(member_id=static_member.member_id, generation_id=1, instance="j") is unknown_member
    assert simulated_group.commit(member_id=dynamic_member.member_id, generation_id=1, instance="i") is fenced_instance
    assert simulated_group.commit(generation_id=1, instance="i") is fenced_instance
    assert simulated_group.commit(member_id="ghost", generation_id=1) is unknown_member
    assert simulated_group.commit(generation_id=1) is unknown_member
    assert simulated_group.commit(member_id=static_member.member_id, generation_id=0) is illegal_generation
    assert (
        simulated_group.commit(member_id=static_member.member_id, generation_id=2, instance="i") is illegal_generation
    )
    assert simulated_group.commit(member_id=static_member.member_id, generation_id=-1) is illegal_generation
    assert simulated_group.commit(instance="i") is fenced_instance
    assert simulated_group.commit(instance="j") is unknown_member
    assert simulated_group.commit() is unknown_member, "rule 7: a group with members refuses simple commits"
    assert simulated_group.commit(member_id=static_member.member_id, generation_id=1, instance="i") is expected_error
    assert simulated_group.commit(member_id=dynamic_member.member_id, generation_id=1) is expected_error


# Loading -------------------------------------------------------------------------------------------------------------

LOADED_VALUE = GroupValue(
    "consumer",
    7,
    "range",
    "a",
    123,
    (
        MemberValue("a", None, "ca", "/1.1.1.1", 60_000, 10_000, b"sub a", b"part a"),
        MemberValue("b", "i", "cb", "/2.2.2.2", 60_000, 20_000, b"sub b", b"part b"),
    ),
)


def test_loaded_group_has_state_of_its_last_record(simulated_group: SimulatedGroup) -> None:
    simulated_group.load(LOADED_VALUE)
    assert (simulated_group.state(), simulated_group.generation) == (State.STABLE, 7)
    assert run_steps(value_of(simulated_group.group)) == LOADED_VALUE
    assert simulated_group.sync("b", 7, instance="i").value.assignment == b"part b"
    assert simulated_group.heartbeat("a", 7) is ErrorCode.NONE


def test_load_restarts_sessions(simulated_group: SimulatedGroup) -> None:
    simulated_group.load(LOADED_VALUE)
    simulated_group.advance(9999)
    assert len(simulated_group.group.members) == 2
    simulated_group.advance(1)
    assert list(simulated_group.group.members.by_id) == ["b"]
    simulated_group.advance(10_000)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 8)


def test_loaded_group_without_members_is_empty(simulated_group: SimulatedGroup) -> None:
    simulated_group.load(LOADED_VALUE._replace(members=(), leader=None, protocol=None))
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 7)
    reply = simulated_group.join()
    simulated_group.advance(3000)
    assert reply.value.generation_id == 8


def test_loaded_member_supports_only_the_chosen_protocol(simulated_group: SimulatedGroup) -> None:
    simulated_group.load(LOADED_VALUE)
    assert simulated_group.join(protocols=offers("sticky")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated_group.join("b", instance="i", protocols=offers("range")).is_waiting, (
        "its metadata differs from the loaded metadata"
    )


# Close ---------------------------------------------------------------------------------------------------------------


def test_close_answers_parked_joins(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    join_reply = simulated_group.join(leader.member_id)
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    assert join_reply.value == Joined(ErrorCode.NOT_COORDINATOR, member_id=leader.member_id)
    assert simulated_group.state() is State.DEAD
    assert simulated_group.alarms == {}
    assert simulated_group.heartbeat(follower.member_id, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_close_answers_parked_syncs(simulated_group: SimulatedGroup) -> None:
    _, follower = simulated_group.join_all({}, {})
    simulated_group.join(version=4)
    sync_reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    assert sync_reply.value == Synced(ErrorCode.NOT_COORDINATOR)
    assert simulated_group.alarms == {}, "the alarm of the pending id is cancelled too"


def test_request_to_dead_group_returns_15_before_other_checks(simulated_group: SimulatedGroup) -> None:
    """The client must look up the coordinator, even if the request has other errors."""
    member = simulated_group.form_group({"instance": "i"})[0]
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for member_id in (member.member_id, "ghost"):
        for generation in (1, 0):
            for instance in (None, "i", "j"):
                assert simulated_group.heartbeat(member_id, generation, instance=instance) is unavailable
                assert simulated_group.sync(member_id, generation, instance=instance).error is unavailable
                commit = simulated_group.commit(member_id=member_id, generation_id=generation, instance=instance)
                assert commit is unavailable
                assert simulated_group.join(member_id, instance=instance).error is unavailable
    assert simulated_group.commit() is unavailable
    assert simulated_group.join().error is unavailable
    assert simulated_group.leave(member.member_id).error is unavailable


def test_requests_to_dead_group_schedule_no_deadline(simulated_group: SimulatedGroup) -> None:
    """A late heartbeat must not start a session again."""
    member = simulated_group.form_group({})[0]
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    simulated_group.heartbeat(member.member_id, 1)
    simulated_group.commit(member_id=member.member_id, generation_id=1)
    assert simulated_group.alarms == {}
    simulated_group.advance(100_000)
    assert simulated_group.state() is State.DEAD


def test_append_outcome_after_close_is_ignored(simulated_group: SimulatedGroup) -> None:
    leader = simulated_group.join_all({})[0]
    simulated_group.holds_appends = True
    reply = simulated_group.sync(leader.member_id, 1)
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    assert reply.error is ErrorCode.NOT_COORDINATOR
    simulated_group.complete_append()
    assert simulated_group.state() is State.DEAD


# Describe ------------------------------------------------------------------------------------------------------------


def test_describe_stable_group_returns_metadata_and_assignments(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"instance": "i", "host": "/9.9.9.9"})[0]
    description = simulated_group.describe()
    assignment = b"of " + member.member_id.encode()
    assert (description.state, description.protocol_type, description.protocol) == ("Stable", "consumer", "range")
    assert description.members == (DescribedMember(member.member_id, "i", "m0", "/9.9.9.9", b"range v1", assignment),)


def test_describe_during_rebalance_returns_assignments_without_metadata(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({})[0]
    simulated_group.join(version=4)
    simulated_group.join(member.member_id)
    description = simulated_group.describe()
    assert (description.state, description.protocol) == ("PreparingRebalance", "")
    assert [(described.metadata, described.assignment[:3]) for described in description.members] == [(b"", b"of ")]


def test_describe_empty_and_dead_group(simulated_group: SimulatedGroup) -> None:
    assert simulated_group.describe()[2:] == ("Empty", "", "", (), None)
    simulated_group.form_group({})
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    assert simulated_group.describe()[:3] == (ErrorCode.NONE, "company", "Dead")
    assert simulated_group.describe().members == ()
