"""The deletion of an active group, of its expired offsets, or of the offsets of deleted topics.

It waits for the appends in flight, then appends tombstones in batches. Requests that could add offsets or members wait
for its end.
"""

from __future__ import annotations

from ..base import DEFERRED, requeue_first
from ..engine_ports import ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import DeleteGroup, DeleteTopicOffsets, ExpireOffsets, GroupDeleted, GroupRequest
from ..recorder.expiries import ExpiredOffsets
from ..records import OffsetRecord
from ..steps import Steps
from .active_group import ActiveGroup
from .contexts import DeleteContext
from .events import Reason
from .expiry import BATCH, MINUTE_MS, TombstoneBatch, find_expired, next_expired
from .in_flight import Deletion


def delete_group(active: ActiveGroup, request: DeleteGroup, reply: ReplyTo | None) -> object:
    """DeleteGroups: an error code, or the deletion begins."""
    error = active.group.handle(request, None, active.effects)
    return _begin(active, request, reply) if error is NO_ERROR else error


def expire_offsets(active: ActiveGroup, message: ExpireOffsets, reply: ReplyTo | None) -> object:
    """Usually nothing has expired. Otherwise other requests wait, as while a group is deleted."""
    if active.in_flight.deletion is not None:
        return None
    return _expire(active, message, reply)


def _expire(active: ActiveGroup, message: ExpireOffsets, reply: ReplyTo | None) -> Steps[object]:
    candidates = message.candidates
    if candidates is None:
        candidates = yield from find_expired(active.group, active.data, *_retention(active))
    if not _next_expired(active, candidates).records:
        return None
    return _begin(active, ExpireOffsets(candidates), reply)


def delete_topic_offsets(active: ActiveGroup, message: DeleteTopicOffsets, reply: ReplyTo | None) -> object:
    """Delete the offsets of deleted topics, including those of appends in flight."""
    if active.in_flight.deletion is not None:
        return wait_for_deletion(active, message, reply)
    tombstones = active.data.topic_tombstones(active.group_id, message.topics)
    if active.in_flight.is_all_appended and next(tombstones, None) is None:
        return None
    return _begin(active, message, reply)


def wait_for_deletion(active: ActiveGroup, request: GroupRequest | DeleteTopicOffsets, reply: ReplyTo | None) -> object:
    """Handle the request after the deletion, usually by a new group."""
    deletion = active.in_flight.deletion
    assert deletion is not None and reply is not None, "requests that may wait have a reply"
    if deletion.is_done:
        active.environment.coordinator.post(request, reply)
    else:
        deletion.waiting.append((request, reply))
    return DEFERRED


def _begin(
    active: ActiveGroup, cause: DeleteGroup | ExpireOffsets | DeleteTopicOffsets, reply: ReplyTo | None
) -> object:
    assert reply is not None, "a deletion is answered"
    active.in_flight.deletion = Deletion(reply, cause)
    append_tombstones_when_idle(active, active.in_flight.deletion)
    return DEFERRED


def append_tombstones_when_idle(active: ActiveGroup, deletion: Deletion) -> None:
    """Append the next tombstones when all earlier appends, such as commits, are done."""
    if deletion.is_sent or not active.in_flight.is_all_appended:
        return
    batch = next_batch(active, deletion)
    context = DeleteContext(deletion.reply, batch.ends_group, batch.is_last, len(batch.records))
    if batch.records:
        active.append(batch.records, context)
        deletion.is_sent = True
    else:  # appends that were in flight have renewed the last expired offsets
        handle_tombstones_written(active, context, ErrorCode.NONE)


def next_batch(active: ActiveGroup, deletion: Deletion) -> TombstoneBatch:
    """The next tombstones of a deletion."""
    cause = deletion.cause
    expired = _next_expired(active, cause.candidates or ()) if isinstance(cause, ExpireOffsets) else None
    return deletion.next_batch(active.group_id, active.data, expired)


def _next_expired(active: ActiveGroup, candidates: tuple[OffsetRecord, ...]) -> TombstoneBatch:
    return next_expired(active.group, active.data, candidates, *_retention(active))


def _retention(active: ActiveGroup) -> tuple[int, int]:
    """The wall-clock time, and how long offsets are kept, in ms."""
    environment = active.environment
    return environment.clock.wall_ms(), environment.settings.offsets_retention_minutes * MINUTE_MS


def handle_tombstones_written(active: ActiveGroup, context: DeleteContext, error: ErrorCode) -> None:
    """A batch of tombstones is durable, or ``error`` says why not: continue, or end the deletion."""
    deletion = active.in_flight.deletion
    assert deletion is not None
    if deletion.continue_after(context, error):  # no commit in between: it could be for a new group or topic
        append_tombstones_when_idle(active, deletion)
        return
    if error is ErrorCode.NONE and isinstance(deletion.cause, ExpireOffsets) and context.record_count:
        _count_expired(active, deletion, context)
    if error is ErrorCode.NONE and isinstance(deletion.cause, ExpireOffsets) and not context.is_last:
        remaining = (deletion.cause.candidates or ())[context.record_count :]
        active.actor.post(ExpireOffsets(remaining), context.reply)
    else:
        deletion.answer(error)
    if error is ErrorCode.NONE and context.ends_group:
        _end_group(active, deletion)
    else:
        active.in_flight.deletion = None
        requeue_first(active.actor.actor_inbox, deletion.waiting)


def _count_expired(active: ActiveGroup, deletion: Deletion, context: DeleteContext) -> None:
    environment, offsets = active.environment, context.record_count - context.ends_group
    counters = environment.counters
    counters.expired = counters.expired.with_batch(offsets, is_last=context.is_last, ends_group=context.ends_group)
    expired = ExpiredOffsets(
        environment.clock.wall_ms(), offsets, _topics_of(deletion), not active.group.is_empty, context.ends_group
    )
    environment.event_log.recorder.expiries.note(active.group_id, expired, is_last=context.is_last)


def _topics_of(deletion: Deletion) -> tuple[str, ...]:
    candidates = deletion.cause.candidates if isinstance(deletion.cause, ExpireOffsets) else None
    return tuple(dict.fromkeys(record.topic for record in (candidates or ())[:BATCH]))


def _end_group(active: ActiveGroup, deletion: Deletion) -> None:
    deletion.is_done = True
    coordinator = active.environment.coordinator
    coordinator.tell(GroupDeleted(active.group_id))
    for request, reply in deletion.waiting:
        coordinator.post(request, reply)
    active.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.DELETED)  # last: the group is deleted even if it raises


def abort_deletion(active: ActiveGroup, replied: set[int]) -> None:
    """After a bug: abort a deletion that no append in flight would complete, and handle the requests that wait for it.

    ``replied``: ids of the ``ReplyTo`` objects that have got their reply.
    """
    in_flight = active.in_flight
    deletion = in_flight.deletion
    if deletion is None or deletion.is_done or not in_flight.is_all_appended:
        return
    in_flight.deletion = None
    if id(deletion.reply) not in replied:
        deletion.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    waiting = [(request, reply) for request, reply in deletion.waiting if id(reply) not in replied]
    requeue_first(active.actor.actor_inbox, waiting)
