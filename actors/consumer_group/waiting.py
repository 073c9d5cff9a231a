"""What a group of the consumer protocol waits for. Pure."""

from __future__ import annotations

from itertools import islice

from ..group.waiting import MEMBERS_SHOWN
from ..recorder.now import Waiting
from ..recorder.record import NAMES_MAX
from .notes import identify
from .records import MemberState
from .state import GroupPhase, GroupState, Member
from .timers import MemberTimers


def waiting(state: GroupState, timers: MemberTimers) -> Waiting:
    """``state``: what is durable."""
    members = state.members.values()
    shown = Waiting(
        state.epoch.epoch, members=tuple(map(identify, islice(members, MEMBERS_SHOWN))), member_count=len(members)
    )
    if state.phase is GroupPhase.ASSIGNING:
        return shown._replace(what="its assignor")
    if state.phase is not GroupPhase.RECONCILING:
        return shown
    holding = [member for member in members if member.current.state is MemberState.UNREVOKED_PARTITIONS]
    if holding:
        dues = [timer.deadline.due_ms for member in holding if (timer := timers.rebalances.get(member.member_id))]
        return _missing(shown, "members to give back partitions", holding, dues)
    behind = [member for member in members if not member.is_reconciled_to(state.target.epoch)]
    dues = [session.due_ms for member in behind if (session := timers.sessions.get(member.member_id))]
    return _missing(shown, "members to send a heartbeat", behind, dues)


def _missing(shown: Waiting, what: str, missing: list[Member], dues: list[int | None]) -> Waiting:
    until_ms = min((due_ms for due_ms in dues if due_ms is not None), default=None)
    names = tuple(map(identify, missing[:NAMES_MAX]))
    return shown._replace(what=what, missing=names, missing_count=len(missing), until_ms=until_ms)
