"""Static members (KIP-345, KIP-814): back without a member id, they take over from their former selves."""

from __future__ import annotations

from typing import Any

import pytest
from stage.company import Company
from stage.requests import offers

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, JoinedMember, Synced

TIMES: dict[str, Any] = {"rebalance_ms": 20_000, "session_ms": 30_000}


@pytest.fixture
def company() -> Company:
    return Company()


def pair(company: Company) -> list[Joined]:
    return company.form({"instance": "a", **TIMES}, {"instance": "b", **TIMES})


def test_a_follower_is_back_and_nobody_rebalances(company: Company) -> None:
    leader, follower = pair(company)
    company.holds_back = True
    place = company.join(instance="b", version=9, **TIMES)
    assert place.is_waiting, "not before it is durable"
    assert company.state() is State.STABLE
    company.keep()
    new_id = place.value.member_id
    assert new_id != follower.member_id
    assert new_id.startswith("b-")
    assert place.value == Joined(ErrorCode.NONE, new_id, 1, "consumer", "range", leader.member_id, (), False)
    assert company.sync(new_id, 1, instance="b").value.assignment == b"of " + follower.member_id.encode()


def test_the_takeover_is_in_the_log(company: Company) -> None:
    leader, follower = pair(company)
    place = company.join(
        instance="b", version=9, client="other", host="/10.9.9.9", protocols=offers("range", metadata=b"2"), **TIMES
    )
    last = company.durable[-1]
    assert (last.generation, last.leader, last.protocol) == (1, leader.member_id, "range")
    kept = next(member for member in last.members if member.group_instance_id == "b")
    assert kept.member_id == place.value.member_id
    assert kept.assignment == b"of " + follower.member_id.encode()
    assert kept.subscription == b"range 2"
    assert (kept.client_id, kept.client_host) == ("m1", "/127.0.0.1"), "those of its former self, as in Kafka"


def test_a_leader_of_today_learns_that_it_leads_and_may_skip(company: Company) -> None:
    """v9+: it gets the list, so that it can watch the topics, and need not assign."""
    _, follower = pair(company)
    place = company.join(instance="a", version=9, **TIMES)
    me = place.value.member_id
    members = {JoinedMember(me, "a", b"range v1"), JoinedMember(follower.member_id, "b", b"range v1")}
    assert (place.value.leader, place.value.skip_assignment) == (me, True)
    assert set(place.value.members) == members
    assert company.group.leader_id == me


def test_a_leader_of_old_is_told_its_former_id(company: Company) -> None:
    """Below v9: it would assign anew if it knew that it leads."""
    leader, _ = pair(company)
    place = company.join(instance="a", version=8, **TIMES)
    assert (place.value.leader, place.value.members, place.value.skip_assignment) == (leader.member_id, (), False)
    assert company.group.leader_id == place.value.member_id


