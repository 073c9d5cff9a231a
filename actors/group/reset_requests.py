"""ResetOffsets and DescribeReset to an active group of any kind."""

from __future__ import annotations

from types import GeneratorType

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .active_group import ActiveGroup
from .applied import applied
from .pending_offsets import PendingOffsets
from .reset_messages import DescribeReset, OffsetsReset, ResetDescribed, ResetOffsets
from .reset_watch import NEVER_MS, simple_commit_ms
from .resets import changed_ms, made, with_before


def reset_offsets(active: ActiveGroup, request: ResetOffsets, reply: ReplyTo | None) -> object:
    """Not while an open transaction has an offset of such a partition: its producer does not expect the reset."""
    steps = _prepare(active, request)
    if len(request.offsets) > SHORT_WORK_ITEMS:
        return _reset_in_steps(active, steps, reply)
    return _reset(active, run_steps(steps), reply)


def _prepare(active: ActiveGroup, request: ResetOffsets) -> Steps[ResetOffsets | OffsetsReset]:
    """The request with what is known before it, or the reply that refuses it."""
    data, pending = active.data, active.data.pending.by_partition
    for piece in pieces(request.offsets):
        producers = next(filter(None, (pending.get((topic, partition)) for topic, partition, _ in piece)), None)
        if producers:
            return _refusal(data.pending, next(iter(producers)))
        yield
    return (yield from with_before(request, data.offsets.find))._replace(
        simple_commit_ms=(yield from _simple_commit_ms(active, request))
    )


def _refusal(pending: PendingOffsets, producer_id: int) -> OffsetsReset:
    values = (producers.get(producer_id) for producers in pending.by_partition.values())
    sent_ms = [value.commit_timestamp_ms for value in values if value is not None]
    return OffsetsReset(
        ErrorCode.UNSTABLE_OFFSET_COMMIT, producer_id=producer_id, pending_since_ms=min(sent_ms, default=NEVER_MS)
    )


def _simple_commit_ms(active: ActiveGroup, request: ResetOffsets) -> Steps[int]:
    """As far as it is known: from the commits since the group is in memory, and the offsets of one without members."""
    data, seen_ms = active.data, active.guard.watch.simple_commit_ms
    empty_since_ms = 0 if data.value is None else changed_ms(data.value)
    if empty_since_ms < 0:
        return seen_ms
    return max(seen_ms, (yield from simple_commit_ms(request.offsets, data.offsets.find, empty_since_ms)))


def _reset(active: ActiveGroup, prepared: ResetOffsets | OffsetsReset, reply: ReplyTo | None) -> object:
    if isinstance(prepared, OffsetsReset):
        return prepared
    if prepared.is_plan:
        return made(prepared, ())
    partitions = ((topic, partition) for topic, partition, _ in prepared.offsets)
    active.guard.watch.begin(prepared.change_id, partitions)
    return applied(active, active.group.handle(prepared, reply, active.effects))


def describe_reset(active: ActiveGroup, _request: DescribeReset, _reply: ReplyTo | None) -> ResetDescribed:
    watch = active.guard.watch
    return ResetDescribed(ErrorCode.NONE, watch.change_id, tuple(watch.unfetched), watch.fetched_ms)


def _reset_in_steps(
    active: ActiveGroup, steps: Steps[ResetOffsets | OffsetsReset], reply: ReplyTo | None
) -> Steps[object]:
    result = _reset(active, (yield from steps), reply)
    return (yield from result) if isinstance(result, GeneratorType) else result
