"""Who is alive and who is not: sessions, and what renews them; heartbeats; the end; the view."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stage.company import Company
from stage.requests import offers

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import DescribedMember, Joined, Synced
from callboard.actors.records import GroupValue, MemberValue


@pytest.fixture
def company() -> Company:
    return Company()


# Sessions ------------------------------------------------------------------------------------------------------------


def test_a_member_that_is_silent_for_its_session_timeout_is_out(company: Company) -> None:
    leader, follower = company.form({"session_ms": 30_000}, {"session_ms": 10_000})
    company.advance(9999)
    assert company.state() is State.STABLE
    company.advance(1)
    assert list(company.group.members.by_id) == [leader.member_id]
    assert company.state() is State.PREPARING_REBALANCE
    assert company.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_file_no_alarm(company: Company) -> None:
    member = company.form({"session_ms": 10_000})[0]
    filed = dict(company.alarms)
    for _ in range(5):
        company.advance(1999)
        assert company.heartbeat(member.member_id, 1) is ErrorCode.NONE
        assert company.alarms == filed, "the alarm stays where it is, and is filed again when it rings"
    company.advance(9_999)
    assert company.state() is State.STABLE
    company.advance(1)
    assert company.state() is State.EMPTY


@pytest.mark.parametrize("state", [State.STABLE, State.PREPARING_REBALANCE])
def test_commits_keep_a_member(company: Company, state: State) -> None:
    leader, follower = company.form(*[{"session_ms": 10_000, "rebalance_ms": 100_000}] * 2)
    if state is State.PREPARING_REBALANCE:
        company.join(leader.member_id, rebalance_ms=100_000)
    company.advance(9000)
    assert company.commit(member_id=follower.member_id, generation_id=1) is ErrorCode.NONE
    company.advance(9999)
    assert follower.member_id in company.group.members.by_id
    company.advance(1)
    assert follower.member_id not in company.group.members.by_id


def test_a_refused_commit_keeps_nobody(company: Company) -> None:
    leader, follower = company.gather({"session_ms": 50_000}, {"session_ms": 10_000})
    company.advance(9000)
    assert company.commit(member_id=follower.member_id, generation_id=1) is ErrorCode.REBALANCE_IN_PROGRESS
    company.advance(1000)
    assert list(company.group.members.by_id) == [leader.member_id]


def test_a_heartbeat_of_an_old_generation_keeps_nobody(company: Company) -> None:
    member = company.form({"session_ms": 10_000})[0]
    company.advance(9000)
    assert company.heartbeat(member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    company.advance(1000)
    assert company.state() is State.EMPTY


def test_who_waits_in_a_join_phase_is_alive(company: Company) -> None:
    leader, _ = company.form(
        {"session_ms": 6000, "rebalance_ms": 100_000}, {"session_ms": 99_000, "rebalance_ms": 100_000}
    )
    place = company.join(leader.member_id, session_ms=6000, rebalance_ms=100_000)
    company.advance(60_000)
    assert place.is_waiting
    company.advance(39_000)
    assert place.value.generation_id == 2, "the other's session ended: all that are left have joined"
    company.advance(5999)
    assert company.state() is State.COMPLETING_REBALANCE
    company.advance(1)
    assert company.state() is State.EMPTY, "the session began anew with the answer"


def test_who_waits_for_an_assignment_is_alive(company: Company) -> None:
    leader, follower = company.gather({"session_ms": 100_000}, {"session_ms": 6000})
    place = company.sync(follower.member_id, 1)
    company.advance(50_000)
    assert place.is_waiting
    assert ("session", follower.member_id) not in company.alarms
    company.sync(leader.member_id, 1)
    assert company.alarms["session", follower.member_id] == company.clock.now_ms + 6000


def test_sessions_may_end_in_one_turn(company: Company) -> None:
    """Both alarms ring together; the group is Empty once, and one record says so."""
    company.form({"session_ms": 10_000}, {"session_ms": 10_000})
    company.durable.clear()
    company.advance(10_000)
    assert (company.state(), company.generation) == (State.EMPTY, 2)
    assert len(company.durable) == 1


def test_the_leaders_session_ends_before_it_assigns(company: Company) -> None:
    _, follower = company.gather({"session_ms": 6000}, {"session_ms": 30_000})
    place = company.sync(follower.member_id, 1)
    company.advance(6000)
    assert place.value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    assert company.join(follower.member_id).value.leader == follower.member_id


def test_static_members_expire_too(company: Company) -> None:
    company.form({"instance": "a", "session_ms": 10_000})
    company.advance(10_000)
    assert company.state() is State.EMPTY
    assert company.group.members.static == {}


def test_an_expiry_may_complete_the_join_phase(company: Company) -> None:
    leader, _ = company.form({"session_ms": 30_000}, {"session_ms": 10_000})
    place = company.join(leader.member_id)
    company.advance(10_000)
    assert place.value.generation_id == 2


def test_an_alarm_that_was_overtaken_does_nothing(company: Company) -> None:
    """What the timer had sent when its member left, or when its deadline was cancelled."""
    leader, follower = company.form({}, {})
    company.leave(follower.member_id)
    for name in (("session", follower.member_id), ("pending", "ghost"), ("join",), ("sync",)):
        company.alarms[name] = company.clock.now_ms
    company.ring()
    assert list(company.group.members.by_id) == [leader.member_id]
    assert (company.state(), company.generation) == (State.PREPARING_REBALANCE, 1)
    assert company.alarms["join",] == company.clock.now_ms + 60_000, "an early alarm is filed again"


# Heartbeats ----------------------------------------------------------------------------------------------------------


def test_the_order_of_a_heartbeats_checks(company: Company) -> None:
    one, two = company.form({"instance": "i"}, {})
    assert company.heartbeat("ghost", 9, instance="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.heartbeat("ghost", 9, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert company.heartbeat(two.member_id, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert company.heartbeat("ghost", 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.heartbeat("", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.heartbeat(one.member_id, 2, instance="i") is ErrorCode.ILLEGAL_GENERATION
    assert company.heartbeat(one.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert company.heartbeat(one.member_id, 1, instance="i") is ErrorCode.NONE
    assert company.heartbeat(one.member_id, 1) is ErrorCode.NONE, "its instance id may stay away"


def test_an_empty_group_hears_no_heartbeat(company: Company) -> None:
    assert company.heartbeat("ghost", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.heartbeat("", -1) is ErrorCode.UNKNOWN_MEMBER_ID


# Commits -------------------------------------------------------------------------------------------------------------


def test_a_simple_consumer_commits_while_the_group_is_empty(company: Company) -> None:
    """Rule 2: without a generation, who asks is not looked at."""
    assert company.commit() is ErrorCode.NONE
    assert company.commit(member_id="ghost", instance="nobody") is ErrorCode.NONE
    pending = company.join(version=4).value.member_id
    assert company.commit(member_id=pending) is ErrorCode.NONE, "a pending member is nobody, as seen on a real Kafka"


def test_a_generation_needs_a_member(company: Company) -> None:
    """Rules 3 to 5 in an empty group."""
    assert company.commit(generation_id=0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.commit(generation_id=0, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.commit(generation_id=1, member_id="ghost") is ErrorCode.UNKNOWN_MEMBER_ID


def prepare(company: Company) -> list[Joined]:
    joined = company.form({"instance": "i"}, {})
    company.join(joined[1].member_id, protocols=offers("range", metadata=b"2"))
    return joined


def complete(company: Company) -> list[Joined]:
    return company.gather({"instance": "i"}, {})


def settle(company: Company) -> list[Joined]:
    return company.form({"instance": "i"}, {})


@pytest.mark.parametrize(
    ("way", "fine"),
    [(prepare, ErrorCode.NONE), (complete, ErrorCode.REBALANCE_IN_PROGRESS), (settle, ErrorCode.NONE)],
)
def test_the_order_of_a_commits_checks(
    company: Company, way: Callable[[Company], list[Joined]], fine: ErrorCode
) -> None:
    """Rules 3 to 9 in a group with members: identity, generation, then the state."""
    one, two = way(company)
    unknown, fenced, old = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION
    assert company.commit(member_id=one.member_id, generation_id=1, instance="j") is unknown
    assert company.commit(member_id=two.member_id, generation_id=1, instance="i") is fenced
    assert company.commit(generation_id=1, instance="i") is fenced
    assert company.commit(member_id="ghost", generation_id=1) is unknown
    assert company.commit(generation_id=1) is unknown
    assert company.commit(member_id=one.member_id, generation_id=0) is old
    assert company.commit(member_id=one.member_id, generation_id=2, instance="i") is old
    assert company.commit(member_id=one.member_id, generation_id=-1) is old
    assert company.commit(instance="i") is fenced
    assert company.commit(instance="j") is unknown
    assert company.commit() is unknown, "rule 7: a simple consumer has no place among members"
    assert company.commit(member_id=one.member_id, generation_id=1, instance="i") is fine
    assert company.commit(member_id=two.member_id, generation_id=1) is fine


# Loading -------------------------------------------------------------------------------------------------------------

KEPT = GroupValue(
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


def test_a_loaded_group_is_where_the_log_ends(company: Company) -> None:
    company.load(KEPT)
    assert (company.state(), company.generation) == (State.STABLE, 7)
    assert company.group._value() == KEPT
    assert company.sync("b", 7, instance="i").value.assignment == b"part b"
    assert company.heartbeat("a", 7) is ErrorCode.NONE


def test_loaded_sessions_begin_anew(company: Company) -> None:
    company.load(KEPT)
    company.advance(9999)
    assert len(company.group.members) == 2
    company.advance(1)
    assert list(company.group.members.by_id) == ["b"]
    company.advance(10_000)
    assert (company.state(), company.generation) == (State.EMPTY, 8)


def test_a_loaded_group_without_members_is_empty(company: Company) -> None:
    company.load(KEPT._replace(members=(), leader=None, protocol=None))
    assert (company.state(), company.generation) == (State.EMPTY, 7)
    place = company.join()
    company.advance(3000)
    assert place.value.generation_id == 8


def test_a_loaded_member_knows_the_one_protocol_that_was_chosen(company: Company) -> None:
    company.load(KEPT)
    assert company.join(protocols=offers("sticky")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert company.join("b", instance="i", protocols=offers("range")).is_waiting, "its metadata is not what was kept"


# The end -------------------------------------------------------------------------------------------------------------


def test_closing_answers_everybody(company: Company) -> None:
    leader, follower = company.form({}, {})
    joining = company.join(leader.member_id)
    company.close(ErrorCode.NOT_COORDINATOR)
    assert joining.value == Joined(ErrorCode.NOT_COORDINATOR, member_id=leader.member_id)
    assert company.state() is State.DEAD
    assert company.alarms == {}
    assert company.heartbeat(follower.member_id, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_closing_answers_who_waits_for_an_assignment(company: Company) -> None:
    _, follower = company.gather({}, {})
    company.join(version=4)
    syncing = company.sync(follower.member_id, 1)
    company.close(ErrorCode.NOT_COORDINATOR)
    assert syncing.value == Synced(ErrorCode.NOT_COORDINATOR)
    assert company.alarms == {}, "not even a pending id's"


def test_the_dead_say_so_before_anything_else(company: Company) -> None:
    """Whatever the sender got wrong, or right: it must look for another coordinator."""
    member = company.form({"instance": "i"})[0]
    company.close(ErrorCode.NOT_COORDINATOR)
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for member_id in (member.member_id, "ghost"):
        for generation in (1, 0):
            for instance in (None, "i", "j"):
                assert company.heartbeat(member_id, generation, instance=instance) is gone
                assert company.sync(member_id, generation, instance=instance).error is gone
                commit = company.commit(member_id=member_id, generation_id=generation, instance=instance)
                assert commit is gone
                assert company.join(member_id, instance=instance).error is gone
    assert company.commit() is gone
    assert company.join().error is gone
    assert company.leave(member.member_id).error is gone


def test_the_dead_wait_for_nothing(company: Company) -> None:
    """A heartbeat that was on its way when the group closed must not bring a session back."""
    member = company.form({})[0]
    company.close(ErrorCode.NOT_COORDINATOR)
    company.heartbeat(member.member_id, 1)
    company.commit(member_id=member.member_id, generation_id=1)
    assert company.alarms == {}
    company.advance(100_000)
    assert company.state() is State.DEAD


def test_a_record_that_arrives_after_the_end_changes_nothing(company: Company) -> None:
    leader = company.gather({})[0]
    company.holds_back = True
    place = company.sync(leader.member_id, 1)
    company.close(ErrorCode.NOT_COORDINATOR)
    assert place.error is ErrorCode.NOT_COORDINATOR
    company.keep()
    assert company.state() is State.DEAD


# The view ------------------------------------------------------------------------------------------------------------


def test_a_stable_group_shows_everything(company: Company) -> None:
    member = company.form({"instance": "i", "host": "/9.9.9.9"})[0]
    described = company.group.describe()
    part = b"of " + member.member_id.encode()
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert described.members == (DescribedMember(member.member_id, "i", "m0", "/9.9.9.9", b"range v1", part),)


def test_between_generations_metadata_is_not_shown_and_assignments_are(company: Company) -> None:
    member = company.form({})[0]
    company.join(version=4)
    company.join(member.member_id)
    described = company.group.describe()
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [(one.metadata, one.assignment[:3]) for one in described.members] == [(b"", b"of ")]


def test_an_empty_and_a_dead_group(company: Company) -> None:
    assert company.group.describe()[2:] == ("Empty", "", "", (), None)
    company.form({})
    company.close(ErrorCode.NOT_COORDINATOR)
    assert company.group.describe()[:3] == (ErrorCode.NONE, "company", "Dead")
    assert company.group.describe().members == ()
