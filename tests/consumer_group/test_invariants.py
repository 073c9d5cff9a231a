"""The invariants hold in all states of a group, and a state that violates one is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consumer_group.actor_world import ActorWorld

from callboard.actors.consumer_group.group import ConsumerGroup
from callboard.actors.consumer_group.invariants import check
from callboard.actors.consumer_group.records import NO_PARTITIONS
from callboard.actors.consumer_group.state import GroupState


def reconciling() -> ActorWorld:
    """a has to give back a partition that b waits for."""
    world = ActorWorld()
    world.join("a", instance_id="i")
    check(world.consumer_group)
    world.join("b")
    check(world.consumer_group)
    world.beat("a", 2)
    check(world.consumer_group)
    return world


def test_invariants_hold_until_all_members_have_their_targets_and_have_left() -> None:
    world = reconciling()
    world.settle("a", "b")
    check(world.consumer_group)
    assert world.consumer_group.state_name == "Stable"
    for member_id in ("a", "b"):
        world.beat(member_id, -1)
        check(world.consumer_group)


def _take_from_other(group: ConsumerGroup) -> None:
    other = group.soft.members["a"].current
    member = group.soft.members["b"]
    group.soft.members["b"] = member._replace(current=member.current._replace(assigned=other.assigned))


def _forget_owner(group: ConsumerGroup) -> None:
    group.soft.owners.popitem()


def _rename_instance(group: ConsumerGroup) -> None:
    group.soft.static_members["i"] = "b"


def _change_soft_state_only(group: ConsumerGroup) -> None:
    group.soft.targets["a"] = ()


def _keep_target(group: ConsumerGroup) -> None:
    for state in (group.soft, group.durable):
        assert state is not None
        state.targets["gone"] = ()


def _lose_session(group: ConsumerGroup) -> None:
    del group.timers.sessions["b"]


def _end_session(group: ConsumerGroup) -> None:
    group.timers.sessions["b"].due_ms = None


def _lose_rebalance_deadline(group: ConsumerGroup) -> None:
    del group.timers.rebalances["a"]


def _lose_durable_state(group: ConsumerGroup) -> None:
    group.durable = None


def _empty(group: ConsumerGroup) -> None:
    group.durable = GroupState(group.group_id)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_take_from_other, "belongs to 'a' and 'b'"),
        (_forget_owner, "index of owners"),
        (_rename_instance, "'b' is not 'i'"),
        (_change_soft_state_only, "is not GroupState"),
        (_keep_target, "a target has no member"),
        (_lose_session, "not each member has a session"),
        (_end_session, "the session of 'b' has no end"),
        (_lose_rebalance_deadline, "'a' has no rebalance deadline"),
        (_lose_durable_state, "nothing is durable"),
        (_empty, "is not GroupState"),
    ],
)
def test_a_damaged_group_is_noticed(damage: Callable[[ConsumerGroup], None], problem: str) -> None:
    group = reconciling().consumer_group
    assert group.soft.members["a"].current.pending_revocation != NO_PARTITIONS
    damage(group)
    with pytest.raises(AssertionError, match=problem):
        check(group)
