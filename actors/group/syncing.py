"""SyncGroup: the leader's assignment is appended, then all members get their part. Pure.

Kafka's ``classicGroupSync``. Replies are sent by way of the effects, when the assignment is durable.
"""

from __future__ import annotations

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import SyncGroup
from ..records import GroupValue
from ..steps import Steps, pieces
from .contexts import AssignmentContext
from .core import GroupCore
from .effects import Effects
from .events import Cause, Reason
from .group_value import record_of, replay
from .rebalance_notes import AllSynced, Assigned, LeaderSynced
from .replies import answer_parked_sync, drop_assignments, synced
from .states import Event


def park_sync(group: GroupCore, request: SyncGroup, reply: ReplyTo | None, effects: Effects) -> object:
    """Park the request until the leader's assignment is durable; the leader's own has the assignment."""
    phase = group.sync_phase
    _count_sync(group, request.member_id, effects)
    group.members.by_id[request.member_id].syncing = reply
    if request.member_id == group.leader_id and phase.awaited is None:
        # Only the first assignment is used: members might already have got it when a second one is appended.
        phase.awaited = AssignmentContext(group.generation)
        effects.notes.append(LeaderSynced(group.clock.monotonic_ms()))
        steps = _append_assignment(group, request.assignments, phase.awaited, effects)
        effects.run(steps, max(len(group.members), len(request.assignments)))
    return DEFERRED


def _append_assignment(
    group: GroupCore, assignments: tuple[tuple[str, bytes], ...], context: AssignmentContext, effects: Effects
) -> Steps[None]:
    effects.append_record((yield from record_of(group, assignments)), context)


def answer_sync(group: GroupCore, request: SyncGroup, reply: ReplyTo | None, effects: Effects) -> object:
    _count_sync(group, request.member_id, effects)
    effects.answer(reply, synced(group, group.members.by_id[request.member_id]))
    return DEFERRED


def _count_sync(group: GroupCore, member_id: str, effects: Effects) -> None:
    phase = group.sync_phase
    if member_id not in phase.pending:
        return
    phase.pending.remove(member_id)
    if not phase.pending:
        phase.deadline.cancel(effects)
        effects.notes.append(AllSynced(group.clock.monotonic_ms()))


def complete_assignment(group: GroupCore, value: GroupValue, effects: Effects) -> None:
    """The assignment is durable: members whose SyncGroup is parked get it."""
    group.sync_phase.awaited = None
    effects.notes.append(Assigned(value.protocol or "", value.leader or "", value.members))
    effects.run(_answer_syncs(group, value, effects), len(group.members))


def _answer_syncs(group: GroupCore, value: GroupValue, effects: Effects) -> Steps[None]:
    yield from replay(group, value)
    for members in pieces(group.members):
        for member in members:
            answer_parked_sync(group, member, synced(group, member), effects)
        yield
    yield from group.members.count_assignments()
    group.apply(Event.ASSIGNMENT_DURABLE, Cause(Reason.ASSIGNMENT_STORED), effects)


def revert_assignment(group: GroupCore, error: ErrorCode, effects: Effects) -> None:
    """The assignment could not be appended: members whose SyncGroup is parked get the error, and rejoin."""
    effects.run(drop_assignments(group, error, effects), len(group.members))
    group.apply(Event.ASSIGNMENT_FAILED, Cause(Reason.ASSIGNMENT_NOT_STORED), effects)
