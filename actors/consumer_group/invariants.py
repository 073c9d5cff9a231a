"""What is always true of a group of the consumer protocol between two messages. For tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .records import MemberState, Partition
from .state import GroupState
from .timers import CLASSIC_JOIN, CLASSIC_SYNC

if TYPE_CHECKING:
    from .group import ConsumerGroup


def check(group: ConsumerGroup) -> None:
    """Raise AssertionError unless the parts of the group agree with each other."""
    assert group.soft.owners == _owners(group.soft), "the index of owners is wrong"
    for state in filter(None, (group.soft, group.durable)):
        for instance_id, member_id in state.static_members.items():
            assert state.members[member_id].about.instance_id == instance_id, f"{member_id!r} is not {instance_id!r}"
    if group.queue.is_idle:
        _check_idle(group)


def _owners(state: GroupState) -> Mapping[Partition, str]:
    """The owners according to the members."""
    owners: dict[Partition, str] = {}
    for member in state.members.values():
        for partition in (*member.current.assigned, *member.current.pending_revocation):
            other = owners.setdefault(partition, member.member_id)
            assert other == member.member_id, f"{partition[1]} belongs to {other!r} and {member.member_id!r}"
    return owners


def _check_idle(group: ConsumerGroup) -> None:
    """Nothing is on its way to the log: what counts is durable, and each member has its deadlines."""
    state = group.soft
    if group.durable is None:
        assert state.is_blank, "nothing is durable of the group"
    else:
        assert state == group.durable, f"{state} is not {group.durable}"
    assert state.targets.keys() <= state.members.keys(), "a target has no member"
    assert group.timers.sessions.keys() == state.members.keys(), "not each member has a session"
    for member in state.members.values():
        session, rebalance = group.timers.sessions[member.member_id], group.timers.rebalance(member.member_id)
        assert session.due_ms is not None, f"the session of {member.member_id!r} has no end"
        has_time = rebalance is not None and rebalance.due_ms is not None
        is_classic = member.about.classic is not None
        is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS and not is_classic
        assert has_time == is_revoking, f"{member.member_id!r} has {'no' if is_revoking else 'a'} rebalance deadline"
        is_awaited = any(member.member_id in group.timers.by_kind[kind] for kind in (CLASSIC_JOIN, CLASSIC_SYNC))
        assert is_classic or not is_awaited, f"{member.member_id!r} has to send JoinGroup or SyncGroup"
