"""Commits of members that an administrator has removed, in a group that is idle afterwards."""

from __future__ import annotations

from actor_system.requests import GROUP, commit, join, leave
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode
from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.group.commit_guard import GUARD_MS
from callboard.actors.group.leave_causes import ADMIN_REASON
from callboard.actors.messages import LeavingMember


def with_removed_member() -> tuple[CoordinatorSimulation, str]:
    simulation = CoordinatorSimulation()
    joining = simulation.post(join())
    simulation.advance(10_000)  # the initial delay
    member_id = joining.value.member_id
    simulation.post(leave(LeavingMember(member_id, None, ADMIN_REASON)))
    assert simulation.post(commit(7)).value.errors == (ErrorCode.NONE,)
    return simulation, member_id


def test_idle_group_stays_in_memory_while_it_remembers_them() -> None:
    simulation, member_id = with_removed_member()
    old = commit(200)._replace(former_member_id=member_id)
    simulation.advance(3 * IDLE_MS)
    assert simulation.post(old).value.errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    simulation.advance(GUARD_MS + 2 * IDLE_MS)
    assert GROUP not in simulation.directory.groups
    assert simulation.post(old).value.errors == (ErrorCode.NONE,)


def test_commits_of_others_are_accepted() -> None:
    simulation, _ = with_removed_member()
    assert simulation.post(commit(8)._replace(former_member_id="another")).value.errors == (ErrorCode.NONE,)
