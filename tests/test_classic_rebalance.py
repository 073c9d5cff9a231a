"""From one generation to the next: the initial delay, the join phase, the vote, the leader."""

from __future__ import annotations

import pytest
from stage.company import Company
from stage.requests import offers

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State


@pytest.fixture
def company() -> Company:
    return Company()


# The initial delay ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay_ms", "rebalance_ms", "joins_at_ms", "expected_ms"),
    [
        (3000, 60_000, (), 3000),
        (3000, 10_000, (1000, 4000, 7000), 10_000),  # 3000 + 3000 + 3000 + 1000: never over the rebalance timeout
        (3000, 10_000, (1000,), 6000),
        (3000, 10_000, (1000, 2000, 2999), 6000),  # one extension for an interval, however many came
        (3000, 10_000, (1000, 4000), 9000),
        (3000, 3000, (1000,), 3000),  # nothing is left to extend
        (3000, 4000, (1000,), 4000),
        (3000, 1000, (1000,), 3000),
    ],
)
def test_the_initial_delay_and_its_extension(
    company: Company, delay_ms: int, rebalance_ms: int, joins_at_ms: tuple[int, ...], expected_ms: int
) -> None:
    company.rules.group_initial_rebalance_delay_ms = delay_ms
    start_ms = company.clock.now_ms
    first = company.join(rebalance_ms=rebalance_ms)
    for at_ms in joins_at_ms:
        company.advance(start_ms + at_ms - company.clock.now_ms)
        if first.is_waiting:
            company.join(rebalance_ms=rebalance_ms)
    company.advance(start_ms + expected_ms - 1 - company.clock.now_ms)
    assert first.is_waiting
    company.advance(1)
    assert first.value.generation_id == 1


def test_the_worked_example_step_by_step(company: Company) -> None:
    """Delay 3000, rebalance timeout 10000: waits of 3000, 3000, 3000 and 1000 while somebody comes in each."""
    first = company.join(rebalance_ms=10_000)
    alarms = []
    for _ in range(3):
        alarms.append(company.alarms["join",] - company.clock.now_ms)
        company.advance(100)
        company.join(rebalance_ms=10_000)
        company.advance(2900)
    alarms.append(company.alarms["join",] - company.clock.now_ms)
    assert alarms == [3000, 3000, 3000, 1000]
    company.advance(999)
    assert first.is_waiting
    company.advance(1)
    assert first.value.generation_id == 1
    assert len(first.value.members) == 4


def test_a_delay_of_nothing_still_answers_later(company: Company) -> None:
    """The join that makes the group is parked: its answer comes with the next tick."""
    company.rules.group_initial_rebalance_delay_ms = 0
    place = company.join()
    assert place.is_waiting
    company.advance(0)
    assert place.value.generation_id == 1


def test_nobody_ends_the_initial_delay_by_joining_or_leaving(company: Company) -> None:
    first = company.join()
    pending = company.join(version=4).value.member_id
    company.leave(pending)
    assert first.is_waiting
    second = company.join(client="second")
    company.leave(company.group.members.by_id.copy().popitem()[0])
    assert second.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.is_waiting
    company.advance(6000)
    assert first.value.generation_id == 1


def test_a_session_that_expires_ends_the_initial_delay(company: Company) -> None:
    """Kafka asks only whether all have joined; it holds for pending ids too."""
    company.rules.group_initial_rebalance_delay_ms = 50_000
    company.join(version=4, session_ms=6000)
    first = company.join()
    company.advance(5999)
    assert first.is_waiting
    company.advance(1)
    assert first.value.generation_id == 1


def test_all_leave_during_the_initial_delay(company: Company) -> None:
    company.join()
    company.leave(*company.group.members.by_id)
    assert company.state() is State.PREPARING_REBALANCE
    company.advance(3000)
    assert (company.state(), company.generation) == (State.EMPTY, 1)
    assert company.durable[-1].members == ()


