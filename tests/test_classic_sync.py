"""SyncGroup: parked until the leader's assignment is durable, and what becomes of it when something comes between."""

from __future__ import annotations

from typing import Any

import pytest
from stage.company import Company
from stage.requests import offers

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Synced
from callboard.actors.records import MemberValue


@pytest.fixture
def company() -> Company:
    """Nothing is durable before the test says so."""
    return Company(holds_back=True)


def parts(*members: Any) -> dict[str, bytes]:
    return {member.member_id: b"of " + member.member_id.encode() for member in members}


def test_nobody_is_answered_before_the_assignment_is_durable(company: Company) -> None:
    leader, follower = company.gather({}, {})
    places = [company.sync(follower.member_id, 1), company.sync(leader.member_id, 1, parts(leader, follower))]
    assert all(place.is_waiting for place in places)
    assert company.state() is State.COMPLETING_REBALANCE
    assert all(member.assignment == b"" for member in company.group.members)
    company.keep()
    expected = [b"of " + one.member_id.encode() for one in (follower, leader)]
    assert [place.value for place in places] == [Synced(ErrorCode.NONE, "consumer", "range", part) for part in expected]
    assert company.state() is State.STABLE


def test_only_the_leader_writes(company: Company) -> None:
    leader, follower = company.gather({}, {})
    company.sync(follower.member_id, 1, parts(leader, follower))
    assert not company.on_its_way
    company.sync(leader.member_id, 1, parts(leader, follower))
    assert len(company.on_its_way) == 1


def test_the_record_holds_the_generation(company: Company) -> None:
    leader, follower = company.gather({"host": "/10.0.0.1", "instance": "i"}, {"session_ms": 7000})
    at_ms = company.clock.wall_ms()
    company.advance(5)
    company.sync(leader.member_id, 1, parts(leader, follower), instance="i")
    value = company.on_its_way[0].record.value
    assert value is not None
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    assert (value.leader, value.current_state_timestamp_ms) == (leader.member_id, at_ms)
    part = b"of " + leader.member_id.encode()
    expected = MemberValue(leader.member_id, "i", "m0", "/10.0.0.1", 60_000, 10_000, b"range v1", part)
    assert value.members[0] == expected
    assert value.members[1].session_timeout_ms == 7000


def test_whom_the_leader_forgot_gets_nothing_and_strangers_are_ignored(company: Company) -> None:
    leader, follower = company.gather({}, {})
    place = company.sync(follower.member_id, 1)
    company.sync(leader.member_id, 1, {leader.member_id: b"all", "ghost": b"some"})
    company.keep()
    assert place.value == Synced(ErrorCode.NONE, "consumer", "range", b"")
    assert [member.assignment for member in company.durable[-1].members] == [b"all", b""]


def test_who_syncs_later_is_answered_at_once(company: Company) -> None:
    leader, follower = company.gather({}, {})
    company.sync(leader.member_id, 1, parts(leader, follower))
    company.keep()
    assert company.state() is State.STABLE
    place = company.sync(follower.member_id, 1)
    assert place.value.assignment == b"of " + follower.member_id.encode()
    again = company.sync(leader.member_id, 1, {leader.member_id: b"other"})
    assert again.value.assignment == b"of " + leader.member_id.encode(), "a settled generation is not assigned anew"
    assert not company.on_its_way


# What comes between --------------------------------------------------------------------------------------------------


def test_a_rebalance_answers_who_is_parked(company: Company) -> None:
    leader, follower = company.gather({}, {})
    places = [company.sync(follower.member_id, 1), company.sync(leader.member_id, 1, parts(leader, follower))]
    company.join(client="newcomer")
    assert [place.value for place in places] == [Synced(ErrorCode.REBALANCE_IN_PROGRESS)] * 2
    company.keep()
    assert company.state() is State.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in company.group.members)


def test_the_record_of_an_old_generation_is_ignored(company: Company) -> None:
    """It is durable after the next generation has begun: the new one waits for its own."""
    leader, follower = company.gather({}, {})
    company.sync(leader.member_id, 1, parts(leader, follower))
    company.join(leader.member_id, protocols=offers("range", metadata=b"2"))
    company.join(follower.member_id)
    assert (company.state(), company.generation) == (State.COMPLETING_REBALANCE, 2)
    place = company.sync(follower.member_id, 2)
    company.keep()
    assert place.is_waiting
    assert company.state() is State.COMPLETING_REBALANCE
    company.sync(leader.member_id, 2, {follower.member_id: b"new"})
    company.keep()
    assert place.value.assignment == b"new"


def test_the_failure_of_an_old_generation_is_ignored(company: Company) -> None:
    leader, follower = company.gather({}, {})
    company.sync(leader.member_id, 1, parts(leader, follower))
    company.join(leader.member_id, protocols=offers("range", metadata=b"2"))
    company.join(follower.member_id)
    place = company.sync(follower.member_id, 2)
    company.fail()
    assert place.is_waiting
    assert company.state() is State.COMPLETING_REBALANCE


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_append_failure_answers_all_and_rebalances(company: Company, error: ErrorCode) -> None:
    leader, follower = company.gather({}, {})
    places = [company.sync(follower.member_id, 1), company.sync(leader.member_id, 1, parts(leader, follower))]
    company.fail(error)
    assert [place.value for place in places] == [Synced(error)] * 2
    assert company.state() is State.PREPARING_REBALANCE
    answers = [company.join(one.member_id) for one in (leader, follower)]
    assert [place.value.generation_id for place in answers] == [2, 2]


