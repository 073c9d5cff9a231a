"""ResetOffsets and DescribeReset to an active group of any kind."""

from __future__ import annotations

from types import GeneratorType

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .active_group import ActiveGroup
from .applied import applied
from .offset_requests import complete_guard
from .pending_offsets import PendingOffsets
from .reset_messages import DescribeReset, OffsetsReset, ResetDescribed, ResetOffsets
from .reset_watch import NEVER_MS, simple_commit_ms
from .resets import GUARD_MIN_MS, changed_ms, made, with_before


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
    yield from complete_guard(active)
    return (yield from with_before(request, data.offsets.find))._replace(
        simple_commit_ms=(yield from _simple_commit_ms(active, request)), guarded_until_ms=_guarded_until_ms(active)
    )


def _guarded_until_ms(active: ActiveGroup) -> int:
    """A reset of a group that has lost its members is guarded, too: they may not know it, maybe by another reset."""
    if active.data.value is None:
        return -1
    return max(active.guard.reset_until_ms, active.environment.clock.wall_ms() + GUARD_MIN_MS)


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
    now_ms = active.environment.clock.wall_ms()
    found_ms = yield from simple_commit_ms(request.offsets, data.offsets.find, empty_since_ms, now_ms)
    return max(seen_ms, found_ms)


def _reset(active: ActiveGroup, prepared: ResetOffsets | OffsetsReset, reply: ReplyTo | None) -> object:
    if isinstance(prepared, OffsetsReset):
        return prepared
    if prepared.is_plan:
        return made(prepared, ())
    partitions = ((topic, partition) for topic, partition, _ in prepared.offsets)
    active.guard.watch.begin(prepared.change_id, partitions)
    active.guard.extend(prepared.guarded_until_ms)
    answer = applied(active, active.group.handle(prepared, reply, active.effects))
    if isinstance(answer, GeneratorType):
        return _note_append_in_steps(active, answer)
    active.in_flight.reset_append = active.in_flight.appends_sent
    return answer


def _note_append_in_steps(active: ActiveGroup, steps: Steps[object]) -> Steps[object]:
    answer = yield from steps
    active.in_flight.reset_append = active.in_flight.appends_sent
    return answer


def describe_reset(active: ActiveGroup, _request: DescribeReset, _reply: ReplyTo | None) -> object:
    steps = _describe_in_steps(active)
    is_long = not active.guard.is_complete and len(active.data.offsets) > SHORT_WORK_ITEMS
    return steps if is_long else run_steps(steps)


def _describe_in_steps(active: ActiveGroup) -> Steps[ResetDescribed]:
    yield from complete_guard(active)
    watch, until_ms = active.guard.watch, active.guard.guarded_until_ms(active.environment.clock.wall_ms())
    unfetched = tuple(watch.unfetched)
    return ResetDescribed(
        ErrorCode.NONE, watch.change_id, unfetched, watch.fetched_ms, -1 if until_ms is None else until_ms
    )


def _reset_in_steps(
    active: ActiveGroup, steps: Steps[ResetOffsets | OffsetsReset], reply: ReplyTo | None
) -> Steps[object]:
    result = _reset(active, (yield from steps), reply)
    return (yield from result) if isinstance(result, GeneratorType) else result
