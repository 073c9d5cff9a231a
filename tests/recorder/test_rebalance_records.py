"""The record of each rebalance, from the events and notes of a group."""

from __future__ import annotations

import json

import pytest
from actor_system.requests import SESSION_MS, offers
from consumer_group.actor_world import GROUP, ActorWorld
from consumer_group.migration_world import mixed
from recorder.recorded_group import RecordedGroup, assignment

from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import Reason
from callboard.actors.messages import LeavingMember
from callboard.actors.recorder.record import as_json, from_json, size_of

LONG_MS = 100 * SESSION_MS
BOTH = {"m0": assignment(orders=[0, 1]), "m1": assignment(orders=[2])}


def two_members() -> tuple[RecordedGroup, str, str]:
    group = RecordedGroup()
    members = group.join_all({"host": "/10.0.0.1", "session_ms": LONG_MS}, {"host": "/10.0.0.2", "session_ms": LONG_MS})
    group.sync_all(members, BOTH)
    group.records.clear()
    return group, members[0].member_id, members[1].member_id


def test_first_generation() -> None:
    group = RecordedGroup()
    group.join(client="m0", host="/10.0.0.1", reason="started")
    group.advance(1000)
    group.join(client="m1")
    while group.state().is_join_phase:
        group.advance_to_next_alarm()
    leader, follower = group.group.members
    group.advance(200)
    group.sync(leader.member_id, 1, {leader.member_id: BOTH["m0"], follower.member_id: BOTH["m1"]})
    assert group.records == []  # until the follower has its assignment
    group.advance(700)
    group.sync(follower.member_id, 1)
    [record] = group.records
    assert (record.group_id, record.generation, record.is_epoch) == ("company", 1, False)
    assert (record.why.cause, record.outcome, record.why.client_reason) == ("new_member", "stable", "started")
    assert record.why.by is not None and record.why.by[2:4] == ("m0", "/10.0.0.1")
    assert [(further.cause, further.member and further.member.client_id) for further in record.why.also] == [
        ("new_member", "m1")
    ]
    assert (record.members.joined.members, record.members.left.members, record.members.stayed, record.why.restarts) == (
        2,
        0,
        0,
        0,
    )
    assert [name.client_id for name in record.members.joined.names] == ["m0", "m1"]
    phases = dict(record.phases_ms)
    assert list(phases) == ["initial_delay", "leader_assigns", "log", "followers"]
    assert (phases["leader_assigns"], phases["log"], phases["followers"]) == (200, 0, 700)
    assert record.duration_ms == phases["initial_delay"] + 200
    assert record.ended_ms - record.began_ms == record.duration_ms
    assert [(late.member.client_id, late.after_ms) for late in record.members.late] == [("m1", 1000)]
    assert (record.protocol, record.leader) == ("range", leader.member_id)
    assert record.moves is not None
    assert record.moves[:6] == (((leader.member_id, 2), (follower.member_id, 1)), 3, 0, 3, (), 0)


def test_member_that_does_not_rejoin_is_named_with_the_last_that_came() -> None:
    group, leader, follower = two_members()
    group.join(client="m2", session_ms=LONG_MS)
    group.advance(400)
    group.join(leader, session_ms=LONG_MS)
    group.advance(60_000)
    assert group.state().is_sync_phase
    new = next(member.member_id for member in group.group.members if member.client_id == "m2")
    group.sync(new, 2)
    group.sync(leader, 2, {leader: BOTH["m0"], new: BOTH["m1"]})
    record = group.last
    assert (record.why.cause, record.members.joined.members, record.members.left.members, record.members.stayed) == (
        "new_member",
        1,
        1,
        1,
    )
    assert [(absent.member.member_id, absent.decision) for absent in record.members.absent] == [(follower, "removed")]
    assert [(further.cause, further.member and further.member.member_id) for further in record.why.also] == [
        ("join_timeout", follower)
    ]
    assert [(late.member.client_id, late.after_ms) for late in record.members.late] == [("m0", 400)]
    assert list(dict(record.phases_ms)) == ["join", "leader_assigns", "log"]
    assert record.moves is not None
    assert (record.moves.moved, record.moves.total, record.moves.moved_partitions) == (1, 3, (("orders", 2),))
    assert record.moves.stopped_ms == 3 * record.duration_ms  # the assignor is eager


def test_static_member_that_does_not_rejoin_is_kept() -> None:
    group = RecordedGroup()
    members = group.join_all({"session_ms": LONG_MS}, {"session_ms": LONG_MS, "instance": "seat"})
    group.sync_all(members, BOTH)
    group.join(members[0].member_id, session_ms=LONG_MS, protocols=offers("range", metadata=b"v2"))
    group.advance(60_000)
    group.sync(members[0].member_id, 2, {})
    group.leave(members[0].member_id)
    record = group.last
    assert (record.why.cause, record.members.absent_count) == ("subscription_changed", 1)
    assert [(absent.member.instance_id, absent.decision) for absent in record.members.absent] == [("seat", "kept")]


