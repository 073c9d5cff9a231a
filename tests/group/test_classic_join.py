"""JoinGroup of a classic group: the order of the checks, new and known members, pending ids, full groups."""

from __future__ import annotations

import re
from typing import Any

import pytest
from actor_system.ports import RecordedReply
from actor_system.requests import SESSION_MS, offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, JoinedMember

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def simulated_group() -> SimulatedGroup:
    return SimulatedGroup()


def assert_refused(reply: RecordedReply, error: ErrorCode, member_id: str = "") -> None:
    """Check that the response contains only an error and the member id, as in Kafka."""
    limit = "group_max_size" if error is ErrorCode.GROUP_MAX_SIZE_REACHED else ""
    assert reply.value == Joined(error, member_id, -1, None, None, "", (), False, limit)


# New members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_join_v3_without_member_id_adds_member(simulated_group: SimulatedGroup, version: int) -> None:
    reply = simulated_group.join(version=version, client="rack-7")
    assert reply.is_waiting
    assert simulated_group.state() is State.PREPARING_REBALANCE
    simulated_group.advance(3000)
    assert re.fullmatch(rf"rack-7-{UUID}", reply.value.member_id)


def test_first_member_becomes_leader_of_generation_1(simulated_group: SimulatedGroup) -> None:
    reply = simulated_group.join(client="solo")
    simulated_group.advance(3000)
    member_id = reply.value.member_id
    assert reply.value == Joined(
        ErrorCode.NONE,
        member_id,
        1,
        "consumer",
        "range",
        member_id,
        (JoinedMember(member_id, None, b"range v1"),),
        False,
    )


@pytest.mark.parametrize("version", [4, 9])
def test_join_v4_without_member_id_returns_79_and_member_id(simulated_group: SimulatedGroup, version: int) -> None:
    """KIP-394: a lost response leaves no unused member. The group is still Empty."""
    reply = simulated_group.join(version=version, client="c")
    assert re.fullmatch(rf"c-{UUID}", reply.value.member_id)
    assert_refused(reply, ErrorCode.MEMBER_ID_REQUIRED, reply.value.member_id)
    assert simulated_group.state() is State.EMPTY
    second_reply = simulated_group.join(reply.value.member_id, version=version)
    assert second_reply.is_waiting
    simulated_group.advance(3000)
    assert second_reply.value.member_id == reply.value.member_id
    assert simulated_group.group.members.pending == {}


def test_assigned_member_ids_are_unique(simulated_group: SimulatedGroup) -> None:
    ids = {simulated_group.join(version=4).value.member_id for _ in range(50)}
    assert len(ids) == 50


def test_static_join_v4_without_member_id_adds_member(simulated_group: SimulatedGroup) -> None:
    reply = simulated_group.join(version=9, instance="stage-left", client="c")
    assert reply.is_waiting
    simulated_group.advance(3000)
    assert re.fullmatch(rf"stage-left-{UUID}", reply.value.member_id)
    assert reply.value.members[0].group_instance_id == "stage-left"


def test_pending_member_id_expires_after_session_timeout(simulated_group: SimulatedGroup) -> None:
    reply = simulated_group.join(version=4, session_ms=7000)
    simulated_group.advance(6999)
    assert list(simulated_group.group.members.pending) == [reply.value.member_id]
    simulated_group.advance(1)
    assert simulated_group.group.members.pending == {}
    assert_refused(simulated_group.join(reply.value.member_id), ErrorCode.UNKNOWN_MEMBER_ID, reply.value.member_id)


