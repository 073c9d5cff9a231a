"""Rebalances of a classic group: initial delay, join phase, choice of protocol, leader."""

from __future__ import annotations

import pytest
from actor_system.requests import offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    return SimulatedGroup()


# The initial delay ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay_ms", "rebalance_ms", "joins_at_ms", "expected_ms"),
    [
        (3000, 60_000, (), 3000),
        (3000, 10_000, (1000, 4000, 7000), 10_000),  # 3000 + 3000 + 3000 + 1000: at most the rebalance timeout
        (3000, 10_000, (1000,), 6000),
        (3000, 10_000, (1000, 2000, 2999), 6000),  # one extension per interval, for any number of joins
        (3000, 10_000, (1000, 4000), 9000),
        (3000, 3000, (1000,), 3000),  # the rebalance timeout leaves no time for an extension
        (3000, 4000, (1000,), 4000),
        (3000, 1000, (1000,), 3000),
    ],
)
def test_initial_delay_is_extended_by_new_members(
    simulated_group: SimulatedGroup, delay_ms: int, rebalance_ms: int, joins_at_ms: tuple[int, ...], expected_ms: int
) -> None:
    simulated_group.settings.group_initial_rebalance_delay_ms = delay_ms
    start_ms = simulated_group.clock.now_ms
    first_reply = simulated_group.join(rebalance_ms=rebalance_ms)
    for at_ms in joins_at_ms:
        simulated_group.advance(start_ms + at_ms - simulated_group.clock.now_ms)
        if first_reply.is_waiting:
            simulated_group.join(rebalance_ms=rebalance_ms)
    simulated_group.advance(start_ms + expected_ms - 1 - simulated_group.clock.now_ms)
    assert first_reply.is_waiting
    simulated_group.advance(1)
    assert first_reply.value.generation_id == 1


def test_initial_delay_of_documented_example(simulated_group: SimulatedGroup) -> None:
    """Delay 3000, rebalance timeout 10000: waits of 3000, 3000, 3000 and 1000 ms if members join in each of them."""
    first_reply = simulated_group.join(rebalance_ms=10_000)
    alarms = []
    for _ in range(3):
        alarms.append(simulated_group.alarms["join",] - simulated_group.clock.now_ms)
        simulated_group.advance(100)
        simulated_group.join(rebalance_ms=10_000)
        simulated_group.advance(2900)
    alarms.append(simulated_group.alarms["join",] - simulated_group.clock.now_ms)
    assert alarms == [3000, 3000, 3000, 1000]
    simulated_group.advance(999)
    assert first_reply.is_waiting
    simulated_group.advance(1)
    assert first_reply.value.generation_id == 1
    assert len(first_reply.value.members) == 4


def test_initial_delay_of_0_ms_answers_in_next_turn(simulated_group: SimulatedGroup) -> None:
    """The first join is parked and answered at the next tick."""
    simulated_group.settings.group_initial_rebalance_delay_ms = 0
    reply = simulated_group.join()
    assert reply.is_waiting
    simulated_group.advance(0)
    assert reply.value.generation_id == 1


def test_join_or_leave_does_not_end_initial_delay(simulated_group: SimulatedGroup) -> None:
    first_reply = simulated_group.join()
    pending = simulated_group.join(version=4).value.member_id
    simulated_group.leave(pending)
    assert first_reply.is_waiting
    second_reply = simulated_group.join(client="second")
    simulated_group.leave(simulated_group.group.members.by_id.copy().popitem()[0])
    assert second_reply.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert first_reply.is_waiting
    simulated_group.advance(6000)
    assert first_reply.value.generation_id == 1


def test_session_expiry_ends_initial_delay(simulated_group: SimulatedGroup) -> None:
    """Kafka only checks whether all have joined. The same holds for pending member ids."""
    simulated_group.settings.group_initial_rebalance_delay_ms = 50_000
    simulated_group.join(version=4, session_ms=6000)
    first_reply = simulated_group.join()
    simulated_group.advance(5999)
    assert first_reply.is_waiting
    simulated_group.advance(1)
    assert first_reply.value.generation_id == 1


def test_group_is_empty_after_all_leave_during_initial_delay(simulated_group: SimulatedGroup) -> None:
    simulated_group.join()
    simulated_group.leave(*simulated_group.group.members.by_id)
    assert simulated_group.state() is State.PREPARING_REBALANCE
    simulated_group.advance(3000)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 1)
    assert simulated_group.durable[-1].members == ()


