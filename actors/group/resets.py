"""A reset: all members are removed and offsets are set, in one entry of the log. Pure.

So a crash leaves both or nothing, and no member of the old generation can commit to the new offsets.

The guard: an evicted consumer may commit its old position without a generation, which a group without members accepts
(aiokafka does). ``CommitGuard`` refuses such commits for a while. The offsets of the reset are dated at the end of that
time, so it survives a restart, and the next node of a cluster knows it. The date matters to nothing else but the expiry
of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Joined, Synced
from ..ports import ClassicGroupSettings
from ..records import GroupRecord, GroupValue, OffsetRecord, OffsetValue, Record
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .contexts import ResetContext
from .core import GroupCore
from .effects import Effects
from .events import Cause, Reason
from .members import GroupMember
from .removal import forget_pending, remove
from .reset_messages import OffsetsReset, ResetOffset, ResetOffsets
from .states import Event

GUARD_MIN_MS = 60_000
"""A consumer learns of its removal by its next heartbeat, which it sends within a third of its session timeout."""

FindOffset = Callable[[str, int], OffsetValue | None]


def longest_guard_ms(settings: ClassicGroupSettings) -> int:
    return max(GUARD_MIN_MS, settings.group_max_session_timeout_ms)


def guard_end_ms(request: ResetOffsets, now_ms: int, session_timeout_ms: int, settings: ClassicGroupSettings) -> int:
    """Until when a reset is guarded: for whole seconds, or as long as the reset before it.

    ``session_timeout_ms``: the longest of the evicted members; 0 if there are none.
    """
    if session_timeout_ms == 0:
        return request.guarded_until_ms
    seconds = -(-max(session_timeout_ms, GUARD_MIN_MS) // 1000)
    return max(now_ms + min(seconds * 1000, longest_guard_ms(settings)), request.guarded_until_ms)


def is_reset_date(commit_ms: int, empty_since_ms: int) -> bool:
    """Whether an offset of a classic group without members is probably one of a reset. Other commits rarely are."""
    length_ms = commit_ms - empty_since_ms
    return length_ms >= GUARD_MIN_MS and length_ms % 1000 == 0


def offset_records(request: ResetOffsets, commit_ms: int) -> Steps[list[OffsetRecord]]:
    records: list[OffsetRecord] = []
    for piece in pieces(request.offsets):
        for topic, partition, offset in piece:
            value = None if offset is None else OffsetValue(offset, commit_timestamp_ms=commit_ms)
            records.append(OffsetRecord(request.group_id, topic, partition, value))
        yield
    return records


def with_before(request: ResetOffsets, find: FindOffset) -> Steps[ResetOffsets]:
    """The request with the offsets of its partitions before it."""
    before: list[ResetOffset] = []
    for piece in pieces(request.offsets):
        for topic, partition, _ in piece:
            value = find(topic, partition)
            before.append(ResetOffset(topic, partition, None if value is None else value.offset))
        yield
    return request._replace(before=tuple(before))


def reset(group: GroupCore, request: ResetOffsets, reply: ReplyTo | None, effects: Effects) -> object:
    """Evict the members of a classic group, as if all had left, and set the offsets in the entry of that."""
    steps = _reset_in_steps(group, request, reply, effects)
    is_long = max(len(request.offsets), len(group.members)) > SHORT_WORK_ITEMS
    return steps if is_long else run_steps(steps)


def _reset_in_steps(group: GroupCore, request: ResetOffsets, reply: ReplyTo | None, effects: Effects) -> Steps[object]:
    now_ms = group.clock.wall_ms()
    removed = tuple(group.members)
    guarded_until_ms = guard_end_ms(request, now_ms, (yield from _longest_session_ms(removed)), group.settings)
    records = yield from offset_records(request, guarded_until_ms if guarded_until_ms >= 0 else now_ms)
    parked: list[tuple[ReplyTo | None, Any]] = []
    for members in pieces(removed):
        for member in members:
            parked += _parked(group, member)
            remove(group, member, Cause(Reason.RESET, member, request.reason), effects)
        yield
    for member_id in tuple(group.members.pending):
        forget_pending(group, member_id, effects)
    if removed:  # no step after this: the records of the change would be an entry of their own
        group.apply(Event.MEMBERS_LEFT, Cause(Reason.RESET, removed[0], request.reason), effects)
        _set_time(group, now_ms, effects)
    value = made(request, tuple(member.member_id for member in removed), guarded_until_ms)
    if reply is None or not (effects.records or records):
        for parked_reply, parked_value in parked:
            effects.answer(parked_reply, parked_value)
        return value
    effects.records = (*effects.records, *records)
    effects.context = ResetContext(reply, value, tuple(parked))
    return DEFERRED


def _longest_session_ms(members: Sequence[GroupMember]) -> Steps[int]:
    longest_ms = 0
    for piece in pieces(members):
        longest_ms = max(longest_ms, *(member.session_timeout_ms for member in piece))
        yield
    return longest_ms


def made(request: ResetOffsets, removed: tuple[str, ...], guarded_until_ms: int = -1) -> OffsetsReset:
    """The reply when the reset is durable."""
    return OffsetsReset(
        ErrorCode.NONE, removed, request.before, guarded_until_ms, simple_commit_ms=request.simple_commit_ms
    )


def _parked(group: GroupCore, member: GroupMember) -> list[tuple[ReplyTo | None, Any]]:
    """The requests of a member that wait, and what they are answered when it is removed."""
    return [
        (group.members.pop_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID)),
        (member.syncing, Synced(ErrorCode.UNKNOWN_MEMBER_ID)),
    ]


def _set_time(group: GroupCore, now_ms: int, effects: Effects) -> None:
    """Date the change of state when the reset began, see ``is_reset_date``."""
    if not group.state.is_empty:  # the initial delay goes on
        return
    group.machine.since_ms = now_ms
    effects.records = tuple(_dated(record, now_ms) for record in effects.records)


def _dated(record: Record, now_ms: int) -> Record:
    if isinstance(record, GroupRecord) and record.value is not None:
        return record._replace(value=record.value._replace(current_state_timestamp_ms=now_ms))
    return record


def changed_ms(value: Any) -> int:
    """When the durable state of a classic group without members changed last, wall-clock time; -1 for others."""
    return value.current_state_timestamp_ms if isinstance(value, GroupValue) and not value.members else -1