def test_heartbeat_of_pending_member_returns_25(simulated_group: SimulatedGroup) -> None:
    member_id = simulated_group.join(version=4).value.member_id
    assert simulated_group.heartbeat(member_id, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated_group.sync(member_id, 0).error is ErrorCode.UNKNOWN_MEMBER_ID
    simulated_group.advance(SESSION_MS)
    assert simulated_group.group.members.pending == {}, "a heartbeat does not renew a pending id"


def test_join_with_pending_member_id_and_instance_id_returns_25(simulated_group: SimulatedGroup) -> None:
    """Kafka returns UNKNOWN_SERVER_ERROR; no client sends this."""
    member_id = simulated_group.join(version=4).value.member_id
    assert_refused(simulated_group.join(member_id, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    assert simulated_group.group.members.pending


def test_join_phase_waits_for_pending_members(simulated_group: SimulatedGroup) -> None:
    """The phase ends when the pending member has joined or its id has expired."""
    member = simulated_group.form_group({})[0]
    pending = simulated_group.join(version=4).value.member_id
    member_reply = simulated_group.join(member.member_id)
    assert member_reply.is_waiting
    pending_reply = simulated_group.join(pending)
    assert member_reply.value.generation_id == pending_reply.value.generation_id == 2


def test_join_phase_ends_when_last_pending_member_id_expires(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"session_ms": 30_000})[0]
    simulated_group.join(version=4, session_ms=7000)
    rejoin_reply = simulated_group.join(member.member_id, session_ms=30_000)
    simulated_group.advance(6999)
    assert rejoin_reply.is_waiting
    simulated_group.advance(1)
    assert rejoin_reply.value.generation_id == 2


# Protocols -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("invalid_options", [{"protocol_type": ""}, {"protocols": ()}])
def test_first_join_without_protocols_returns_23(
    simulated_group: SimulatedGroup, invalid_options: dict[str, Any]
) -> None:
    assert_refused(simulated_group.join(**invalid_options), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert len(simulated_group.group.members) == 0


@pytest.mark.parametrize(
    "invalid_options",
    [{"protocol_type": "connect"}, {"protocols": offers("sticky")}, {"protocols": ()}, {"protocol_type": ""}],
)
@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_join_without_common_protocol_returns_23(
    simulated_group: SimulatedGroup, state: State, invalid_options: dict[str, Any]
) -> None:
    if state is State.PREPARING_REBALANCE:
        simulated_group.join(protocols=offers("range", "roundrobin"))
    else:
        (simulated_group.join_all if state is State.COMPLETING_REBALANCE else simulated_group.form_group)({})
    assert simulated_group.state() is state
    assert_refused(simulated_group.join(**invalid_options), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert simulated_group.state() is state, "a refused join changes nothing"


def test_join_needs_one_protocol_that_all_members_support(simulated_group: SimulatedGroup) -> None:
    simulated_group.join(protocols=offers("sticky", "range"))
    simulated_group.join(protocols=offers("range", "roundrobin"))
    assert_refused(
        simulated_group.join(protocols=offers("roundrobin", "sticky")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert simulated_group.join(protocols=offers("uniform", "range")).is_waiting


def test_rejoin_with_new_protocols_is_checked_against_own_old_ones(simulated_group: SimulatedGroup) -> None:
    """Kafka counts the sender with its old protocols, so a single member cannot change to an entirely new one."""
    member = simulated_group.form_group({"protocols": offers("range")})[0]
    assert_refused(
        simulated_group.join(member.member_id, protocols=offers("sticky")),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        member.member_id,
    )
    assert simulated_group.join(member.member_id, protocols=offers("sticky", "range")).value.protocol_name == "sticky"


def test_protocols_of_pending_members_are_not_checked(simulated_group: SimulatedGroup) -> None:
    """Only a join with a member id defines the protocols of a group."""
    pending = simulated_group.join(version=4, protocol_type="consumer").value.member_id
    simulated_group.join(protocol_type="connect", protocols=offers("compatible"))
    assert_refused(simulated_group.join(pending), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, pending)


def test_empty_group_accepts_other_protocol_type(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({})[0]
    simulated_group.leave(member.member_id)
    assert simulated_group.state() is State.EMPTY
    reply = simulated_group.join(protocol_type="connect", protocols=offers("compatible"))
    simulated_group.advance(3000)
    assert (reply.value.protocol_type, reply.value.protocol_name) == ("connect", "compatible")


# Known members -------------------------------------------------------------------------------------------------------


def test_join_with_unknown_member_id_returns_25_in_every_state(simulated_group: SimulatedGroup) -> None:
    assert_refused(simulated_group.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    simulated_group.join()
    assert_refused(simulated_group.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    simulated_group.advance(3000)
    assert_refused(simulated_group.join("ghost"), ErrorCode.UNKNOWN_MEMBER_ID, "ghost")


def test_join_checks_protocol_before_identity(simulated_group: SimulatedGroup) -> None:
    simulated_group.form_group({})
    assert_refused(simulated_group.join("ghost", protocols=offers("x")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "ghost")


def test_join_checks_instance_id_before_member_id(simulated_group: SimulatedGroup) -> None:
    member = simulated_group.form_group({"instance": "i"})[0]
    assert_refused(simulated_group.join("ghost", instance="i"), ErrorCode.FENCED_INSTANCE_ID, "ghost")
    assert_refused(simulated_group.join(member.member_id, instance="j"), ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)


@pytest.mark.parametrize("is_leader", [True, False])
def test_rejoin_in_completing_rebalance_without_changes_repeats_response(
    simulated_group: SimulatedGroup, is_leader: bool
) -> None:
    """The generation stays; only the leader gets the list of members."""
    leader, follower = simulated_group.join_all({}, {})
    member = leader if is_leader else follower
    reply = simulated_group.join(member.member_id)
    assert reply.value == member
    assert bool(reply.value.members) is is_leader
    assert simulated_group.state() is State.COMPLETING_REBALANCE


def test_rejoin_of_leader_in_stable_group_starts_rebalance(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.form_group({}, {})
    assert simulated_group.join(leader.member_id).is_waiting
    assert simulated_group.state() is State.PREPARING_REBALANCE


def test_rejoin_of_follower_in_stable_group_repeats_response(simulated_group: SimulatedGroup) -> None:
    _, follower = simulated_group.form_group({}, {})
    assert simulated_group.join(follower.member_id).value == follower
    assert simulated_group.state() is State.STABLE


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize(
    "changed_protocols", [offers("range", metadata=b"v2"), offers("roundrobin", "range"), offers("range"), ()]
)
@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_rejoin_with_changed_protocols_starts_rebalance(
    simulated_group: SimulatedGroup, state: State, changed_protocols: tuple[object, ...], is_leader: bool
) -> None:
    options = {"protocols": offers("range", "roundrobin")}
    members = (simulated_group.join_all if state is State.COMPLETING_REBALANCE else simulated_group.form_group)(
        options, options
    )
    member_id = members[0 if is_leader else 1].member_id
    if not changed_protocols:
        assert_refused(simulated_group.join(member_id, protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        assert simulated_group.state() is state
    else:
        assert simulated_group.join(member_id, protocols=changed_protocols).is_waiting
        assert simulated_group.state() is State.PREPARING_REBALANCE


def test_second_join_of_member_replaces_parked_join(simulated_group: SimulatedGroup) -> None:
    """The replaced join never gets a reply, as in Kafka: its client has abandoned it."""
    leader, _follower = simulated_group.form_group({}, {})
    replaced_reply = simulated_group.join(leader.member_id)
    last_reply = simulated_group.join(leader.member_id)
    simulated_group.advance(60_000)
    assert replaced_reply.is_waiting
    assert last_reply.value.generation_id == 2


def test_rejoin_updates_timeouts(simulated_group: SimulatedGroup) -> None:
    leader, _ = simulated_group.form_group({"rebalance_ms": 60_000}, {"rebalance_ms": 5000, "session_ms": 30_000})
    reply = simulated_group.join(leader.member_id, rebalance_ms=20_000, session_ms=8000)
    simulated_group.advance(19_999)
    assert reply.is_waiting
    simulated_group.advance(1)
    assert reply.value.generation_id == 2
    simulated_group.sync(leader.member_id, 2)
    simulated_group.advance(7999)
    assert len(simulated_group.group.members) == 1
    simulated_group.advance(1)
    assert len(simulated_group.group.members) == 0


def test_repeated_join_response_does_not_change_deadlines(simulated_group: SimulatedGroup) -> None:
    _, follower = simulated_group.form_group({"session_ms": 1_000_000}, {"session_ms": 10_000})
    simulated_group.advance(9_000)
    simulated_group.join(follower.member_id, session_ms=10_000)
    simulated_group.advance(1_000)
    assert follower.member_id not in simulated_group.group.members.by_id


# Full groups ---------------------------------------------------------------------------------------------------------


def test_join_of_full_group_returns_81(simulated_group: SimulatedGroup) -> None:
    simulated_group.settings.group_max_size = 2
    simulated_group.form_group({}, {})
    assert_refused(simulated_group.join(), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert simulated_group.state() is State.STABLE


def test_refused_pending_member_of_full_group_is_removed(simulated_group: SimulatedGroup) -> None:
    simulated_group.settings.group_max_size = 1
    pending = [simulated_group.join(version=4).value.member_id for _ in range(2)]
    assert simulated_group.join(pending[0]).is_waiting
    assert_refused(simulated_group.join(pending[1]), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert simulated_group.group.members.pending == {}


def test_members_of_full_group_can_rejoin(simulated_group: SimulatedGroup) -> None:
    simulated_group.settings.group_max_size = 2
    members = simulated_group.form_group({}, {})
    replies = [simulated_group.join(member.member_id) for member in members]
    assert [reply.value.generation_id for reply in replies] == [2, 2]


def test_group_max_size_counts_joined_members_during_join_phase(simulated_group: SimulatedGroup) -> None:
    """The limit was lowered: the last member to rejoin is removed, and the others do not wait for it."""
    members = simulated_group.form_group({}, {}, {})
    simulated_group.settings.group_max_size = 2
    replaced_reply = simulated_group.join(members[0].member_id)
    second_reply = simulated_group.join(members[1].member_id)
    assert_refused(simulated_group.join(members[2].member_id), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert members[2].member_id not in simulated_group.group.members.by_id
    first_reply = simulated_group.join(members[0].member_id)
    assert first_reply.value.generation_id == second_reply.value.generation_id == 2, (
        "a joined member may repeat its JoinGroup"
    )
    assert replaced_reply.is_waiting
    assert len(simulated_group.group.members) == 2


def test_loaded_group_above_group_max_size_starts_rebalance(simulated_group: SimulatedGroup) -> None:
    simulated_group.form_group({}, {}, {})
    simulated_group.settings.group_max_size = 2
    simulated_group.load(simulated_group.durable[-1])
    assert simulated_group.state() is State.PREPARING_REBALANCE
    ids = list(simulated_group.group.members.by_id)
    replies = [simulated_group.join(member_id) for member_id in ids]
    assert_refused(replies[2], ErrorCode.GROUP_MAX_SIZE_REACHED)
    simulated_group.advance(60_000)
    assert [reply.value.generation_id for reply in replies[:2]] == [2, 2]


# New members ---------------------------------------------------------------------------------------------------------


def test_new_member_with_parked_join_is_removed_after_5_minutes(simulated_group: SimulatedGroup) -> None:
    """KAFKA-7610: members of dead clients would accumulate in a long join phase."""
    member = simulated_group.form_group({"rebalance_ms": 1_000_000, "session_ms": 1_000_000})[0]
    reply = simulated_group.join(rebalance_ms=1_000_000, session_ms=6000)
    simulated_group.heartbeat(member.member_id, 1)
    simulated_group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert reply.is_waiting
    simulated_group.advance(1)
    assert_refused(reply, ErrorCode.UNKNOWN_MEMBER_ID)
    assert list(simulated_group.group.members.by_id) == [member.member_id]
