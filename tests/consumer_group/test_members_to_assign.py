"""What an assignor sees of a group's members is made when it looks at them, and only what it sees counts."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_group.group_world import Topics, World

from callboard.actors.assignors.server.base import GroupMember, GroupToAssign, TargetAssignment
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS
from callboard.actors.consumer_group import target
from callboard.actors.consumer_group.members_to_assign import MembersToAssign, members_to_assign
from callboard.actors.consumer_group.plan import ConsumerGroupSettings
from callboard.actors.consumer_group.records import MemberValue
from callboard.actors.consumer_group.state import GroupState, Member


def seen_by(world: World, member_id: str = "a") -> MembersToAssign:
    return members_to_assign(world.state, world.state.members[member_id])


@pytest.fixture
def world() -> World:
    """Two members; b waits for a to give back a partition."""
    world = World(Topics(t=2))
    world.join("a", "t")
    world.join("b", "t")
    return world


def test_members_are_made_when_an_assignor_looks_at_them(world: World) -> None:
    members = seen_by(world)
    assert len(members) == 2
    assert "_members" not in vars(members)
    assert {member.member_id: list(member.topics) for member in members} == {"a": ["t"], "b": ["t"]}
    assert isinstance(members[0], GroupMember) and list(members[:1]) == [members[0]]
    assert "_members" in vars(members)


def test_a_member_that_gives_back_partitions_does_not_change_what_is_assigned(world: World) -> None:
    before = seen_by(world)
    current = world.state.members["a"].current
    world.beat("a", 2, owned="t0 t1")
    assert world.state.members["a"].current != current
    assert seen_by(world) == before


def test_it_makes_no_difference_which_member_asks(world: World) -> None:
    """Otherwise the result of an assignor that works in a thread would never be the one that is asked for."""
    world.settings = ConsumerGroupSettings(assignment_interval_ms=60_000)
    world.join("c", "t")
    world.join("d", "t")
    assert not {"c", "d"} & world.state.targets.keys(), "they have no target yet"
    assert seen_by(world, "a") == seen_by(world, "c") == seen_by(world, "d")


@pytest.mark.parametrize("change", [{"topics": ("t", "u")}, {"rack_id": "r"}])
def test_what_an_assignor_sees_of_a_member_does(world: World, change: dict[str, Any]) -> None:
    before = seen_by(world)
    world.beat("a", 2, **change)
    assert seen_by(world) != before


def test_the_snapshot_does_not_change_with_the_group(world: World) -> None:
    before = seen_by(world)
    world.join("c", "t")
    assert len(before) == 2
    assert len(list(before)) == 2
    assert len(seen_by(world)) == 3


def test_a_static_member_that_is_replaced_is_gone_and_its_target_is_kept() -> None:
    world = World(Topics(t=1))
    world.join("a", "t", instance_id="i")
    members = members_to_assign(world.state, Member("b", MemberValue("i", topics=("t",))))
    assert [(member.member_id, dict(member.owned)) for member in members] == [("b", {world.topics.topic_id("t"): [0]})]


class Counting:
    """``ServerAssignor`` that counts its calls."""

    name = "uniform"

    def __init__(self) -> None:
        self.calls = 0

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        self.calls += 1
        return SERVER_ASSIGNORS["uniform"].assign(group)


def test_joins_within_the_assignment_interval_look_at_no_other_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many joins do not take time that grows with the square of their number."""
    world, counting = World(Topics(t=3), ConsumerGroupSettings()), Counting()
    world.assignors = {"uniform": counting}
    made: list[MembersToAssign] = []

    def make(state: GroupState, member: Member) -> MembersToAssign:
        made.append(members_to_assign(state, member))
        return made[-1]

    monkeypatch.setattr(target, "members_to_assign", make)
    for number in range(50):
        world.join(f"m{number}", "t")
    assert (counting.calls, len(made)) == (1, 1)
    world.wall_ms += world.settings.assignment_interval_ms
    world.beat("m0", 2)
    assert (counting.calls, len(made)) == (2, 2)


@pytest.mark.parametrize(
    ("own", "others", "chosen"),
    [
        (None, (None, None), "uniform"),
        ("range", (), "range"),
        ("range", ("range", "range"), "range"),
        ("unknown", ("unknown",), "uniform"),
        ("range", ("uniform", "uniform"), "uniform"),
        (None, ("range", None), "range"),
    ],
)
def test_the_assignor_is_the_one_that_most_members_ask_for(
    own: str | None, others: tuple[str | None, ...], chosen: str
) -> None:
    members = {str(index): Member(str(index), MemberValue(server_assignor=name)) for index, name in enumerate(others)}
    asking = Member("own", MemberValue(server_assignor=own))
    assert target.choose_assignor(members, asking, SERVER_ASSIGNORS).name == chosen
    before = {**members, "own": asking._replace(about=MemberValue(server_assignor="range"))}
    assert target.choose_assignor(before, asking, SERVER_ASSIGNORS).name == chosen, "its last vote does not count"
