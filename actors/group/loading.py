"""A classic group is restored from its record. Pure."""

from __future__ import annotations

from ..records import GroupValue
from ..steps import Steps, pieces
from .core import GroupCore
from .effects import Effects
from .events import Cause, Kind, Reason
from .group_value import replay
from .rebalance_notes import Assigned
from .states import Event


def load(group: GroupCore, value: GroupValue, effects: Effects) -> Steps[None]:
    """Restore the group, its members in the steps. Their sessions start again."""
    first_generation = group.generation
    members = replay(group, value)
    if value.generation == 0:  # the record of a group that had no generation yet
        group.generation = first_generation
    if value.members:
        effects.notes.append(Assigned(value.protocol or "", value.leader or "", value.members, is_loaded=True))
        act = group.machine.apply(Event.LOADED_WITH_MEMBERS, value.current_state_timestamp_ms)
        assert act is None, "loading is no rebalance"
    group.machine.since_ms = value.current_state_timestamp_ms
    return _load_members(group, value, members, effects)


def _load_members(group: GroupCore, value: GroupValue, members: Steps[None], effects: Effects) -> Steps[None]:
    yield from members
    yield from group.members.count_assignments()
    yield from group.subscriptions.store(group.protocol_type, group.protocol_name, group.members)
    for piece in pieces(group.members):
        for member in piece:
            group.renew_session(member, effects)
            group.note(Kind.MEMBER_ADDED, Cause(Reason.LOADED, member), effects)
        yield
    if len(group.members) > group.settings.group_max_size:
        group.apply(Event.LOADED_TOO_MANY, Cause(Reason.TOO_MANY_MEMBERS), effects)
    elif value.members and value.leader is None:  # a downgrade, whose rebalance has not ended
        group.apply(Event.MEMBERS_LEFT, Cause(Reason.DOWNGRADED), effects)
