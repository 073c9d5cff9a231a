"""JoinGroup of a classic group: the order of the checks, new and known members, pending ids, full groups."""

from __future__ import annotations

import re
from typing import Any

import pytest
from stage.company import Company
from stage.ports import Place
from stage.requests import SESSION_MS, offers

from callboard.actors.errors import ErrorCode
from callboard.actors.group.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, JoinedMember

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def company() -> Company:
    return Company()


def refused(place: Place, error: ErrorCode, member_id: str = "") -> None:
    """Kafka's body of an answer that is only an error."""
    assert place.value == Joined(error, member_id, -1, None, None, "", (), False)


# New members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_an_old_client_is_a_member_at_once(company: Company, version: int) -> None:
    place = company.join(version=version, client="rack-7")
    assert place.is_waiting
    assert company.state() is State.PREPARING_REBALANCE
    company.advance(3000)
    assert re.fullmatch(rf"rack-7-{UUID}", place.value.member_id)


def test_the_first_member_leads_generation_one(company: Company) -> None:
    place = company.join(client="solo")
    company.advance(3000)
    me = place.value.member_id
    assert place.value == Joined(
        ErrorCode.NONE, me, 1, "consumer", "range", me, (JoinedMember(me, None, b"range v1"),), False
    )


@pytest.mark.parametrize("version", [4, 9])
def test_a_newer_client_gets_its_id_first(company: Company, version: int) -> None:
    """KIP-394: a lost answer leaves no ghost behind. The group is still Empty."""
    place = company.join(version=version, client="c")
    assert re.fullmatch(rf"c-{UUID}", place.value.member_id)
    refused(place, ErrorCode.MEMBER_ID_REQUIRED, place.value.member_id)
    assert company.state() is State.EMPTY
    again = company.join(place.value.member_id, version=version)
    assert again.is_waiting
    company.advance(3000)
    assert again.value.member_id == place.value.member_id
    assert company.group.members.pending == {}


def test_ids_differ(company: Company) -> None:
    ids = {company.join(version=4).value.member_id for _ in range(50)}
    assert len(ids) == 50


def test_a_static_member_never_gets_its_id_first(company: Company) -> None:
    place = company.join(version=9, instance="stage-left", client="c")
    assert place.is_waiting
    company.advance(3000)
    assert re.fullmatch(rf"stage-left-{UUID}", place.value.member_id)
    assert place.value.members[0].group_instance_id == "stage-left"


def test_a_pending_id_is_forgotten_after_the_requests_session_timeout(company: Company) -> None:
    place = company.join(version=4, session_ms=7000)
    company.advance(6999)
    assert list(company.group.members.pending) == [place.value.member_id]
    company.advance(1)
    assert company.group.members.pending == {}
    refused(company.join(place.value.member_id), ErrorCode.UNKNOWN_MEMBER_ID, place.value.member_id)


