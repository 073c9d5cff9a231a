"""LeaveGroup of a classic group: each member has its own result, and the group rebalances once."""

from __future__ import annotations

import pytest
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, LeavingMember, Left, LeftMember, Synced


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    return SimulatedGroup()


def errors(response: Left) -> list[ErrorCode]:
    assert response.error is ErrorCode.NONE
    return [member.error for member in response.members]


def test_leave_of_member_starts_rebalance(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    assert simulated_group.leave(follower.member_id) == Left(
        ErrorCode.NONE, (LeftMember(follower.member_id, None, ErrorCode.NONE),)
    )
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert simulated_group.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert ("session", follower.member_id) not in simulated_group.alarms
    assert simulated_group.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_of_last_member_makes_group_empty(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({})[0]
    simulated_group.leave(member.member_id)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 2)
    assert simulated_group.durable[-1].members == ()
    assert simulated_group.alarms == {}


def test_batched_leave_starts_one_rebalance(simulated_group: SimulatedGroup) -> None:
    """Each member has its result, in the order of the request."""
    member_a, member_b, dynamic_member = simulated_group.form_group({"instance": "a"}, {"instance": "b"}, {})
    pending = simulated_group.join(version=4).value.member_id
    response = simulated_group.leave(
        LeavingMember("", "a"),
        LeavingMember(dynamic_member.member_id, "b"),
        LeavingMember("", "nobody"),
        LeavingMember("", None),
        LeavingMember("ghost", None),
        LeavingMember(member_b.member_id, "nobody"),
        LeavingMember(pending, None),
        LeavingMember(member_b.member_id, None),
        LeavingMember(member_a.member_id, None),
        LeavingMember(dynamic_member.member_id, None),
    )
    assert [(result.member_id, result.group_instance_id) for result in response.members[:2]] == [
        ("", "a"),
        (dynamic_member.member_id, "b"),
    ]
    unknown_member, fenced_instance, no_error = (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
    )
    assert errors(response) == [
        no_error,
        fenced_instance,
        unknown_member,
        unknown_member,
        unknown_member,
        unknown_member,
        no_error,
        no_error,
        unknown_member,
        no_error,
    ]
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 2), (
        "one rebalance for the whole request"
    )


def test_leave_of_unknown_members_changes_nothing(simulated_group: SimulatedGroup) -> None:
    simulated_group.form_group({})
    assert errors(simulated_group.leave("ghost", "")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert simulated_group.leave() == Left(ErrorCode.NONE)
    assert simulated_group.state() is State.STABLE


def test_leave_by_instance_id_removes_static_member(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"instance": "a"})[0]
    assert errors(simulated_group.leave(LeavingMember(member.member_id, "a"))) == [ErrorCode.NONE]
    assert simulated_group.group.members.static == {}
    assert simulated_group.join(instance="a").is_waiting, "the next join of the instance adds a new member"


def test_leave_answers_parked_requests_of_the_member(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    join_reply = simulated_group.join(leader.member_id)
    simulated_group.leave(leader.member_id)
    assert join_reply.value == Joined(ErrorCode.UNKNOWN_MEMBER_ID)
    reply = simulated_group.join(follower.member_id)
    assert reply.value.leader == follower.member_id
    simulated_group.holds_appends = True
    sync_reply = simulated_group.sync(follower.member_id, 2)
    simulated_group.leave(follower.member_id)
    assert sync_reply.value == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


def test_leave_of_last_missing_member_completes_join_phase(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    reply = simulated_group.join(leader.member_id)
    simulated_group.leave(follower.member_id)
    assert reply.value.generation_id == 2


def test_leave_of_last_pending_member_completes_join_phase(simulated_group: SimulatedGroup) -> None:
    leader = simulated_group.form_group({})[0]
    pending = simulated_group.join(version=4).value.member_id
    reply = simulated_group.join(leader.member_id)
    assert reply.is_waiting
    assert errors(simulated_group.leave(pending)) == [ErrorCode.NONE]
    assert reply.value.generation_id == 2
    assert ("pending", pending) not in simulated_group.alarms


def test_leave_of_pending_member_in_empty_group_succeeds(simulated_group: SimulatedGroup) -> None:
    pending = simulated_group.join(version=4).value.member_id
    assert errors(simulated_group.leave(pending, pending)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert simulated_group.state() is State.EMPTY
    assert not simulated_group.durable


def test_leave_of_leader_while_assignment_is_in_flight(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.join_all({}, {})
    simulated_group.holds_appends = True
    simulated_group.sync(leader.member_id, 1)
    sync_reply = simulated_group.sync(follower.member_id, 1)
    simulated_group.leave(leader.member_id)
    assert sync_reply.error is ErrorCode.REBALANCE_IN_PROGRESS
    simulated_group.complete_append()
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert list(simulated_group.group.members.by_id) == [follower.member_id], "the record does not add the member again"
