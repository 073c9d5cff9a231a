"""What a group waits for now, as its actor says it."""

from __future__ import annotations

from actor_system.requests import GROUP, commit, heartbeat, join, leave, offers, sync
from actor_system.simulation import CoordinatorSimulation
from consumer_group.actor_world import ActorWorld, two_members

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.members import GroupMember
from callboard.actors.group.votes import votes
from callboard.actors.messages import Explained, ExplainGroup, Protocol
from callboard.actors.recorder.now import GroupNow, OffsetsNow, Refused, Subscriptions, TopicsNow
from callboard.actors.steps import ITEMS_PER_STEP

LONG_MS = 100_000
WEEK_MS = 7 * 24 * 3_600_000
SUBSCRIBED_TO_T = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0"


def asked(simulation: CoordinatorSimulation, group_id: str = GROUP) -> GroupNow:
    explained: Explained = simulation.post(ExplainGroup(group_id)).value
    assert explained.error is ErrorCode.NONE
    assert explained.now is not None
    return explained.now


def formed(simulation: CoordinatorSimulation, *clients: str) -> list[str]:
    replies = [simulation.post(join(client=client, session_ms=LONG_MS)) for client in clients]
    simulation.advance(10_000)
    ids = [reply.value.member_id for reply in replies]
    for member_id in ids:
        simulation.post(sync(member_id, 1, dict.fromkeys(ids, b"") if member_id == ids[0] else None))
    return ids


def test_unknown_group() -> None:
    assert CoordinatorSimulation().post(ExplainGroup(GROUP)).value == Explained(ErrorCode.NONE)


def test_group_that_waits_for_more_members() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(join(client="first"))
    simulation.advance(1000)
    now = asked(simulation)
    assert (now.state, now.waits_for, now.missing) == ("PreparingRebalance", "more members to join", ())
    assert now.missing_since_ms is not None and now.until_ms is not None
    assert (now.now_ms - now.missing_since_ms, now.until_ms - now.now_ms) == (1000, 2000)
    assert now.rebalance is not None
    assert (now.rebalance.cause, now.rebalance.began_ms) == ("new_member", now.now_ms - 1000)
    assert [member.client_id for member in now.members] == ["first"]


def test_group_that_waits_for_members_to_rejoin() -> None:
    simulation = CoordinatorSimulation()
    leader, _follower, third = formed(simulation, "a", "b", "c")
    assert (asked(simulation).state, asked(simulation).waits_for, asked(simulation).rebalance) == ("Stable", "", None)
    simulation.post(leave(third))
    simulation.post(join(leader, session_ms=LONG_MS))
    simulation.advance(500)
    now = asked(simulation)
    assert (now.waits_for, [member.client_id for member in now.missing]) == ("members to rejoin", ["b"])
    assert (now.missing_count, now.generation, now.member_count) == (1, 1, 2)
    assert now.until_ms == now.now_ms + 60_000 - 500
    assert now.rebalance is not None
    assert (now.rebalance.cause, now.rebalance.by and now.rebalance.by.client_id) == ("member_left", "c")


def test_group_that_waits_for_its_leader_and_then_for_the_others() -> None:
    simulation = CoordinatorSimulation()
    replies = [simulation.post(join(client=client, session_ms=LONG_MS)) for client in ("a", "b")]
    simulation.advance(10_000)
    leader, follower = (reply.value.member_id for reply in replies)
    now = asked(simulation)
    assert (now.waits_for, [member.client_id for member in now.missing]) == ("its leader to send the assignment", ["a"])
    simulation.post(sync(leader, 1, {leader: b"", follower: b""}))
    now = asked(simulation)
    assert (now.state, now.waits_for) == ("Stable", "members to ask for their assignment")
    assert [member.client_id for member in now.missing] == ["b"]
    simulation.post(sync(follower, 1))
    assert asked(simulation).waits_for == ""


def test_fenced_members_are_counted_for_ten_minutes() -> None:
    simulation = CoordinatorSimulation()
    replies = [simulation.post(join(instance="seat", session_ms=LONG_MS))]
    simulation.advance(3000)
    old = replies[0].value.member_id
    simulation.post(sync(old, 1, {old: b""}, instance="seat"))
    new = simulation.post(join(instance="seat", session_ms=1_800_000)).value.member_id
    for _ in range(2):
        assert simulation.post(heartbeat(old, 1, instance="seat")).value is ErrorCode.FENCED_INSTANCE_ID
    assert asked(simulation).refused.instance_ids == ("seat", "seat")
    for _ in range(1000):
        simulation.post(heartbeat(old, 1, instance="seat"))
    assert len(asked(simulation).refused.instance_ids) == 16
    simulation.advance(90_000)
    simulation.post(heartbeat(new, 1, instance="seat"))
    assert len(asked(simulation).refused.instance_ids) == 16
    simulation.advance(510_000)
    assert asked(simulation).refused.instance_ids == ()


