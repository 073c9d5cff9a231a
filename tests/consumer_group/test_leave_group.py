"""LeaveGroup of members of the consumer protocol."""

from __future__ import annotations

import pytest
from consumer_group.group_world import GROUP, Topics, World

from callboard.actors.consumer_group.leaving import leave_group
from callboard.actors.consumer_group.plan import Plan
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import LeaveGroup, LeavingMember, Left, LeftMember
from callboard.actors.steps import run_steps

NONE, UNKNOWN_MEMBER, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def world() -> World:
    world = World(Topics(t=3))
    world.join("m", "t")
    world.join("s", "t", instance_id="seat")
    return world


def leave(world: World, *members: tuple[str, str | None]) -> Left:
    plan = Plan()
    identities = tuple(LeavingMember(member_id, instance_id) for member_id, instance_id in members)
    left = run_steps(leave_group(world.state, LeaveGroup(GROUP, identities), world, plan))
    world.apply(plan)
    return left


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error", "removed"),
    [
        ("m", None, NONE, "m"),
        ("s", None, NONE, "s"),
        ("s", "seat", NONE, "s"),
        ("", "seat", NONE, "s"),
        ("x", None, UNKNOWN_MEMBER, ""),
        ("", None, UNKNOWN_MEMBER, ""),
        ("m", "seat", FENCED, ""),
        ("s", "other", UNKNOWN_MEMBER, ""),
    ],
)
def test_members_leave_by_id_or_instance(
    world: World, member_id: str, instance_id: str | None, error: ErrorCode, removed: str
) -> None:
    """The reply repeats the identity as it was asked."""
    left = leave(world, (member_id, instance_id))
    assert left == Left(NONE, (LeftMember(member_id, instance_id, error),))
    assert set("ms") - world.state.members.keys() == set(removed)
    assert world.plan.removed == list(removed)
    assert world.key_types() == ([-8, -7, -5, 3] if removed else [])


def test_several_members_leave_in_one_write_with_one_epoch(world: World) -> None:
    left = leave(world, ("m", None), ("x", None), ("", "seat"), ("m", None))
    assert [member.error for member in left.members] == [NONE, UNKNOWN_MEMBER, NONE, NONE]
    assert world.key_types() == [-8, -7, -5, -8, -7, -5, 3]
    assert (world.phase, world.state.epoch.epoch) == ("Empty", 4)


def test_a_member_that_was_removed_is_unknown(world: World) -> None:
    leave(world, ("m", None))
    assert world.error_of("m", 3) is UNKNOWN_MEMBER
