"""Each change of a group is an event with its reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.requests import REBALANCE_MS, SESSION_MS, offers
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import CLIENT_REASON_CHARACTERS_MAX, GroupEvent, Kind, Reason, shown_reason
from callboard.actors.group.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from callboard.actors.group.leave_causes import ADMIN_REASON, leave_cause
from callboard.actors.group.members import GroupMember
from callboard.actors.group.states import State
from callboard.actors.messages import LeaveGroup, LeavingMember

Way = Callable[[], tuple[SimulatedGroup, str]]
"""A way into a rebalance: the group, and the id of the member that caused it; "" for none."""


def first_member_joins() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    group.join(client="m0")
    return group, next(iter(group.group.members.by_id))


def second_member_joins() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    group.form_group({})
    group.join(client="second")
    return group, next(member.member_id for member in group.group.members if member.client_id == "second")


def member_with_pending_id_joins() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    group.form_group({})
    member_id = group.join(client="second", version=4).value.member_id
    group.join(member_id, client="second", version=4)
    return group, member_id


def member_leaves() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    _, member = group.form_group({}, {})
    group.leave(member.member_id)
    return group, member.member_id


def pending_id_leaves() -> tuple[SimulatedGroup, str]:
    """Kafka rebalances then too, although the member had not joined."""
    group = SimulatedGroup()
    group.form_group({})
    member_id = group.join(client="second", version=4).value.member_id
    group.leave(member_id)
    return group, ""


def admin_removes_dynamic_member() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    _, member = group.form_group({}, {})
    group.leave(LeavingMember(member.member_id, None, f"{ADMIN_REASON}: maintenance"))
    return group, member.member_id


def admin_removes_instance() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    _, member = group.form_group({}, {"instance": "i"})
    group.leave(LeavingMember("", "i"))
    return group, member.member_id


def session_expires() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    first, second = group.form_group({"session_ms": 2 * SESSION_MS}, {})
    group.advance(SESSION_MS)
    assert first.member_id in group.group.members.by_id
    return group, second.member_id


def follower_changes_subscription() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    _, follower = group.form_group({}, {})
    group.join(follower.member_id, protocols=offers("range", metadata=b"v2"))
    return group, follower.member_id


def member_changes_subscription_before_the_assignment() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    _, follower = group.join_all({}, {})
    group.join(follower.member_id, protocols=offers("range", metadata=b"v2"))
    return group, follower.member_id


def leader_rejoins() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    leader, _ = group.form_group({}, {})
    group.join(leader.member_id)
    return group, leader.member_id


def static_member_is_replaced_before_the_assignment() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    group.join_all({}, {"instance": "i"})
    group.join(instance="i")
    return group, group.group.members.static["i"]


def member_does_not_sync() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    first, second = group.join_all({"session_ms": 10 * REBALANCE_MS}, {"session_ms": 10 * REBALANCE_MS})
    group.sync(first.member_id, first.generation_id, {})
    group.advance(REBALANCE_MS)
    return group, second.member_id


def assignment_is_not_stored() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup(holds_appends=True)
    leader, _ = group.join_all({}, {})
    group.sync(leader.member_id, leader.generation_id, {})
    group.fail()
    return group, ""


def loaded_with_too_many_members() -> tuple[SimulatedGroup, str]:
    group = SimulatedGroup()
    group.form_group({}, {})
    group.settings.group_max_size = 1
    group.load(group.durable[-1])
    return group, ""


WAYS: dict[Way, Reason] = {
    first_member_joins: Reason.MEMBER_JOINED,
    second_member_joins: Reason.MEMBER_JOINED,
    member_with_pending_id_joins: Reason.MEMBER_JOINED,
    member_leaves: Reason.MEMBER_LEFT,
    pending_id_leaves: Reason.MEMBER_LEFT,
    admin_removes_dynamic_member: Reason.ADMIN,
    admin_removes_instance: Reason.ADMIN,
    session_expires: Reason.SESSION_EXPIRED,
    follower_changes_subscription: Reason.SUBSCRIPTION_CHANGED,
    member_changes_subscription_before_the_assignment: Reason.SUBSCRIPTION_CHANGED,
    leader_rejoins: Reason.LEADER_REJOINED,
    static_member_is_replaced_before_the_assignment: Reason.STATIC_MEMBER_REPLACED,
    member_does_not_sync: Reason.SYNC_TIMEOUT,
    assignment_is_not_stored: Reason.ASSIGNMENT_NOT_STORED,
    loaded_with_too_many_members: Reason.TOO_MANY_MEMBERS,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_into_a_rebalance_has_its_reason(way: Way) -> None:
    group, member_id = way()
    begun = [event for event in group.events if event.state == State.PREPARING_REBALANCE]
    changes = [event for event in begun if event.kind is Kind.STATE_CHANGED]
    assert (changes[-1].reason, changes[-1].member_id) == (WAYS[way], member_id)
    assert changes[-1].wall_ms <= group.clock.wall_ms()


# Other changes -------------------------------------------------------------------------------------------------------


def changes(group: SimulatedGroup, kind: Kind) -> list[tuple[Reason, str]]:
    return [(event.reason, event.state) for event in group.events if event.kind is kind]


def removed(group: SimulatedGroup) -> list[tuple[Reason, str]]:
    return [(event.reason, event.member_id) for event in group.events if event.kind is Kind.MEMBER_REMOVED]


def test_first_rebalance_events() -> None:
    group = SimulatedGroup()
    group.form_group({})
    assert changes(group, Kind.STATE_CHANGED) == [
        (Reason.MEMBER_JOINED, "PreparingRebalance"),
        (Reason.INITIAL_DELAY_ENDED, "CompletingRebalance"),
        (Reason.ASSIGNMENT_STORED, "Stable"),
    ]
    assert changes(group, Kind.MEMBER_ADDED) == [(Reason.MEMBER_JOINED, "Empty")]
    assert [event.generation for event in group.events] == [0, 0, 1, 1]


def test_join_phase_ends_with_the_last_rejoin() -> None:
    group = SimulatedGroup()
    leader, follower = group.form_group({}, {})
    group.join(leader.member_id)
    group.join(follower.member_id)
    assert changes(group, Kind.STATE_CHANGED)[-1] == (Reason.ALL_JOINED, "CompletingRebalance")


def test_member_that_does_not_rejoin_is_removed() -> None:
    group = SimulatedGroup()
    leader, follower = group.form_group({"session_ms": 300_000}, {"session_ms": 300_000})
    group.join(leader.member_id)
    group.advance(REBALANCE_MS)
    assert removed(group) == [(Reason.DID_NOT_REJOIN, follower.member_id)]
    assert changes(group, Kind.STATE_CHANGED)[-1] == (Reason.REBALANCE_TIMEOUT, "CompletingRebalance")


def test_last_member_that_leaves_empties_the_group() -> None:
    group = SimulatedGroup()
    [member] = group.form_group({})
    group.leave(LeavingMember(member.member_id, None, "the consumer is being closed"))
    assert changes(group, Kind.STATE_CHANGED)[-2:] == [
        (Reason.MEMBER_LEFT, "PreparingRebalance"),
        (Reason.NO_MEMBERS, "Empty"),
    ]
    assert {event.client_reason for event in group.events if event.reason is Reason.MEMBER_LEFT} == {
        "the consumer is being closed"
    }


def test_new_member_that_waits_too_long_expires() -> None:
    group = SimulatedGroup()
    group.form_group({"session_ms": 2 * NEW_MEMBER_JOIN_TIMEOUT_MS, "rebalance_ms": 2 * NEW_MEMBER_JOIN_TIMEOUT_MS})
    group.join(client="new", session_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    new = group.events[-1].member_id
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert removed(group) == [(Reason.SESSION_EXPIRED, new)]


def test_static_member_that_is_replaced_in_a_stable_group_begins_no_rebalance() -> None:
    group = SimulatedGroup()
    _, old = group.form_group({}, {"instance": "i"})
    begun = len(group.events)
    group.join(instance="i", client="again")
    new_id = group.group.members.static["i"]
    assert [event[2:7] for event in group.events[begun:]] == [
        (Kind.MEMBER_REMOVED, Reason.STATIC_MEMBER_REPLACED, "Stable", 1, old.member_id),
        (Kind.MEMBER_ADDED, Reason.STATIC_MEMBER_REPLACED, "Stable", 1, new_id),
    ]
    assert {event.group_instance_id for event in group.events[begun:]} == {"i"}


def test_replacement_that_is_not_stored_is_reverted() -> None:
    group = SimulatedGroup(holds_appends=True)
    members = group.join_all({}, {"instance": "i"})
    group.assign(members)
    group.complete_append()
    group.join(instance="i", client="again")
    group.fail()
    reasons = [event.reason for event in group.events[-4:]]
    assert reasons == [Reason.STATIC_MEMBER_REPLACED] * 2 + [Reason.REPLACEMENT_NOT_STORED] * 2
    assert group.events[-1].member_id == members[1].member_id == group.group.members.static["i"]


def test_member_that_a_full_group_refuses_is_removed() -> None:
    group = SimulatedGroup()
    leader, follower = group.form_group({}, {})
    group.join(leader.member_id)
    group.settings.group_max_size = 1
    assert group.join(follower.member_id).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert removed(group) == [(Reason.GROUP_IS_FULL, follower.member_id)]


def test_loaded_members_are_added() -> None:
    group = SimulatedGroup()
    members = group.form_group({}, {})
    group.events.clear()
    group.load(group.durable[-1])
    assert [(event.kind, event.reason, event.member_id) for event in group.events] == [
        (Kind.MEMBER_ADDED, Reason.LOADED, member.member_id) for member in members
    ]


@pytest.mark.parametrize("reason", [Reason.SERVER_STOPS, Reason.DELETED, Reason.RESTARTED])
def test_closed_group_is_dead_for_a_reason(reason: Reason) -> None:
    group = SimulatedGroup()
    group.form_group({})
    group.close(ErrorCode.NOT_COORDINATOR, reason)
    assert group.events[-1][2:5] == (Kind.STATE_CHANGED, reason, "Dead")


def test_heartbeats_and_commits_cause_no_event() -> None:
    group = SimulatedGroup()
    [member] = group.form_group({})
    before = len(group.events)
    assert group.heartbeat(member.member_id, 1) is ErrorCode.NONE
    assert group.commit(member_id=member.member_id, generation_id=1) is ErrorCode.NONE
    assert len(group.events) == before


# The client's own words (KIP-800) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sender, expected",
    [
        (("member", "/10.0.0.1"), Reason.MEMBER_LEFT),
        (("", ""), Reason.MEMBER_LEFT),  # a member in this process
        (("other", "/10.0.0.1"), Reason.ADMIN),
        (("member", "/10.0.0.2"), Reason.ADMIN),
    ],
)
def test_member_that_another_client_removes_has_not_left_by_itself(sender: tuple[str, str], expected: Reason) -> None:
    leaving = LeavingMember("m", None)
    member = GroupMember("m", None, "member", "/10.0.0.1")
    assert leave_cause(leaving, LeaveGroup("g", (leaving,), *sender), member).reason is expected
    assert leave_cause(leaving, LeaveGroup("g", (leaving,), *sender), None).reason is Reason.MEMBER_LEFT


def test_join_has_the_reason_of_the_client() -> None:
    group = SimulatedGroup()
    group.join(client="c", host="/10.0.0.7", instance="i", reason="rebalance enforced by user\x1b[2J")
    added, begun = group.events
    assert added.client_reason == begun.client_reason == r"rebalance enforced by user\x1b[2J"
    assert (added.client_id, added.client_host, added.group_instance_id) == ("c", "/10.0.0.7", "i")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, ""),
        ("", ""),
        ("x" * 255, "x" * 255),
        ("x" * 256, "x" * 255),
        ("ä" * 300, "ä" * 255),
        ("a\nb\u202e\udc80", r"a\nb\u202e\udc80"),
        ("\n" * 300, r"\n" * CLIENT_REASON_CHARACTERS_MAX),
    ],
)
def test_client_reason_is_cut_and_escaped(given: str | None, shown: str) -> None:
    assert shown_reason(given) == shown


def test_event_as_text() -> None:
    event = GroupEvent(5, 0, Kind.MEMBER_REMOVED, Reason.MEMBER_LEFT, "Stable", 3, "m\n1", None, "c", "/h", "bye")
    assert str(event) == r"5 member removed m\n1, member left, 'bye', generation 3"
    begun = event._replace(kind=Kind.STATE_CHANGED, state="PreparingRebalance")
    assert str(begun) == r"5 state changed: PreparingRebalance by m\n1, member left, 'bye', generation 3"
    assert str(GroupEvent(5, 0, Kind.STATE_CHANGED, Reason.NO_MEMBERS, "Empty", 4)) == (
        "5 state changed: Empty, no member is left, generation 4"
    )
