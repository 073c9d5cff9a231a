"""What a classic group waits for. Pure."""

from __future__ import annotations

from itertools import islice

from ..recorder.now import Waiting
from ..recorder.record import NAMES_MAX
from .core import GroupCore
from .members import GroupMember

MEMBERS_SHOWN = 100


def waiting(group: GroupCore) -> Waiting:
    state, members = group.state, group.members
    shown = Waiting(
        group.generation,
        members=tuple(islice(members, MEMBERS_SHOWN)),
        member_count=len(members),
        assignors=tuple(sorted(members.common_protocols())[:NAMES_MAX]),
    )
    if state.is_join_phase:
        return _waiting_to_join(group, shown)
    phase = group.sync_phase
    if state.is_sync_phase and phase.awaited is not None:
        return shown._replace(what="the log to store the assignment")
    leader = members.by_id.get(group.leader_id or "")
    if state.is_sync_phase and leader is not None and leader.member_id in phase.pending:
        until_ms = phase.deadline.due_ms
        return shown._replace(
            what="its leader to send the assignment", missing=(leader,), missing_count=1, until_ms=until_ms
        )
    if phase.pending:
        missing = [members.by_id[member_id] for member_id in islice(phase.pending, NAMES_MAX)]
        return _missing(
            shown, "members to ask for their assignment", missing, len(phase.pending), phase.deadline.due_ms
        )
    return shown


def _waiting_to_join(group: GroupCore, shown: Waiting) -> Waiting:
    members, until_ms = group.members, group.join_phase.deadline.due_ms
    absent = len(members) - members.joining
    if group.join_phase.is_initial or not absent:
        return shown._replace(what="more members to join", until_ms=until_ms)
    missing = list(islice((member for member in members if member.joining is None), NAMES_MAX))
    return _missing(shown, "members to rejoin", missing, absent, until_ms)


def _missing(shown: Waiting, what: str, missing: list[GroupMember], count: int, until_ms: int | None) -> Waiting:
    return shown._replace(what=what, missing=tuple(missing), missing_count=count, until_ms=until_ms)