def test_empty_group_starts_initial_delay_again(simulated_group: SimulatedGroup) -> None:
    """The group was Empty in between, so generation 2 has an initial delay too, with extensions."""
    member = simulated_group.form_group({})[0]
    simulated_group.leave(member.member_id)
    assert simulated_group.generation == 2
    first_reply = simulated_group.join()
    simulated_group.join()
    simulated_group.advance(5999)
    assert first_reply.is_waiting
    simulated_group.advance(1)
    assert first_reply.value.generation_id == 3


def test_extension_of_initial_delay_does_not_carry_over(simulated_group: SimulatedGroup) -> None:
    """A member joined in the last interval, when no extension was left."""
    simulated_group.form_group({"rebalance_ms": 3000}, {"rebalance_ms": 3000})
    simulated_group.leave(*simulated_group.group.members.by_id)
    reply = simulated_group.join(rebalance_ms=60_000)
    simulated_group.advance(3000)
    assert reply.value.generation_id == 3


# The join phase ------------------------------------------------------------------------------------------------------


def test_join_phase_ends_when_all_members_joined(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    leader_reply = simulated_group.join(leader.member_id)
    assert simulated_group.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    follower_reply = simulated_group.join(follower.member_id)
    assert leader_reply.value.generation_id == follower_reply.value.generation_id == 2
    assert simulated_group.state() is State.COMPLETING_REBALANCE


def test_join_phase_ends_after_maximum_rebalance_timeout(simulated_group: SimulatedGroup) -> None:
    leader, _, _ = simulated_group.form_group({"rebalance_ms": 5000}, {"rebalance_ms": 20_000}, {"rebalance_ms": 7000})
    reply = simulated_group.join(leader.member_id, rebalance_ms=5000)
    for member in list(simulated_group.group.members):
        simulated_group.heartbeat(member.member_id, 1)
    simulated_group.advance(9_000)
    for member in list(simulated_group.group.members):
        simulated_group.heartbeat(member.member_id, 1)
    simulated_group.advance(9_000)
    for member in list(simulated_group.group.members):
        simulated_group.heartbeat(member.member_id, 1)
    simulated_group.advance(1999)
    assert reply.is_waiting
    simulated_group.advance(1)
    assert reply.value.generation_id == 2
    assert [joined.member_id for joined in reply.value.members] == [leader.member_id]
    assert {name for name in simulated_group.alarms if "session" in str(name)} == {("session", leader.member_id)}


def test_new_member_with_longer_timeout_does_not_extend_join_phase(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.form_group({"rebalance_ms": 5000}, {"rebalance_ms": 5000})
    reply = simulated_group.join(leader.member_id, rebalance_ms=5000)
    simulated_group.join(rebalance_ms=500_000)
    simulated_group.advance(5000)
    assert reply.value.generation_id == 2


def test_member_that_does_not_rejoin_is_removed(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({"rebalance_ms": 5000}, {"rebalance_ms": 5000})
    simulated_group.join(leader.member_id)
    simulated_group.advance(60_000)
    assert simulated_group.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_phase_without_rejoins_makes_group_empty(simulated_group: SimulatedGroup) -> None:
    """No dynamic member rejoined: the group becomes Empty, with a new generation and a record."""
    simulated_group.form_group(
        {"session_ms": 100_000, "rebalance_ms": 5000}, {"session_ms": 100_000, "rebalance_ms": 5000}
    )
    newcomer = simulated_group.join(rebalance_ms=5000)
    simulated_group.leave(*[member.member_id for member in simulated_group.group.members if member.joining])
    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    simulated_group.advance(5000)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 2)
    last_value = simulated_group.durable[-1]
    assert (last_value.generation, last_value.protocol, last_value.leader, last_value.members) == (2, None, None, ())
    assert last_value.protocol_type == "consumer", "the protocol type stays"
    assert simulated_group.group.leader_id is None
    assert simulated_group.alarms == {}, "an empty group has no deadlines"


def test_generation_increases_with_every_join_phase(simulated_group: SimulatedGroup) -> None:
    for generation in range(1, 5):
        assert simulated_group.form_group({})[0].generation_id == 2 * generation - 1
        simulated_group.leave(*simulated_group.group.members.by_id)
        assert simulated_group.generation == 2 * generation


def test_failed_append_of_empty_group_record_is_ignored(simulated_group: SimulatedGroup) -> None:
    """As in Kafka; no request waits for it."""
    simulated_group.form_group({})
    simulated_group.holds_appends = True
    simulated_group.leave(*simulated_group.group.members.by_id)
    simulated_group.fail()
    assert simulated_group.state() is State.EMPTY


# The vote ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "winner"),
    [
        (["range sticky", "range sticky", "sticky range"], "range"),
        (["sticky range", "sticky range", "range sticky"], "sticky"),
        (["a range", "b range"], "range"),  # only a protocol that all members support can be chosen
        (["x range sticky", "y sticky range", "z sticky range"], "sticky"),
        # ties are resolved in the order of Kafka's hash map: uniform, sticky, range, roundrobin, cooperative-sticky
        (["range roundrobin", "roundrobin range"], "range"),
        (["roundrobin range", "range roundrobin"], "range"),
        (["range sticky", "sticky range"], "sticky"),
        (["sticky uniform", "uniform sticky"], "uniform"),
        (["cooperative-sticky roundrobin", "roundrobin cooperative-sticky"], "roundrobin"),
    ],
)
def test_protocol_with_most_votes_is_chosen(simulated_group: SimulatedGroup, votes: list[str], winner: str) -> None:
    responses = simulated_group.join_all(*[{"protocols": offers(*vote.split())} for vote in votes])
    assert {response.protocol_name for response in responses} == {winner}
    assert [member.metadata for member in responses[0].members] == [winner.encode() + b" v1"] * len(votes)


def test_protocol_is_chosen_again_in_each_generation(simulated_group: SimulatedGroup) -> None:
    both_protocols = {"protocols": offers("sticky", "range")}
    leader, follower = simulated_group.form_group(both_protocols, both_protocols)
    assert leader.protocol_name == "sticky"
    simulated_group.join(leader.member_id, protocols=offers("range"))
    assert simulated_group.join(follower.member_id, **both_protocols).value.protocol_name == "range"


# The leader ----------------------------------------------------------------------------------------------------------


def test_rejoined_leader_stays_leader(simulated_group: SimulatedGroup) -> None:
    leader, follower = simulated_group.form_group({}, {})
    replies = [
        simulated_group.join(follower.member_id, protocols=offers("range", metadata=b"2")),
        simulated_group.join(leader.member_id),
    ]
    assert {reply.value.leader for reply in replies} == {leader.member_id}


def test_leave_of_leader_elects_new_leader(simulated_group: SimulatedGroup) -> None:
    leader, *followers = simulated_group.form_group({}, {}, {})
    simulated_group.leave(leader.member_id)
    replies = [simulated_group.join(member.member_id) for member in followers]
    assert {reply.value.leader for reply in replies} <= {member.member_id for member in followers}
    assert len({reply.value.leader for reply in replies}) == 1
    assert sorted(len(reply.value.members) for reply in replies) == [0, 2]


def test_new_leader_is_elected_if_leader_does_not_rejoin(simulated_group: SimulatedGroup) -> None:
    leader, *followers = simulated_group.form_group(*[{"rebalance_ms": 5000, "session_ms": 100_000}] * 3)
    replies = [
        simulated_group.join(member.member_id, protocols=offers("range", metadata=b"2"), rebalance_ms=5000)
        for member in followers
    ]
    simulated_group.advance(5000)
    assert {reply.value.leader for reply in replies} == {followers[0].member_id}
    assert leader.member_id not in simulated_group.group.members.by_id


def test_absent_static_leader_stays_member_but_not_leader(simulated_group: SimulatedGroup) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = simulated_group.form_group({"instance": "a", **times}, {"instance": "b", **times})
    reply = simulated_group.join(
        follower.member_id, instance="b", protocols=offers("range", metadata=b"2"), rebalance_ms=5000
    )
    simulated_group.advance(5000)
    assert reply.value.leader == follower.member_id
    assert [member.group_instance_id for member in reply.value.members] == ["a", "b"]
    assert leader.member_id in simulated_group.group.members.by_id


def test_join_phase_stays_open_with_only_absent_static_members(simulated_group: SimulatedGroup) -> None:
    """No member could lead: the phase is extended until one rejoins or their sessions expire."""
    times = {"rebalance_ms": 5000, "session_ms": 12_000}
    simulated_group.form_group({"instance": "a", **times}, {"instance": "b", **times})
    newcomer = simulated_group.join(client="newcomer")
    newcomer_id = next(member.member_id for member in simulated_group.group.members if member.joining)
    simulated_group.leave(newcomer_id)
    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    simulated_group.advance(11_999)
    assert (simulated_group.state(), simulated_group.generation) == (State.PREPARING_REBALANCE, 1)
    simulated_group.advance(1)
    assert (simulated_group.state(), simulated_group.generation) == (State.EMPTY, 2)
