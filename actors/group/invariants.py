"""What is always true of a classic group between two requests. For tests."""

from __future__ import annotations

from .core import GroupCore
from .members import GroupMember


def check(group: GroupCore) -> None:
    """Raise AssertionError unless the parts of the group agree with each other and with the state."""
    state, members, sync_phase = group.state, group.members, group.sync_phase
    members.check()
    assert state.may_have_members or not len(members), f"{state.value} with {len(members)} members"
    assert group.leader_id is None or group.leader_id in members.by_id, "the leader is not a member"
    assert sync_phase.pending <= members.by_id.keys(), "somebody who is not a member has to sync"
    assert not sync_phase.pending or state.is_sync_phase or state.is_stable, f"{state.value} waits for SyncGroup"
    assert sync_phase.awaited is None or (state.is_sync_phase and sync_phase.awaited.generation == group.generation), (
        "an assignment of another generation is awaited"
    )
    assert (group.join_phase.deadline.due_ms is not None) == state.is_join_phase, f"join deadline in {state.value}"
    for member in members:
        check_member(group, member)


def check_member(group: GroupCore, member: GroupMember) -> None:
    state, name = group.state, f"member {member.member_id!r}"
    assert member.joining is None or member.syncing is None, f"{name} waits for two replies"
    is_static_rejoin = state.is_stable and member.group_instance_id is not None
    assert member.joining is None or state.is_join_phase or is_static_rejoin, f"{name} waits to join in {state.value}"
    assert member.syncing is None or state.is_sync_phase, f"{name} waits to sync in {state.value}"
    is_waiting = member.joining is not None or member.syncing is not None
    assert is_waiting or member.session.due_ms is not None, f"{name} has no session deadline"