def test_a_second_company_gets_its_own_initial_delay(company: Company) -> None:
    """The group was Empty in between: generation 2 waits again, and is extended again."""
    member = company.form({})[0]
    company.leave(member.member_id)
    assert company.generation == 2
    first = company.join()
    company.join()
    company.advance(5999)
    assert first.is_waiting
    company.advance(1)
    assert first.value.generation_id == 3


def test_what_delayed_the_first_company_does_not_delay_the_second(company: Company) -> None:
    """Somebody came in the last interval, and nothing was left to extend; the next company starts from nothing."""
    company.form({"rebalance_ms": 3000}, {"rebalance_ms": 3000})
    company.leave(*company.group.members.by_id)
    place = company.join(rebalance_ms=60_000)
    company.advance(3000)
    assert place.value.generation_id == 3


# The join phase ------------------------------------------------------------------------------------------------------


def test_it_ends_when_all_are_there(company: Company) -> None:
    leader, follower = company.form({}, {})
    first = company.join(leader.member_id)
    assert company.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    second = company.join(follower.member_id)
    assert first.value.generation_id == second.value.generation_id == 2
    assert company.state() is State.COMPLETING_REBALANCE


def test_it_ends_after_the_longest_rebalance_timeout(company: Company) -> None:
    leader, _, _ = company.form({"rebalance_ms": 5000}, {"rebalance_ms": 20_000}, {"rebalance_ms": 7000})
    place = company.join(leader.member_id, rebalance_ms=5000)
    for member in list(company.group.members):
        company.heartbeat(member.member_id, 1)
    company.advance(9_000)
    for member in list(company.group.members):
        company.heartbeat(member.member_id, 1)
    company.advance(9_000)
    for member in list(company.group.members):
        company.heartbeat(member.member_id, 1)
    company.advance(1999)
    assert place.is_waiting
    company.advance(1)
    assert place.value.generation_id == 2
    assert [one.member_id for one in place.value.members] == [leader.member_id]
    assert {name for name in company.alarms if "session" in str(name)} == {("session", leader.member_id)}


def test_a_late_member_with_more_time_moves_nothing(company: Company) -> None:
    leader, _ = company.form({"rebalance_ms": 5000}, {"rebalance_ms": 5000})
    place = company.join(leader.member_id, rebalance_ms=5000)
    company.join(rebalance_ms=500_000)
    company.advance(5000)
    assert place.value.generation_id == 2


def test_who_misses_the_phase_is_unknown_then(company: Company) -> None:
    leader, follower = company.form({"rebalance_ms": 5000}, {"rebalance_ms": 5000})
    company.join(leader.member_id)
    company.advance(60_000)
    assert company.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_comes_back(company: Company) -> None:
    """All dynamic members are absent when the time is over: Empty, with a generation and a record of its own."""
    company.form({"session_ms": 100_000, "rebalance_ms": 5000}, {"session_ms": 100_000, "rebalance_ms": 5000})
    newcomer = company.join(rebalance_ms=5000)
    company.leave(*[member.member_id for member in company.group.members if member.joining])
    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    company.advance(5000)
    assert (company.state(), company.generation) == (State.EMPTY, 2)
    last = company.durable[-1]
    assert (last.generation, last.protocol, last.leader, last.members) == (2, None, None, ())
    assert last.protocol_type == "consumer", "the type is kept"
    assert company.group.leader_id is None
    assert company.alarms == {}, "an empty group waits for nothing"


def test_the_generation_counts_every_phase(company: Company) -> None:
    for generation in range(1, 5):
        assert company.form({})[0].generation_id == 2 * generation - 1
        company.leave(*company.group.members.by_id)
        assert company.generation == 2 * generation


def test_the_record_of_an_empty_group_may_fail(company: Company) -> None:
    """Kafka only logs it: nobody waits."""
    company.form({})
    company.holds_back = True
    company.leave(*company.group.members.by_id)
    company.fail()
    assert company.state() is State.EMPTY