def test_two_syncs_of_the_leader_lead_to_what_the_log_says(company: Company) -> None:
    """The leader sent another assignment before the first was durable. What members hear must survive a restart."""
    leader, follower = company.gather({}, {})
    company.sync(leader.member_id, 1, {follower.member_id: b"first"})
    place = company.sync(follower.member_id, 1)
    company.sync(leader.member_id, 1, {follower.member_id: b"second"})
    while company.on_its_way:
        company.keep()
    kept = {member.member_id: member.assignment for member in company.durable[-1].members}
    assert place.value.assignment == kept[follower.member_id]
    assert company.group.members.by_id[follower.member_id].assignment == kept[follower.member_id]


def test_a_second_sync_replaces_the_first(company: Company) -> None:
    leader, follower = company.gather({}, {})
    first, second = company.sync(follower.member_id, 1), company.sync(follower.member_id, 1)
    company.sync(leader.member_id, 1, parts(leader, follower))
    company.keep()
    assert first.is_waiting
    assert second.error is ErrorCode.NONE


# Checks --------------------------------------------------------------------------------------------------------------


def test_the_order_of_the_checks(company: Company) -> None:
    """Instance id, member id, generation, protocol; then the state."""
    leader, follower = company.gather({"instance": "i"}, {})

    def error(member_id: str, generation: int, **options: Any) -> ErrorCode:
        return company.sync(member_id, generation, **options).error

    assert error("ghost", 9, instance="j", protocol_name="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error("ghost", 9, instance="i", protocol_name="x") is ErrorCode.FENCED_INSTANCE_ID
    assert error(follower.member_id, 9, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert error("ghost", 9, protocol_name="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(leader.member_id, 9, protocol_name="x") is ErrorCode.ILLEGAL_GENERATION
    assert error(leader.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert error(leader.member_id, 1, protocol_name="x") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(leader.member_id, 1, protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert company.sync(leader.member_id, 1, protocol_type="consumer", protocol_name="range").is_waiting


def test_who_is_refused_still_owes_its_sync(company: Company) -> None:
    leader, _ = company.gather({}, {})
    company.sync(leader.member_id, 1, protocol_name="x")
    assert leader.member_id in company.group.pending_sync


def test_versions_without_protocol_fields_are_not_checked(company: Company) -> None:
    leader = company.gather({})[0]
    assert company.sync(leader.member_id, 1, protocol_type=None, protocol_name=None).is_waiting


def test_while_others_join_a_sync_is_refused(company: Company) -> None:
    company.holds_back = False
    leader, follower = company.form({}, {})
    company.join(leader.member_id)
    assert company.sync(follower.member_id, 1).value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)


def test_an_empty_group_knows_nobody(company: Company) -> None:
    assert company.sync("ghost", 0).value == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


# The sync deadline ---------------------------------------------------------------------------------------------------


def test_who_never_syncs_is_out(company: Company) -> None:
    """KAFKA-12890: a leader that dies after its JoinGroup must not hold the others for ever."""
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    _leader, follower = company.gather(times, times)
    place = company.sync(follower.member_id, 1)
    company.advance(4999)
    assert place.is_waiting
    company.advance(1)
    assert place.value == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    assert list(company.group.members.by_id) == [follower.member_id]
    assert company.join(follower.member_id).value.leader == follower.member_id


def test_static_members_that_never_sync_are_out_too(company: Company) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = company.gather(times, {"instance": "i", **times})
    company.sync(leader.member_id, 1)
    company.keep()
    assert company.state() is State.STABLE
    company.advance(5000)
    assert list(company.group.members.by_id) == [leader.member_id]
    assert company.state() is State.PREPARING_REBALANCE


def test_the_deadline_is_off_when_all_have_synced(company: Company) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = company.gather(times, times)
    company.sync(leader.member_id, 1)
    company.sync(follower.member_id, 1)
    assert ("sync",) not in company.alarms
    company.keep()
    company.advance(50_000)
    assert company.state() is State.STABLE


def test_each_generation_has_its_own_deadline(company: Company) -> None:
    times = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, follower = company.gather(times, times)
    company.advance(4000)
    company.join(leader.member_id, protocols=offers("range", metadata=b"2"), rebalance_ms=5000)
    company.join(follower.member_id, rebalance_ms=5000)
    company.advance(4999)
    assert len(company.group.members) == 2
    company.advance(1)
    assert len(company.group.members) == 0


def test_a_sync_that_is_answered_starts_the_session_anew(company: Company) -> None:
    leader, follower = company.gather({"session_ms": 10_000}, {"session_ms": 10_000})
    company.sync(follower.member_id, 1)
    company.advance(9000)
    company.sync(leader.member_id, 1)
    company.keep()
    company.advance(9999)
    assert len(company.group.members) == 2
    company.advance(1)
    assert len(company.group.members) == 0


def test_a_sync_of_a_stable_group_touches_no_session(company: Company) -> None:
    leader, follower = company.gather({"session_ms": 10_000}, {"session_ms": 10_000})
    company.sync(leader.member_id, 1)
    company.keep()
    company.advance(9000)
    company.heartbeat(leader.member_id, 1)
    company.sync(follower.member_id, 1)
    company.advance(1000)
    assert list(company.group.members.by_id) == [leader.member_id]
