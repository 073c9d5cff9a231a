"""What follows when records of an active group are durable, or could not be appended."""

from __future__ import annotations

from ..errors import NO_ERROR
from ..messages import Written
from ..steps import Steps, pieces
from .active_group import ActiveGroup
from .contexts import CommitContext, DeleteContext, OffsetDeleteContext
from .deletion import handle_tombstones_written
from .restart import handle_group_record_written, resume_in_flight


def replay_in_steps(active: ActiveGroup, message: Written) -> Steps[None]:
    """Apply many records, then do what ``complete_append`` does."""
    for records in pieces(message.records):
        for record in records:
            active.data.replay(record)
        yield
    rest = complete_append(active, message)
    if rest is not None:
        yield from rest


def complete_append(active: ActiveGroup, message: Written) -> Steps[None] | None:
    """Reply, and continue what has waited for the append. Returns the work if that may take long."""
    context, error, data = message.context, message.outcome.error, active.data
    if error is NO_ERROR and (data.offsets.size_bytes != active.counted_offset_bytes or data.pending.by_partition):
        active.count_memory()
    if type(context) is CommitContext:  # first, because nearly all are
        if error is NO_ERROR:
            active.effects.counters.commits += 1
        context.answer(error, message.outcome.durability)
    elif isinstance(context, OffsetDeleteContext):
        context.answer(error)
    elif isinstance(context, DeleteContext):
        handle_tombstones_written(active, context, error)
    else:
        handle_group_record_written(active, context, error)
        if active.effects.work:
            return work_and_resume(active)
    in_flight = active.in_flight
    if in_flight.fetches or in_flight.deletion is not None:
        return _resume(active)
    if active.idle.due_ms is None and in_flight.is_idle and active.group.may_be_passivated:
        active.apply_effects()
    return None


def work_and_resume(active: ActiveGroup) -> Steps[None]:
    """Do what decisions, or a load, have left to be done, and continue what has waited."""
    yield from active.work_in_steps()
    yield from _resume(active)


def _resume(active: ActiveGroup) -> Steps[None]:
    yield from resume_in_flight(active)
    if active.idle.due_ms is None and active.in_flight.is_idle and active.group.may_be_passivated:
        active.apply_effects()