def test_the_former_self_is_fenced(company: Company) -> None:
    _, follower = pair(company)
    company.join(instance="b", version=9, **TIMES)
    old = follower.member_id
    assert company.heartbeat(old, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert company.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.sync(old, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert company.commit(member_id=old, generation_id=1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert company.join(old, instance="b").error is ErrorCode.FENCED_INSTANCE_ID


def test_what_the_former_self_waits_for_is_answered_fenced(company: Company) -> None:
    leader, follower = pair(company)
    joining = company.join(leader.member_id, instance="a", **TIMES)
    company.join(instance="a", version=9, **TIMES)
    assert joining.value == Joined(ErrorCode.FENCED_INSTANCE_ID, member_id=leader.member_id)
    company.join(follower.member_id, instance="b", **TIMES)
    assert company.state() is State.COMPLETING_REBALANCE
    syncing = company.sync(follower.member_id, 2, instance="b")
    company.join(instance="b", version=9, **TIMES)
    assert syncing.value == Synced(ErrorCode.FENCED_INSTANCE_ID)
    assert company.state() is State.PREPARING_REBALANCE


def test_a_takeover_that_changes_the_vote_rebalances(company: Company) -> None:
    both = {"protocols": offers("range", "sticky"), **TIMES}
    _, follower = company.form({"instance": "a", **both}, {"instance": "b", **both})
    company.durable.clear()
    place = company.join(instance="a", version=9, protocols=offers("sticky"), **TIMES)
    assert place.is_waiting
    assert company.state() is State.PREPARING_REBALANCE
    assert not company.durable
    company.join(follower.member_id, instance="b", **both)
    assert (place.value.protocol_name, place.value.generation_id) == ("sticky", 2)


def test_a_takeover_during_the_join_phase_is_a_join(company: Company) -> None:
    leader, _follower = pair(company)
    first = company.join(leader.member_id, instance="a", **TIMES)
    second = company.join(instance="b", version=9, **TIMES)
    assert first.value.generation_id == second.value.generation_id == 2
    assert {one.member_id for one in first.value.members} == {leader.member_id, second.value.member_id}


def test_a_known_static_member_rejoins_like_any_other(company: Company) -> None:
    leader, follower = pair(company)
    assert company.join(follower.member_id, instance="b", **TIMES).value.generation_id == 1
    assert company.join(leader.member_id, instance="a", **TIMES).is_waiting


def test_a_static_member_that_stays_away_keeps_its_place(company: Company) -> None:
    leader, follower = pair(company)
    place = company.join(leader.member_id, instance="a", **TIMES)
    company.advance(20_000)
    assert {one.member_id for one in place.value.members} == {leader.member_id, follower.member_id}
    assert follower.member_id in company.group.pending_sync, "it must sync like all"


@pytest.mark.parametrize("rebalance_ms", [0, -1, 20])
def test_members_that_allow_no_time_keep_nobody_busy(company: Company, rebalance_ms: int) -> None:
    """Only absent static members: the group looks now and then until their sessions end, and at once if one comes."""
    company.form({"instance": "a", **TIMES})
    company.join(instance="a", rebalance_ms=rebalance_ms, session_ms=100_000)
    place = company.join(client="early", **TIMES)
    company.advance(20_000)
    company.leave(place.value.member_id)
    looks, end_ms = 0, company.clock.now_ms + 60_000
    while company.clock.now_ms < end_ms:
        company.advance_to_next_alarm()
        looks += 1
    assert company.state() is State.PREPARING_REBALANCE
    assert looks <= 70, "once a second"
    place = company.join(client="late", rebalance_ms=60_000)
    company.advance(max(rebalance_ms, 0))
    assert place.error is ErrorCode.NONE
    assert {one.group_instance_id for one in place.value.members} == {"a", None}
    assert company.group.leader_id == place.value.member_id


def test_an_empty_instance_id_is_one(company: Company) -> None:
    """Kafka gives such a member an id that begins with nothing, not with its client's id."""
    [member] = company.form({"instance": ""})
    assert member.member_id.startswith("-")
    assert company.join(instance="").value.generation_id == 1
    assert company.heartbeat(member.member_id, 1, instance="") is ErrorCode.FENCED_INSTANCE_ID


def test_the_session_of_the_new_self_runs_and_the_old_alarm_does_nothing(company: Company) -> None:
    leader, _ = pair(company)
    company.advance(20_000)
    company.heartbeat(leader.member_id, 1, instance="a")
    place = company.join(instance="b", version=9, **TIMES)
    company.advance(29_999)
    assert place.value.member_id in company.group.members.by_id
    company.advance(1)
    assert len(company.group.members) == 0


def test_a_new_self_that_waits_for_the_others_is_alive(company: Company) -> None:
    """It took over from a member that was itself new: five minutes are for those who join for the first time."""
    times = {"rebalance_ms": 200_000, "session_ms": 100_000}
    leader = company.form(times)[0]
    company.join(instance="b", rebalance_ms=200_000, session_ms=10_000)
    place = company.join(instance="b", rebalance_ms=200_000, session_ms=10_000)
    company.advance(50_000)
    assert place.is_waiting
    company.join(leader.member_id, **times)
    assert place.value.generation_id == 2


def test_a_new_self_owes_the_sync_of_its_former_self(company: Company) -> None:
    """It syncs in time, so the deadline is off and nobody rebalances."""
    times: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = company.gather(times, {"instance": "b", **times})
    company.sync(leader.member_id, 1)
    place = company.join(instance="b", version=9, **times)
    assert company.group.pending_sync == {place.value.member_id}
    company.sync(place.value.member_id, 1, instance="b")
    assert ("sync",) not in company.alarms
    company.advance(50_000)
    assert company.state() is State.STABLE


# The record cannot be kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_takeover_that_cannot_be_kept_is_taken_back(company: Company, who: str) -> None:
    leader, follower = pair(company)
    company.holds_back = True
    place = company.join(
        instance=who, version=9, session_ms=6000, rebalance_ms=7000, protocols=offers("range", metadata=b"2")
    )
    company.fail(ErrorCode.NOT_COORDINATOR)
    assert place.value == Joined(ErrorCode.NOT_COORDINATOR, "", 1, "consumer", "range", leader.member_id, (), False)
    assert company.group.members.static == {"a": leader.member_id, "b": follower.member_id}
    assert company.group.leader_id == leader.member_id
    old = leader if who == "a" else follower
    member = company.group.members.by_id[old.member_id]
    assert member.protocols == offers("range")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 20_000)
    assert company.heartbeat(old.member_id, 1, instance=who) is ErrorCode.NONE
    company.advance(29_999)
    assert len(company.group.members) == 2
    company.advance(1)
    assert len(company.group.members) == 0


def test_a_second_takeover_before_the_first_is_durable(company: Company) -> None:
    pair(company)
    company.holds_back = True
    first = company.join(instance="b", version=9, **TIMES)
    second = company.join(instance="b", version=9, **TIMES)
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    company.keep()
    assert second.is_waiting
    company.keep()
    assert second.value.generation_id == 1
    assert company.group.members.static["b"] == second.value.member_id


def test_a_leaver_whose_takeover_is_not_durable_is_answered(company: Company) -> None:
    pair(company)
    company.holds_back = True
    place = company.join(instance="b", version=9, **TIMES)
    company.leave(*[member.member_id for member in company.group.members if member.joining])
    assert place.error is ErrorCode.UNKNOWN_MEMBER_ID
    company.keep()
    assert "b" not in company.group.members.static


def test_a_rebalance_comes_before_the_record_and_the_record_fails(company: Company) -> None:
    """The next generation has the new self in it already: there is nothing to go back to, and nobody is fenced."""
    leader, _ = pair(company)
    company.holds_back = True
    place = company.join(instance="b", version=9, **TIMES)
    company.join(leader.member_id, instance="a", **TIMES)
    assert place.value.generation_id == 2
    syncing = company.sync(place.value.member_id, 2, instance="b")
    company.fail()
    assert syncing.is_waiting
    assert company.group.members.static["b"] == place.value.member_id
    company.sync(leader.member_id, 2, {place.value.member_id: b"part"}, instance="a")
    company.keep()
    assert syncing.value.assignment == b"part"


def test_going_back_never_leaves_a_group_without_a_common_protocol(company: Company) -> None:
    """A newcomer shares only what the new self brought; then the record fails."""
    company.form({"instance": "a", **TIMES})
    company.holds_back = True
    company.join(instance="a", version=9, protocols=offers("range", "uniform"), **TIMES)
    newcomer = company.join(protocols=offers("uniform"), **TIMES)
    assert (newcomer.value.generation_id, newcomer.value.protocol_name) == (2, "uniform")
    company.fail()
    assert all("uniform" in {offer.name for offer in member.protocols} for member in company.group.members)


def test_a_record_fails_while_the_others_join(company: Company) -> None:
    """The new self's JoinGroup is part of the open phase by now, and is answered with it."""
    leader, _ = pair(company)
    company.holds_back = True
    place = company.join(instance="b", version=9, **TIMES)
    company.join(**TIMES)
    assert company.state() is State.PREPARING_REBALANCE
    company.fail()
    company.join(leader.member_id, instance="a", **TIMES)
    assert place.value.generation_id == 2


def test_a_takeover_fails_after_the_group_has_closed(company: Company) -> None:
    pair(company)
    company.holds_back = True
    place = company.join(instance="b", version=9, **TIMES)
    company.close(ErrorCode.NOT_COORDINATOR)
    assert place.error is ErrorCode.NOT_COORDINATOR
    company.fail()
    assert company.alarms == {}, "the dead wait for nothing"


def test_the_sync_deadline_comes_before_the_record(company: Company) -> None:
    """A follower that never synced is back, parked on its record, and its time to sync runs out: it must hear so."""
    times: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 100_000}
    leader, _ = company.gather(times, {"instance": "b", **times})
    company.sync(leader.member_id, 1)
    assert company.state() is State.STABLE
    company.holds_back = True
    place = company.join(instance="b", version=9, **times)
    company.advance(5000)
    assert not place.is_waiting