def test_restarts_and_the_end_of_the_group() -> None:
    group, leader, follower = two_members()
    group.leave(follower)
    group.join(leader, session_ms=LONG_MS)
    group.join(client="m2", session_ms=LONG_MS)
    group.close(ErrorCode.NOT_COORDINATOR, Reason.SERVER_STOPS)
    record = group.last
    assert (record.why.cause, record.outcome, record.why.restarts) == ("member_left", "interrupted", 1)
    assert (record.members.stayed, record.moves) == (None, None)


def test_client_that_did_not_poll_says_so() -> None:
    group, leader, follower = two_members()
    group.leave(LeavingMember(follower, None, "consumer poll timeout has expired."))
    group.join(leader, session_ms=LONG_MS)
    group.sync(leader, 2, {leader: assignment(orders=[0, 1, 2])})
    record = group.last
    assert (record.why.cause, record.why.client_reason) == ("poll_timeout", "consumer poll timeout has expired.")
    assert record.why.by is not None and record.why.by.member_id == follower


def test_second_rebalance_of_a_cooperative_assignor_is_not_a_new_subscription() -> None:
    group = RecordedGroup()
    offer = {"protocols": offers("cooperative-sticky"), "session_ms": LONG_MS}
    members = group.join_all(offer, offer)
    group.sync_all(members, {"m0": assignment(orders=[0, 1, 2]), "m1": assignment()})
    leader, follower = (member.member_id for member in members)
    for number, parts in ((2, {leader: [0, 1], follower: []}), (3, {leader: [0, 1], follower: [2]})):
        changed = {"protocols": offers("cooperative-sticky", metadata=b"%d" % number), "session_ms": LONG_MS}
        group.join(leader, **changed)
        group.join(follower, **changed)
        group.advance(10)
        group.sync(leader, number, {name: assignment(orders=numbers) for name, numbers in parts.items()})
        group.sync(follower, number)
    given_back, given = group.records[-2:]
    assert (given_back.why.cause, given.why.cause) == ("subscription_changed", "cooperative_followup")
    assert given_back.moves is not None and given.moves is not None
    assert (given_back.moves.moved, given_back.moves.stopped_ms) == (1, 10)
    assert (given.moves.moved, given.moves.added) == (0, 1)


@pytest.mark.parametrize(
    "data", [b"\x00", b"\xff" * 40, b"\x00\x00\x7f\xff\xff\xff", assignment(orders=[1])[:-8], b"\x00" * 2_000_000]
)
def test_assignments_of_clients_are_not_trusted(data: bytes) -> None:
    group = RecordedGroup()
    group.sync_all(group.join_all({}, {}), {"m0": data, "m1": assignment(orders=[1])})
    assert group.last.outcome == "stable"
    assert group.last.moves is None


def test_assignment_of_a_group_that_was_loaded_is_compared() -> None:
    group, leader, follower = two_members()
    group.load(group.durable[-1])
    group.leave(follower)
    group.join(leader, session_ms=LONG_MS)
    group.sync(leader, 2, {leader: assignment(orders=[0, 1, 2])})
    moves = group.last.moves
    assert moves is not None
    assert (moves.moved, moves.total, moves.added) == (1, 3, 0)
    assert group.last.phases_ms[0][0] == "join"  # not the initial delay of an empty group


def test_names_of_clients_are_cut_and_their_number_is_bounded() -> None:
    group = RecordedGroup()
    group.settings.group_max_size = 1000
    members = group.join_all(*({"client": f"{number}" + "x" * 30_000} for number in range(60)))
    group.assign(members)
    record = group.last
    assert record.members.joined.members == 60
    assert (len(record.members.joined.names), len(record.why.also), len(record.members.late)) == (20, 10, 3)
    assert all(len(text) <= 255 for name in record.members.joined.names for text in name if text)
    assert size_of(record) < 120_000


def test_record_as_json_and_back() -> None:
    group, leader, follower = two_members()
    group.leave(follower)
    group.join(leader, session_ms=LONG_MS)
    group.sync(leader, 2, {leader: assignment(orders=[0, 1, 2])})
    assert len(group.records) == 2
    for record in group.records:
        assert from_json(json.loads(json.dumps(as_json(record)))) == record


def test_group_of_the_consumer_protocol() -> None:
    world = ActorWorld()
    recorder = world.directory.event_log.recorder
    world.join("a")
    assert [record.why.cause for record in recorder.records(GROUP)] == ["new_member"]
    world.join("b")
    world.advance(300)
    world.settle("a", "b")
    record = recorder.records(GROUP)[0]
    assert (record.is_epoch, record.why.cause, record.outcome) == (True, "new_member", "stable")
    assert record.why.by is not None and record.why.by.member_id == "b"
    assert record.moves is not None and record.moves.moved >= 1
    assert record.moves.stopped_ms is None
    assert (record.members.joined.members, record.members.stayed) == (1, 1)
    assert dict(record.phases_ms)["reconcile"] >= 300


def test_change_of_the_protocol_compares_no_assignments() -> None:
    """Those of the classic protocol name topics, those of the consumer protocol have their ids."""
    world, member = mixed()
    records = world.directory.event_log.recorder.records
    assert (records(GROUP)[0].is_epoch, records(GROUP)[0].moves) == (True, None)
    world.beat("C", -1)
    world.joined(member, "t0 t1")
    world.synced(member, 3, {member: "t0 t1 t2"})
    assert (records(GROUP)[0].is_epoch, records(GROUP)[0].moves) == (False, None)
