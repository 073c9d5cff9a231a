"""The durable record of a classic group. Pure."""

from __future__ import annotations

from ..records import GroupRecord, GroupValue, MemberValue
from ..steps import Steps, pieces
from .core import GroupCore
from .members import GroupMember


def replay(group: GroupCore, value: GroupValue) -> Steps[None]:
    """Apply a durable record, its members in the steps: known ones get their assignments, others are created."""
    group.protocol_type = value.protocol_type or None
    group.generation = value.generation
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    return _replay_members(group, value)


def _replay_members(group: GroupCore, value: GroupValue) -> Steps[None]:
    for member_values in pieces(value.members):
        for member_value in member_values:
            member = group.members.by_id.get(member_value.member_id)
            if member is None:
                group.members.add(GroupMember.from_record(member_value, value.protocol))
            else:
                member.assignment = member_value.assignment
        yield


def value_of(group: GroupCore, assignments: tuple[tuple[str, bytes], ...] | None = None) -> Steps[GroupValue]:
    """The value of the group's record. ``assignments`` None: the current ones of the members."""
    given = dict(assignments) if assignments is not None else None
    member_values: list[MemberValue] = []
    for members in pieces(group.members):
        for member in members:
            assignment = member.assignment if given is None else given.get(member.member_id, b"")
            member_values.append(member.to_record(group.protocol_name, assignment))
        yield
    return GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp_ms=group.machine.since_ms,
        members=tuple(member_values),
    )


def record_of(group: GroupCore, assignments: tuple[tuple[str, bytes], ...] | None = None) -> Steps[GroupRecord]:
    return GroupRecord(group.group_id, (yield from value_of(group, assignments)))


def creation_record(group: GroupCore) -> GroupRecord:
    """The record of a group without a generation, as in Kafka: members may still be joining."""
    return GroupRecord(group.group_id, GroupValue("", 0, None, None, group.machine.since_ms, ()))
