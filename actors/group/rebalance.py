"""The steps of a classic group from one generation to the next. Pure.

``states.TRANSITIONS`` names the functions that follow an event; ``dispatch.py`` names those that follow a deadline.
Source of the rules: Kafka's GroupMetadataManager (4.x), ClassicGroup.
"""

from __future__ import annotations

from ..errors import ErrorCode
from ..messages import Joined
from ..steps import Steps, pieces, run_steps
from .core import GroupCore
from .effects import Effects
from .events import Cause, Reason
from .group_value import record_of
from .rebalance_notes import KeptAbsent
from .removal import remove
from .replies import answer_join, drop_assignments
from .states import Event

# The join phase ------------------------------------------------------------------------------------------------------


def start_initial_delay(group: GroupCore, _cause: Cause, effects: Effects) -> None:
    assert group.state.is_join_phase
    phase, delay_ms = group.join_phase, group.settings.group_initial_rebalance_delay_ms
    delay_ms = phase.begin_initial(delay_ms, group.members.max_rebalance_timeout_ms())
    group.set_deadline(phase.deadline, delay_ms, effects)


def abandon_generation(group: GroupCore, cause: Cause, effects: Effects) -> None:
    """A rebalance begins before all members have got their assignment."""
    assert group.state.is_join_phase
    effects.run(drop_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, effects), len(group.members))
    group.sync_phase.awaited = None
    start_join_phase(group, cause, effects)


def start_join_phase(group: GroupCore, _cause: Cause, effects: Effects) -> None:
    assert group.state.is_join_phase
    group.sync_phase.pending.clear()
    group.sync_phase.deadline.cancel(effects)
    if group.members.all_joined():
        _end_join_phase(group, Reason.ALL_JOINED, effects)
    else:
        group.set_deadline(group.join_phase.deadline, group.members.max_rebalance_timeout_ms(), effects)


def check_join_phase(group: GroupCore, cause: Cause, effects: Effects) -> None:
    """The members have changed: end the phase if all have joined. Nothing ends the initial delay early."""
    assert group.state.is_join_phase
    phase = group.join_phase
    if not phase.is_initial:
        check_join_phase_early(group, cause, effects)
    if phase.retry_ms is not None:
        group.set_deadline(phase.deadline, phase.retry_ms, effects)


def check_join_phase_early(group: GroupCore, _cause: Cause, effects: Effects) -> None:
    """After an expiry Kafka only checks whether all have joined. This may end the initial delay."""
    assert group.state.is_join_phase
    if group.members.all_joined():
        _end_join_phase(group, Reason.ALL_JOINED, effects)


def join_deadline_passed(group: GroupCore, effects: Effects) -> None:
    is_initial = group.join_phase.is_initial
    cause = Cause(Reason.INITIAL_DELAY_ENDED if is_initial else Reason.REBALANCE_TIMEOUT)
    group.apply(Event.JOIN_DEADLINE, cause, effects)


def extend_or_end_join_phase(group: GroupCore, cause: Cause, effects: Effects) -> None:
    assert group.state.is_join_phase
    phase = group.join_phase
    delay_ms = phase.extend(group.settings.group_initial_rebalance_delay_ms)
    if delay_ms is None:
        _end_join_phase(group, cause.reason, effects)
    else:
        group.set_deadline(phase.deadline, delay_ms, effects)


def _end_join_phase(group: GroupCore, reason: Reason, effects: Effects) -> None:
    """The members that joined form the next generation. ``reason``: why the phase ends now."""
    phase, members = group.join_phase, group.members
    phase.deadline.cancel(effects)
    phase.end()
    for member in [m for m in members if m.joining is None and m.group_instance_id is None]:
        remove(group, member, Cause(Reason.DID_NOT_REJOIN, member), effects)
    if not _elect_leader(group):
        delay_ms = phase.wait_for_any_member(members.max_rebalance_timeout_ms())
        group.set_deadline(phase.deadline, delay_ms, effects)
        return
    effects.notes += [KeptAbsent(member) for member in members if member.joining is None]  # they are static
    group.generation += 1
    if len(members):
        group.apply(Event.GENERATION_FORMED, Cause(reason), effects)
    else:
        group.apply(Event.ALL_LEFT, Cause(Reason.NO_MEMBERS), effects)


def _elect_leader(group: GroupCore) -> bool:
    """Ensure that the leader has joined. False if only absent static members are left."""
    members = group.members
    leader = members.by_id.get(group.leader_id) if group.leader_id is not None else None
    if not len(members) or (leader is not None and leader.joining is not None):
        return True
    new_leader = next((member for member in members if member.joining is not None), None)
    if new_leader is not None:
        group.leader_id = new_leader.member_id
    return new_leader is not None


# Generations ---------------------------------------------------------------------------------------------------------


def become_empty(group: GroupCore, _cause: Cause, effects: Effects) -> None:
    assert group.state.is_empty
    group.protocol_name = None
    run_steps(group.subscriptions.store(group.protocol_type, group.protocol_name, group.members))
    effects.append_record(run_steps(record_of(group, ())))


def begin_generation(group: GroupCore, _cause: Cause, effects: Effects) -> None:
    assert group.state.is_sync_phase
    effects.run(_begin_generation(group, effects), len(group.members))


def _begin_generation(group: GroupCore, effects: Effects) -> Steps[None]:
    members, phase = group.members, group.sync_phase
    group.protocol_name = yield from members.vote()
    yield from group.subscriptions.store(group.protocol_type, group.protocol_name, members)
    for piece in pieces(members):
        for member in piece:
            yield from answer_join(group, member, members.pop_join(member), effects)
            group.renew_session(member, effects)
            member.is_new = False
        yield
    phase.pending = set(members.by_id)
    group.set_deadline(phase.deadline, members.max_rebalance_timeout_ms(), effects)


def sync_deadline_passed(group: GroupCore, effects: Effects) -> None:
    """Remove members that have not sent SyncGroup, static ones too (KAFKA-12890)."""
    cause = Cause(Reason.SYNC_TIMEOUT)
    pending = list(group.sync_phase.pending)
    for member in [group.members.by_id[member_id] for member_id in pending]:
        # A static member may have parked a JoinGroup.
        effects.answer(group.members.pop_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID))
        cause = Cause(Reason.SYNC_TIMEOUT, member)
        remove(group, member, cause, effects)
    if pending:
        group.apply(Event.SYNC_DEADLINE, cause, effects)
