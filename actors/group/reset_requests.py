"""ResetOffsets to an active group of any kind."""

from __future__ import annotations

from types import GeneratorType

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .active_group import ActiveGroup
from .applied import applied
from .reset_messages import OffsetsReset, ResetOffsets
from .resets import with_before


def reset_offsets(active: ActiveGroup, request: ResetOffsets, reply: ReplyTo | None) -> object:
    """Not while an open transaction has an offset of such a partition: its producer does not expect the reset."""
    steps = _prepare(active, request)
    if len(request.offsets) > SHORT_WORK_ITEMS:
        return _reset_in_steps(active, steps, reply)
    return _reset(active, run_steps(steps), reply)


def _prepare(active: ActiveGroup, request: ResetOffsets) -> Steps[ResetOffsets | OffsetsReset]:
    """The request with the offsets before it, or the reply that refuses it."""
    pending = active.data.pending.by_partition
    for piece in pieces(request.offsets):
        producers = next(filter(None, (pending.get((topic, partition)) for topic, partition, _ in piece)), None)
        if producers:
            return OffsetsReset(ErrorCode.UNSTABLE_OFFSET_COMMIT, producer_id=next(iter(producers)))
        yield
    return (yield from with_before(request, active.data.offsets.find))


def _reset(active: ActiveGroup, prepared: ResetOffsets | OffsetsReset, reply: ReplyTo | None) -> object:
    if isinstance(prepared, OffsetsReset):
        return prepared
    return applied(active, active.group.handle(prepared, reply, active.effects))


def _reset_in_steps(
    active: ActiveGroup, steps: Steps[ResetOffsets | OffsetsReset], reply: ReplyTo | None
) -> Steps[object]:
    result = _reset(active, (yield from steps), reply)
    return (yield from result) if isinstance(result, GeneratorType) else result
