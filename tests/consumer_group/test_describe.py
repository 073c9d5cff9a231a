"""What ConsumerGroupDescribe says of a group."""

from __future__ import annotations

from consumer_group.group_world import GROUP, Topics, World

from callboard.actors.consumer_group.describe import describe
from callboard.actors.consumer_group.messages import ConsumerGroupDescribed, DescribedConsumer
from callboard.actors.consumer_group.records import ClassicMember, MemberRecord
from callboard.actors.errors import ErrorCode
from callboard.actors.steps import run_steps

ASSIGNORS = ("uniform", "range")


def described(world: World) -> ConsumerGroupDescribed:
    return run_steps(describe(world.state, ASSIGNORS))


def member(world: World, member_id: str) -> DescribedConsumer:
    (found,) = [member for member in described(world).members if member.member_id == member_id]
    return found


def test_a_group_with_a_member() -> None:
    world = World(Topics(t=2))
    about = {"instance_id": "seat", "rack_id": "r", "client_id": "c", "client_host": "/h"}
    world.join("m", "t", **about)
    partitions = world.partitions("t0 t1") or ()
    expected = DescribedConsumer("m", "seat", "r", 2, "c", "/h", ("t",), "", partitions, partitions)
    assert described(world) == ConsumerGroupDescribed(
        ErrorCode.NONE, GROUP, None, "Stable", 2, 2, "uniform", (expected,)
    )


def test_the_assignment_includes_what_has_to_be_given_back() -> None:
    world = World(Topics(t=2))
    world.join("m", "t")
    world.join("n", "t")
    world.beat("m", 2, owned="t0 t1")
    assert world.pending("m")
    assert world.text(member(world, "m").assigned) == "t0 t1"
    assert world.text(member(world, "m").target) == "t0"
    assert member(world, "n").assigned == ()
    assert described(world).state == "Reconciling"


def test_epochs_while_a_new_target_is_due() -> None:
    world = World(Topics(t=2))
    world.join("m", "t")
    world.join("n", "t")
    world.remove("n")
    group = described(world)
    assert (group.state, group.epoch, group.assignment_epoch) == ("Assigning", 4, 3)


def test_an_empty_group() -> None:
    world = World(Topics(t=2))
    world.join("m", "t")
    world.remove("m")
    group = described(world)
    assert (group.state, group.epoch, group.members, group.assignor_name) == ("Empty", 3, (), "uniform")


def test_the_assignor_that_most_members_ask_for() -> None:
    world = World(Topics(t=2))
    world.join("a", "t", server_assignor="range")
    world.join("b", "t")
    assert described(world).assignor_name == "range"
    world.join("c", "t", server_assignor="uniform")
    world.join("d", "t", server_assignor="uniform")
    assert described(world).assignor_name == "uniform"


def test_a_member_of_the_classic_protocol() -> None:
    world = World(Topics(t=2))
    world.join("m", "t")
    assert not member(world, "m").is_classic
    about = world.state.members["m"].about._replace(classic=ClassicMember(45_000))
    world.state.replay(MemberRecord(GROUP, "m", about))
    assert member(world, "m").is_classic