def test_consumer_group_that_waits_for_partitions() -> None:
    world = two_members()
    assert (asked(world, "g").state, asked(world, "g").waits_for) == ("Stable", "")
    world.join("c")
    now = asked(world, "g")
    assert (now.state, now.waits_for, now.missing_count) == ("Reconciling", "members to send a heartbeat", 3)
    assert now.until_ms is not None and now.until_ms > now.now_ms
    assert now.rebalance is not None
    assert (now.rebalance.cause, now.rebalance.by and now.rebalance.by.member_id) == ("new_member", "c")
    world.beat("a", 3)
    world.beat("b", 3)
    now = asked(world, "g")
    assert (now.waits_for, now.missing_count) == ("members to give back partitions", 1)
    assert now.until_ms == now.now_ms + 60_000


def test_fenced_members_of_consumer_groups() -> None:
    world = ActorWorld()
    world.join("a", instance_id="seat")
    for _ in range(2):
        assert world.join("b", instance_id="seat").value.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert asked(world, "g").refused.instance_ids == ("seat", "seat")


def test_refused_joins_and_commits_topics_and_offsets() -> None:
    simulation = CoordinatorSimulation()
    joined = simulation.post(join(client="a", session_ms=LONG_MS, protocols=[Protocol("range", SUBSCRIBED_TO_T)]))
    simulation.advance(10_000)
    member_id = joined.value.member_id
    simulation.post(sync(member_id, 1, {member_id: b""}))
    simulation.post(commit(member_id=member_id, generation_id=1))
    refused = simulation.post(join(client="b", protocols=offers("sticky")))
    assert refused.value.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulation.post(commit(member_id="gone", generation_id=1)).value.errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    now = asked(simulation)
    assert [(each.member.client_id, each.offers) for each in now.refused.joins] == [("b", ("sticky",))]
    assert (now.refused.commits, now.refused.assignors) == (("gone",), ("range",))
    assert (now.offsets, now.subscriptions.topics) == (OffsetsNow(1), TopicsNow(("t",)))
    simulation.post(leave(member_id))
    now = asked(simulation)
    assert now.offsets == OffsetsNow(1, now.now_ms + WEEK_MS)
    simulation.advance(600_000)
    assert asked(simulation).refused == Refused()


def test_votes_of_members_and_what_they_offer() -> None:
    simulation = CoordinatorSimulation()
    both, own = offers("sticky", "range"), offers("range")
    replies = [
        simulation.post(join(client=name, protocols=each)) for name, each in (("a", both), ("b", both), ("c", own))
    ]
    simulation.advance(10_000)
    leader = replies[0].value.member_id
    simulation.post(sync(leader, 1, dict.fromkeys((reply.value.member_id for reply in replies), b"")))
    found = asked(simulation).subscriptions.votes
    assert found is not None
    assert (found.assignor, found.preferred, found.first_choices) == ("range", "sticky", (("sticky", 2), ("range", 1)))
    assert (found.voted, found.lacking_count) == ((("range", 3),), 1)
    assert [member.client_id for member in found.lacking] == ["c"]
    assert [offer.assignors for offer in found.offers] == [("sticky", "range"), ("sticky", "range"), ("range",)]


def test_group_without_members_and_groups_of_the_consumer_protocol_do_not_vote() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(commit())
    assert asked(simulation).subscriptions == Subscriptions()
    assert asked(two_members(), "g").subscriptions.votes is None


def test_votes_of_many_members_are_counted_in_steps() -> None:
    simulation = CoordinatorSimulation()
    group = ClassicGroup(GROUP, simulation.settings, simulation.clock, simulation.random)
    for number in range(1000):
        group.members.add(GroupMember.from_request(f"m{number}", join(protocols=offers("sticky", "range"))))
    steps = votes(group)
    assert sum(1 for _ in steps) >= 2 * (1000 // ITEMS_PER_STEP)