# The vote ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "winner"),
    [
        (["range sticky", "range sticky", "sticky range"], "range"),
        (["sticky range", "sticky range", "range sticky"], "sticky"),
        (["a range", "b range"], "range"),  # only what all offer can be chosen
        (["x range sticky", "y sticky range", "z sticky range"], "sticky"),
        # ties go as Kafka's hash map has it: uniform, sticky, range, roundrobin, cooperative-sticky
        (["range roundrobin", "roundrobin range"], "range"),
        (["roundrobin range", "range roundrobin"], "range"),
        (["range sticky", "sticky range"], "sticky"),
        (["sticky uniform", "uniform sticky"], "uniform"),
        (["cooperative-sticky roundrobin", "roundrobin cooperative-sticky"], "roundrobin"),
    ],
)
def test_the_protocol_with_most_votes_wins(company: Company, votes: list[str], winner: str) -> None:
    joined = company.gather(*[{"protocols": offers(*vote.split())} for vote in votes])
    assert {one.protocol_name for one in joined} == {winner}
    assert [one.metadata for one in joined[0].members] == [winner.encode() + b" v1"] * len(votes)


def test_the_vote_is_taken_anew_each_generation(company: Company) -> None:
    both = {"protocols": offers("sticky", "range")}
    leader, follower = company.form(both, both)
    assert leader.protocol_name == "sticky"
    company.join(leader.member_id, protocols=offers("range"))
    assert company.join(follower.member_id, **both).value.protocol_name == "range"


# The leader ----------------------------------------------------------------------------------------------------------


def test_the_leader_stays_while_it_comes_back(company: Company) -> None:
    leader, follower = company.form({}, {})
    places = [
        company.join(follower.member_id, protocols=offers("range", metadata=b"2")),
        company.join(leader.member_id),
    ]
    assert {place.value.leader for place in places} == {leader.member_id}


def test_another_leads_when_the_leader_leaves(company: Company) -> None:
    leader, *others = company.form({}, {}, {})
    company.leave(leader.member_id)
    places = [company.join(one.member_id) for one in others]
    assert {place.value.leader for place in places} <= {one.member_id for one in others}
    assert len({place.value.leader for place in places}) == 1
    assert sorted(len(place.value.members) for place in places) == [0, 2]


def test_another_leads_when_the_leader_stays_away(company: Company) -> None:
    leader, *others = company.form(*[{"rebalance_ms": 5000, "session_ms": 100_000}] * 3)
    places = [
        company.join(one.member_id, protocols=offers("range", metadata=b"2"), rebalance_ms=5000) for one in others
    ]
    company.advance(5000)
    assert {place.value.leader for place in places} == {others[0].member_id}
    assert leader.member_id not in company.group.members.by_id


def test_a_static_leader_that_stays_away_hands_over_and_stays(company: Company) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = company.form({"instance": "a", **times}, {"instance": "b", **times})
    place = company.join(follower.member_id, instance="b", protocols=offers("range", metadata=b"2"), rebalance_ms=5000)
    company.advance(5000)
    assert place.value.leader == follower.member_id
    assert [one.group_instance_id for one in place.value.members] == ["a", "b"]
    assert leader.member_id in company.group.members.by_id


def test_only_absent_static_members_keep_the_phase_open(company: Company) -> None:
    """Nobody could lead: the phase is extended, until one comes or their sessions end."""
    times = {"rebalance_ms": 5000, "session_ms": 12_000}
    company.form({"instance": "a", **times}, {"instance": "b", **times})
    newcomer = company.join(client="newcomer")
    newcomer_id = next(member.member_id for member in company.group.members if member.joining)
    company.leave(newcomer_id)
    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    company.advance(11_999)
    assert (company.state(), company.generation) == (State.PREPARING_REBALANCE, 1)
    company.advance(1)
    assert (company.state(), company.generation) == (State.EMPTY, 2)