def test_a_pending_member_is_no_member_yet(company: Company) -> None:
    member_id = company.join(version=4).value.member_id
    assert company.heartbeat(member_id, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.sync(member_id, 0).error is ErrorCode.UNKNOWN_MEMBER_ID
    company.advance(SESSION_MS)
    assert company.group.members.pending == {}, "its heartbeat does not keep it"


def test_a_pending_id_that_joins_as_static_is_unknown(company: Company) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR; no client does it."""
    member_id = company.join(version=4).value.member_id
    refused(company.join(member_id, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    assert company.group.members.pending


def test_the_join_phase_waits_for_pending_members(company: Company) -> None:
    """A handed-out id is a promise: the phase ends when it has joined, or when it is forgotten."""
    first = company.form({})[0]
    pending = company.join(version=4).value.member_id
    again = company.join(first.member_id)
    assert again.is_waiting
    joined = company.join(pending)
    assert again.value.generation_id == joined.value.generation_id == 2


def test_a_join_phase_ends_when_the_last_pending_id_expires(company: Company) -> None:
    first = company.form({"session_ms": 30_000})[0]
    company.join(version=4, session_ms=7000)
    again = company.join(first.member_id, session_ms=30_000)
    company.advance(6999)
    assert again.is_waiting
    company.advance(1)
    assert again.value.generation_id == 2


# Protocols -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"protocol_type": ""}, {"protocols": ()}])
def test_the_first_member_must_bring_a_protocol(company: Company, wrong: dict[str, Any]) -> None:
    refused(company.join(**wrong), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert len(company.group.members) == 0


@pytest.mark.parametrize(
    "wrong", [{"protocol_type": "connect"}, {"protocols": offers("sticky")}, {"protocols": ()}, {"protocol_type": ""}]
)
@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_a_newcomer_must_share_a_protocol(company: Company, state: State, wrong: dict[str, Any]) -> None:
    if state is State.PREPARING_REBALANCE:
        company.join(protocols=offers("range", "roundrobin"))
    else:
        (company.gather if state is State.COMPLETING_REBALANCE else company.form)({})
    assert company.state() is state
    refused(company.join(**wrong), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert company.state() is state, "a refused newcomer disturbs nobody"


def test_one_protocol_in_common_is_enough_and_all_must_have_it(company: Company) -> None:
    company.join(protocols=offers("sticky", "range"))
    company.join(protocols=offers("range", "roundrobin"))
    refused(company.join(protocols=offers("roundrobin", "sticky")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert company.join(protocols=offers("uniform", "range")).is_waiting


def test_a_member_counts_with_its_old_protocols(company: Company) -> None:
    """Kafka counts the requester too, as it was: alone, a member cannot change to something quite new."""
    member = company.form({"protocols": offers("range")})[0]
    refused(
        company.join(member.member_id, protocols=offers("sticky")),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        member.member_id,
    )
    assert company.join(member.member_id, protocols=offers("sticky", "range")).value.protocol_name == "sticky"


def test_pending_members_bind_nobody(company: Company) -> None:
    """Only the second join decides which protocols a group has."""
    pending = company.join(version=4, protocol_type="consumer").value.member_id
    company.join(protocol_type="connect", protocols=offers("compatible"))
    refused(company.join(pending), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, pending)


def test_an_empty_group_takes_another_protocol_type(company: Company) -> None:
    member = company.form({})[0]
    company.leave(member.member_id)
    assert company.state() is State.EMPTY
    place = company.join(protocol_type="connect", protocols=offers("compatible"))
    company.advance(3000)
    assert (place.value.protocol_type, place.value.protocol_name) == ("connect", "compatible")


# Known members -------------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_refused_whatever_the_state(company: Company) -> None:
    refused(company.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    company.join()
    refused(company.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    company.advance(3000)
    refused(company.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")


def test_the_protocol_check_comes_before_the_identity(company: Company) -> None:
    company.form({})
    refused(company.join("ghost", protocols=offers("x")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "ghost")


def test_instance_ids_are_checked_before_member_ids(company: Company) -> None:
    member = company.form({"instance": "i"})[0]
    refused(company.join("ghost", instance="i"), ErrorCode.FENCED_INSTANCE_ID, "ghost")
    refused(company.join(member.member_id, instance="j"), ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_lost_answer_is_given_again(company: Company, is_leader: bool) -> None:
    """CompletingRebalance, same metadata: the generation stands; the list is the leader's alone."""
    leader, follower = company.gather({}, {})
    who = leader if is_leader else follower
    place = company.join(who.member_id)
    assert place.value == who
    assert bool(place.value.members) is is_leader
    assert company.state() is State.COMPLETING_REBALANCE


def test_the_leader_of_a_stable_group_rebalances_always(company: Company) -> None:
    leader, _ = company.form({}, {})
    assert company.join(leader.member_id).is_waiting
    assert company.state() is State.PREPARING_REBALANCE


def test_a_follower_of_a_stable_group_is_answered_again(company: Company) -> None:
    _, follower = company.form({}, {})
    assert company.join(follower.member_id).value == follower
    assert company.state() is State.STABLE


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize(
    "changed", [offers("range", metadata=b"v2"), offers("roundrobin", "range"), offers("range"), ()]
)
@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_other_metadata_or_another_order_rebalances(
    company: Company, state: State, changed: tuple[object, ...], is_leader: bool
) -> None:
    two = {"protocols": offers("range", "roundrobin")}
    members = (company.gather if state is State.COMPLETING_REBALANCE else company.form)(two, two)
    who = members[0 if is_leader else 1].member_id
    if not changed:
        refused(company.join(who, protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, who)
        assert company.state() is state
    else:
        assert company.join(who, protocols=changed).is_waiting
        assert company.state() is State.PREPARING_REBALANCE


def test_a_second_join_replaces_the_first(company: Company) -> None:
    """The one request that is never answered: its client has given it up (as in Kafka)."""
    leader, _follower = company.form({}, {})
    first = company.join(leader.member_id)
    second = company.join(leader.member_id)
    company.advance(60_000)
    assert first.is_waiting
    assert second.value.generation_id == 2


def test_a_rejoin_takes_on_new_timeouts(company: Company) -> None:
    leader, _ = company.form({"rebalance_ms": 60_000}, {"rebalance_ms": 5000, "session_ms": 30_000})
    place = company.join(leader.member_id, rebalance_ms=20_000, session_ms=8000)
    company.advance(19_999)
    assert place.is_waiting
    company.advance(1)
    assert place.value.generation_id == 2
    company.sync(leader.member_id, 2)
    company.advance(7999)
    assert len(company.group.members) == 1
    company.advance(1)
    assert len(company.group.members) == 0


def test_an_answer_that_is_given_again_touches_no_timer(company: Company) -> None:
    _, follower = company.form({"session_ms": 1_000_000}, {"session_ms": 10_000})
    company.advance(9_000)
    company.join(follower.member_id, session_ms=10_000)
    company.advance(1_000)
    assert follower.member_id not in company.group.members.by_id


# Full groups ---------------------------------------------------------------------------------------------------------


def test_a_full_group_refuses_and_forgets(company: Company) -> None:
    company.rules.group_max_size = 2
    company.form({}, {})
    refused(company.join(), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert company.state() is State.STABLE


def test_pending_ids_take_no_place_and_lose_theirs_in_a_full_group(company: Company) -> None:
    company.rules.group_max_size = 1
    pending = [company.join(version=4).value.member_id for _ in range(2)]
    assert company.join(pending[0]).is_waiting
    refused(company.join(pending[1]), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert company.group.members.pending == {}


def test_members_of_a_full_group_rejoin(company: Company) -> None:
    company.rules.group_max_size = 2
    members = company.form({}, {})
    places = [company.join(member.member_id) for member in members]
    assert [place.value.generation_id for place in places] == [2, 2]


def test_in_a_join_phase_the_places_belong_to_those_who_came(company: Company) -> None:
    """The limit has shrunk: the last to come back is out, and the others need not wait for it."""
    members = company.form({}, {}, {})
    company.rules.group_max_size = 2
    first = company.join(members[0].member_id)
    second = company.join(members[1].member_id)
    refused(company.join(members[2].member_id), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert members[2].member_id not in company.group.members.by_id
    again = company.join(members[0].member_id)
    assert again.value.generation_id == second.value.generation_id == 2, "who has a place may send its request again"
    assert first.is_waiting
    assert len(company.group.members) == 2


def test_a_group_that_is_loaded_too_large_rebalances(company: Company) -> None:
    company.form({}, {}, {})
    company.rules.group_max_size = 2
    company.load(company.durable[-1])
    assert company.state() is State.PREPARING_REBALANCE
    ids = list(company.group.members.by_id)
    answers = [company.join(member_id) for member_id in ids]
    refused(answers[2], ErrorCode.GROUP_MAX_SIZE_REACHED)
    company.advance(60_000)
    assert [place.value.generation_id for place in answers[:2]] == [2, 2]


# Five minutes --------------------------------------------------------------------------------------------------------


def test_a_new_member_is_given_up_after_five_minutes_parked_or_not(company: Company) -> None:
    """KAFKA-7610: members whose client has gone pile up in a long join phase."""
    first = company.form({"rebalance_ms": 1_000_000, "session_ms": 1_000_000})[0]
    place = company.join(rebalance_ms=1_000_000, session_ms=6000)
    company.heartbeat(first.member_id, 1)
    company.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert place.is_waiting
    company.advance(1)
    refused(place, ErrorCode.UNKNOWN_MEMBER_ID)
    assert list(company.group.members.by_id) == [first.member_id]
