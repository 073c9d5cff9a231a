"""Static members that rejoin without a member id (KIP-345, KIP-814)."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, JoinedMember, Synced

TIMES: dict[str, Any] = {"rebalance_ms": 20_000, "session_ms": 30_000}


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    return SimulatedGroup()


def form_static_pair(simulated_group: SimulatedGroup) -> list[Joined]:
    return simulated_group.form_group({"instance": "a", **TIMES}, {"instance": "b", **TIMES})


def test_static_follower_rejoins_stable_group_without_rebalance(simulated_group: SimulatedGroup) -> None:
    leader, follower = form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    assert reply.is_waiting, "the reply waits until the record is durable"
    assert simulated_group.state() is State.STABLE
    simulated_group.complete_append()
    new_id = reply.value.member_id
    assert new_id != follower.member_id
    assert new_id.startswith("b-")
    assert reply.value == Joined(ErrorCode.NONE, new_id, 1, "consumer", "range", leader.member_id, (), False)
    assert simulated_group.sync(new_id, 1, instance="b").value.assignment == b"of " + follower.member_id.encode()


def test_static_rejoin_appends_record_with_new_member_id(simulated_group: SimulatedGroup) -> None:
    leader, follower = form_static_pair(simulated_group)
    reply = simulated_group.join(
        instance="b", version=9, client="other", host="/10.9.9.9", protocols=offers("range", metadata=b"2"), **TIMES
    )
    last_value = simulated_group.durable[-1]
    assert (last_value.generation, last_value.leader, last_value.protocol) == (1, leader.member_id, "range")
    stored_member = next(member for member in last_value.members if member.group_instance_id == "b")
    assert stored_member.member_id == reply.value.member_id
    assert stored_member.assignment == b"of " + follower.member_id.encode()
    assert stored_member.subscription == b"range 2"
    assert (stored_member.client_id, stored_member.client_host) == ("m1", "/127.0.0.1"), (
        "client id and host are those of the first join, as in Kafka"
    )


def test_static_leader_rejoin_v9_returns_skip_assignment(simulated_group: SimulatedGroup) -> None:
    """v9+: the leader gets the list of members, but need not compute an assignment."""
    _, follower = form_static_pair(simulated_group)
    reply = simulated_group.join(instance="a", version=9, **TIMES)
    new_id = reply.value.member_id
    members = {JoinedMember(new_id, "a", b"range v1"), JoinedMember(follower.member_id, "b", b"range v1")}
    assert (reply.value.leader, reply.value.skip_assignment) == (new_id, True)
    assert set(reply.value.members) == members
    assert simulated_group.group.leader_id == new_id


def test_static_leader_rejoin_v8_returns_old_leader_id(simulated_group: SimulatedGroup) -> None:
    """Below v9 a leader would compute a new assignment."""
    leader, _ = form_static_pair(simulated_group)
    reply = simulated_group.join(instance="a", version=8, **TIMES)
    assert (reply.value.leader, reply.value.members, reply.value.skip_assignment) == (leader.member_id, (), False)
    assert simulated_group.group.leader_id == reply.value.member_id


def test_requests_with_replaced_static_member_id_return_82(simulated_group: SimulatedGroup) -> None:
    _, follower = form_static_pair(simulated_group)
    simulated_group.join(instance="b", version=9, **TIMES)
    old_id = follower.member_id
    assert simulated_group.heartbeat(old_id, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert simulated_group.heartbeat(old_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.sync(old_id, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert simulated_group.commit(member_id=old_id, generation_id=1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert simulated_group.join(old_id, instance="b").error is ErrorCode.FENCED_INSTANCE_ID


def test_parked_requests_of_replaced_static_member_return_82(simulated_group: SimulatedGroup) -> None:
    leader, follower = form_static_pair(simulated_group)
    join_reply = simulated_group.join(leader.member_id, instance="a", **TIMES)
    simulated_group.join(instance="a", version=9, **TIMES)
    assert join_reply.value == Joined(ErrorCode.FENCED_INSTANCE_ID, member_id=leader.member_id)
    simulated_group.join(follower.member_id, instance="b", **TIMES)
    assert simulated_group.state() is State.COMPLETING_REBALANCE
    sync_reply = simulated_group.sync(follower.member_id, 2, instance="b")
    simulated_group.join(instance="b", version=9, **TIMES)
    assert sync_reply.value == Synced(ErrorCode.FENCED_INSTANCE_ID)
    assert simulated_group.state() is State.PREPARING_REBALANCE


def test_static_rejoin_that_changes_protocol_starts_rebalance(simulated_group: SimulatedGroup) -> None:
    options = {"protocols": offers("range", "sticky"), **TIMES}
    _, follower = simulated_group.form_group({"instance": "a", **options}, {"instance": "b", **options})
    simulated_group.durable.clear()
    reply = simulated_group.join(instance="a", version=9, protocols=offers("sticky"), **TIMES)
    assert reply.is_waiting
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert not simulated_group.durable
    simulated_group.join(follower.member_id, instance="b", **options)
    assert (reply.value.protocol_name, reply.value.generation_id) == ("sticky", 2)


def test_static_rejoin_in_join_phase_is_parked(simulated_group: SimulatedGroup) -> None:
    leader, _follower = form_static_pair(simulated_group)
    leader_reply = simulated_group.join(leader.member_id, instance="a", **TIMES)
    follower_reply = simulated_group.join(instance="b", version=9, **TIMES)
    assert leader_reply.value.generation_id == follower_reply.value.generation_id == 2
    assert {member.member_id for member in leader_reply.value.members} == {
        leader.member_id,
        follower_reply.value.member_id,
    }


def test_static_member_with_member_id_rejoins_like_dynamic_member(simulated_group: SimulatedGroup) -> None:
    leader, follower = form_static_pair(simulated_group)
    assert simulated_group.join(follower.member_id, instance="b", **TIMES).value.generation_id == 1
    assert simulated_group.join(leader.member_id, instance="a", **TIMES).is_waiting


def test_absent_static_member_stays_in_next_generation(simulated_group: SimulatedGroup) -> None:
    leader, follower = form_static_pair(simulated_group)
    reply = simulated_group.join(leader.member_id, instance="a", **TIMES)
    simulated_group.advance(20_000)
    assert {member.member_id for member in reply.value.members} == {leader.member_id, follower.member_id}
    assert follower.member_id in simulated_group.group.sync_phase.pending, "an absent static member must sync too"


@pytest.mark.parametrize("rebalance_ms", [0, -1, 20])
def test_rebalance_timeout_of_0_ms_checks_once_per_second(simulated_group: SimulatedGroup, rebalance_ms: int) -> None:
    """With only absent static members the group checks once per second, and at once if a member joins."""
    simulated_group.form_group({"instance": "a", **TIMES})
    simulated_group.join(instance="a", rebalance_ms=rebalance_ms, session_ms=100_000)
    reply = simulated_group.join(client="early", **TIMES)
    simulated_group.advance(20_000)
    simulated_group.leave(reply.value.member_id)
    alarm_count, end_ms = 0, simulated_group.clock.now_ms + 60_000
    while simulated_group.clock.now_ms < end_ms:
        simulated_group.advance_to_next_alarm()
        alarm_count += 1
    assert simulated_group.state() is State.PREPARING_REBALANCE
    assert alarm_count <= 70, "about one alarm per second"
    reply = simulated_group.join(client="late", rebalance_ms=60_000)
    simulated_group.advance(max(rebalance_ms, 0))
    assert reply.error is ErrorCode.NONE
    assert {member.group_instance_id for member in reply.value.members} == {"a", None}
    assert simulated_group.group.leader_id == reply.value.member_id


def test_empty_instance_id_is_static_member(simulated_group: SimulatedGroup) -> None:
    """As in Kafka the member id begins with the empty instance id, not with the client id."""
    [member] = simulated_group.form_group({"instance": ""})
    assert member.member_id.startswith("-")
    assert simulated_group.join(instance="").value.generation_id == 1
    assert simulated_group.heartbeat(member.member_id, 1, instance="") is ErrorCode.FENCED_INSTANCE_ID


def test_static_rejoin_starts_new_session_and_ignores_old_alarm(simulated_group: SimulatedGroup) -> None:
    leader, _ = form_static_pair(simulated_group)
    simulated_group.advance(20_000)
    simulated_group.heartbeat(leader.member_id, 1, instance="a")
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    simulated_group.advance(29_999)
    assert reply.value.member_id in simulated_group.group.members.by_id
    simulated_group.advance(1)
    assert len(simulated_group.group.members) == 0


def test_static_rejoin_with_parked_join_does_not_expire(simulated_group: SimulatedGroup) -> None:
    """The replaced member was new. The limit of five minutes applies only to first joins."""
    times = {"rebalance_ms": 200_000, "session_ms": 100_000}
    leader = simulated_group.form_group(times)[0]
    simulated_group.join(instance="b", rebalance_ms=200_000, session_ms=10_000)
    reply = simulated_group.join(instance="b", rebalance_ms=200_000, session_ms=10_000)
    simulated_group.advance(50_000)
    assert reply.is_waiting
    simulated_group.join(leader.member_id, **times)
    assert reply.value.generation_id == 2


def test_static_rejoin_inherits_pending_sync(simulated_group: SimulatedGroup) -> None:
    """It syncs in time, so the deadline is cancelled without a rebalance."""
    times: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = simulated_group.join_all(times, {"instance": "b", **times})
    simulated_group.sync(leader.member_id, 1)
    reply = simulated_group.join(instance="b", version=9, **times)
    assert simulated_group.group.sync_phase.pending == {reply.value.member_id}
    simulated_group.sync(reply.value.member_id, 1, instance="b")
    assert ("sync",) not in simulated_group.alarms
    simulated_group.advance(50_000)
    assert simulated_group.state() is State.STABLE


# Failed appends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", ["a", "b"])
def test_static_rejoin_is_reverted_if_append_fails(simulated_group: SimulatedGroup, instance: str) -> None:
    leader, follower = form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(
        instance=instance, version=9, session_ms=6000, rebalance_ms=7000, protocols=offers("range", metadata=b"2")
    )
    simulated_group.fail(ErrorCode.NOT_COORDINATOR)
    assert reply.value == Joined(ErrorCode.NOT_COORDINATOR, "", 1, "consumer", "range", leader.member_id, (), False)
    assert simulated_group.group.members.static == {"a": leader.member_id, "b": follower.member_id}
    assert simulated_group.group.leader_id == leader.member_id
    response = leader if instance == "a" else follower
    member = simulated_group.group.members.by_id[response.member_id]
    assert member.protocols == offers("range")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 20_000)
    assert simulated_group.heartbeat(response.member_id, 1, instance=instance) is ErrorCode.NONE
    simulated_group.advance(29_999)
    assert len(simulated_group.group.members) == 2
    simulated_group.advance(1)
    assert len(simulated_group.group.members) == 0


def test_second_static_rejoin_while_first_is_in_flight(simulated_group: SimulatedGroup) -> None:
    form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    first_reply = simulated_group.join(instance="b", version=9, **TIMES)
    second_reply = simulated_group.join(instance="b", version=9, **TIMES)
    assert first_reply.error is ErrorCode.FENCED_INSTANCE_ID
    simulated_group.complete_append()
    assert second_reply.is_waiting
    simulated_group.complete_append()
    assert second_reply.value.generation_id == 1
    assert simulated_group.group.members.static["b"] == second_reply.value.member_id


def test_leave_while_static_rejoin_is_in_flight_answers_join(simulated_group: SimulatedGroup) -> None:
    form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    simulated_group.leave(*[member.member_id for member in simulated_group.group.members if member.joining])
    assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
    simulated_group.complete_append()
    assert "b" not in simulated_group.group.members.static


def test_rebalance_before_static_rejoin_append_fails(simulated_group: SimulatedGroup) -> None:
    """The next generation already contains the new member id, so nothing is reverted or fenced."""
    leader, _ = form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    simulated_group.join(leader.member_id, instance="a", **TIMES)
    assert reply.value.generation_id == 2
    sync_reply = simulated_group.sync(reply.value.member_id, 2, instance="b")
    simulated_group.fail()
    assert sync_reply.is_waiting
    assert simulated_group.group.members.static["b"] == reply.value.member_id
    simulated_group.sync(leader.member_id, 2, {reply.value.member_id: b"part"}, instance="a")
    simulated_group.complete_append()
    assert sync_reply.value.assignment == b"part"


def test_reverted_static_rejoin_keeps_common_protocol(simulated_group: SimulatedGroup) -> None:
    """A new member shares only a protocol of the static rejoin whose append then fails."""
    simulated_group.form_group({"instance": "a", **TIMES})
    simulated_group.holds_appends = True
    simulated_group.join(instance="a", version=9, protocols=offers("range", "uniform"), **TIMES)
    new_member_reply = simulated_group.join(protocols=offers("uniform"), **TIMES)
    assert (new_member_reply.value.generation_id, new_member_reply.value.protocol_name) == (2, "uniform")
    simulated_group.fail()
    assert all("uniform" in {offer.name for offer in member.protocols} for member in simulated_group.group.members)


def test_static_rejoin_append_fails_during_join_phase(simulated_group: SimulatedGroup) -> None:
    """The JoinGroup of the static rejoin is answered at the end of the join phase."""
    leader, _ = form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    simulated_group.join(**TIMES)
    assert simulated_group.state() is State.PREPARING_REBALANCE
    simulated_group.fail()
    simulated_group.join(leader.member_id, instance="a", **TIMES)
    assert reply.value.generation_id == 2


def test_static_rejoin_append_fails_after_close(simulated_group: SimulatedGroup) -> None:
    form_static_pair(simulated_group)
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **TIMES)
    simulated_group.close(ErrorCode.NOT_COORDINATOR)
    assert reply.error is ErrorCode.NOT_COORDINATOR
    simulated_group.fail()
    assert simulated_group.alarms == {}, "a dead group has no deadlines"


def test_sync_deadline_passes_while_static_rejoin_is_in_flight(simulated_group: SimulatedGroup) -> None:
    """The parked join of the removed member must get a reply."""
    times: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = simulated_group.join_all(times, {"instance": "b", **times})
    simulated_group.sync(leader.member_id, 1)
    assert simulated_group.state() is State.STABLE
    simulated_group.holds_appends = True
    reply = simulated_group.join(instance="b", version=9, **times)
    simulated_group.advance(5000)
    assert not reply.is_waiting
