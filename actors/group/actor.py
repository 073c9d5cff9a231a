"""GroupActor: the actor of one group. Its mailbox serializes all messages, so nothing here needs a lock.

In a turn ``ClassicGroup`` or ``GroupData`` decides, and the actor applies the effects: it sends records to the writer,
alarms to the timer, and replies. Records take effect when they are durable, by the same ``replay`` as at loading.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..base import DEFERRED, Actor, Overflow, Supervision, requeue_first
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    Append,
    Committed,
    DeleteGroup,
    DeleteTopicOffsets,
    DescribedEvents,
    DescribeEvents,
    ExpireOffsets,
    GroupChanged,
    GroupDeleted,
    GroupRequest,
    Heartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    Shutdown,
    TxnOffsetCommit,
    Unload,
    Written,
)
from ..ports import Entry
from ..records import MarkerRecord, OffsetRecord, Record
from ..timer.messages import Cancel, Expired, Schedule
from .contexts import (
    APPEND_ERRORS,
    CommitContext,
    DeleteContext,
    NewGroupContext,
    OffsetDeleteContext,
    ReplyContext,
    deliver_error,
    deliver_reply,
)
from .effects import Deadline, Effects
from .environment import GroupEnvironment
from .event_log import GroupHistory
from .events import Reason
from .expiry import MINUTE_MS, TombstoneBatch, find_expired
from .failed_group import FailedGroup
from .in_flight import Deletion, GroupSnapshot, InFlight, WaitingFetch
from .kind import Group
from .offsets import CommitRecords, GroupData, commit_records, txn_commit_records
from .requests import REQUESTS

log = logging.getLogger("callboard.actors")

IDLE = ("idle",)
"""The name of the deadline after which a group without members is passivated."""

IDLE_MS = 60_000
"""Groups that are used more often are not worth packing. Idle groups are passivated after one to two times this."""


class GroupActor(Actor):
    """One group: members, generation, offsets.

    After a bug it restarts from its durable state; after too many bugs a ``FailedGroup`` replaces it for a while.
    Without members and requests it is passivated; the coordinator keeps its packed data.
    """

    supervision = Supervision(restarts=3, within_ms=10_000)
    placeholder = FailedGroup
    may_passivate = True
    high_water = 10_000
    overflow = Overflow.PAUSE
    handlers = {
        Heartbeat: "heartbeat",
        OffsetCommit: "commit",
        Written: "handle_written",
        MarkerRecord: "apply_marker",
        Expired: "handle_expired",
        ExpireOffsets: "expire_offsets",
        DeleteTopicOffsets: "delete_topic_offsets",
        Shutdown: "shut_down",
        Unload: "unload",
    }

    def __init__(self, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment) -> None:
        super().__init__()
        self.group_id = group_id
        self.partition = partition
        self.data = data
        self._environment = environment
        self._effects = Effects(environment.counters, GroupHistory(group_id, environment.event_log))
        self._in_flight = InFlight()
        self._listed: GroupChanged | None = None
        self._idle = Deadline(IDLE)
        self._appends_before_idle = 0
        self.group = self._make_group()

    def __str__(self) -> str:
        return f"group {self.group_id!r}"

    def _make_group(self) -> Group:
        return self.data.kind.new_group(self.group_id, self._environment)

    def on_start(self) -> None:
        if self.data.value is not None:
            self.group.load(self.data.value, self._effects)
        self._apply_effects()
        self._resume_in_flight()

    def _resume_in_flight(self) -> None:
        """Continue fetches and a deletion whose append completed just before a bug."""
        if self._in_flight.fetches:
            self._reply_to_fetches()
        if self._in_flight.deletion is not None:
            self._append_tombstones_when_idle(self._in_flight.deletion)

    def on_receive(self, message: Any) -> Any:
        """Requests are handled by their row. Those in ``handlers`` take a shorter path, since they are frequent."""
        row = REQUESTS.get(type(message))
        if row is None:
            return super().on_receive(message)
        if row.waits_for_deletion and self._in_flight.deletion is not None:
            return self._wait_for_deletion(self._in_flight.deletion, message)
        return getattr(self, row.handler)(message)

    # Requests --------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat) -> object:
        """The hot path: a heartbeat without effects has changed nothing."""
        effects = self._effects
        answer = self.group.handle(request, None, effects)
        if effects.alarms:
            self._apply_effects()
        return answer

    def handle_request(self, request: GroupRequest) -> object:
        """A request that the group handles by itself."""
        reply = self.group.handle(request, self.reply_to, self._effects)
        self._apply_effects()
        return reply

    def create_or_handle(self, request: GroupRequest) -> object:
        """The same for a request that may create the group."""
        effects = self._effects
        reply = self.group.handle(request, self.reply_to, effects)
        if self.data.is_empty() and self._in_flight.is_all_appended and not effects.records:
            record = self.group.creation_record(request)
            if record is not None:
                effects.append_record(record, NewGroupContext())
        self._apply_effects()
        return reply

    def commit(self, request: OffsetCommit) -> object:
        return self._commit(request, commit_records)

    def commit_in_transaction(self, request: TxnOffsetCommit) -> object:
        return self._commit(request, txn_commit_records)

    def _commit(self, request: Any, make_records: Callable[[Any, int, int], CommitRecords]) -> object:
        if self._in_flight.deletion is not None:
            return self._wait_for_deletion(self._in_flight.deletion, request)
        error = self.group.handle(request, None, self._effects)
        if self._effects.alarms:
            self._apply_effects()
        if error is not NO_ERROR:
            return error_reply(request, error)
        environment = self._environment
        errors, records = make_records(
            request, environment.clock.wall_ms(), environment.settings.offset_metadata_max_bytes
        )
        if not records:
            return Committed(errors)
        self._append(records, CommitContext(self.reply_to, errors))
        return DEFERRED

    def apply_marker(self, marker: MarkerRecord) -> None:
        """A marker of a transaction is durable, and so are the transaction's offsets of this group."""
        self.data.replay(marker)
        self._apply_effects()

    def fetch(self, request: OffsetFetch) -> object:
        error = self.group.handle(request, None, self._effects)
        if error is not NO_ERROR:
            return error_reply(request, error)
        if request.require_stable and self._in_flight.appends_done < self._in_flight.appends_sent:
            self._in_flight.fetches.append(WaitingFetch(request, self.reply_to, self._in_flight.appends_sent))
            return DEFERRED
        return self.data.fetch(request)

    def delete_offsets(self, request: OffsetDelete) -> object:
        group = self.group
        error = group.handle(request, None, self._effects)
        if error is not NO_ERROR:
            return error_reply(request, error)
        subscribed, none = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
        errors = tuple(subscribed if group.is_subscribed_to(topic) else none for topic, _ in request.topics)
        records = self._offset_tombstones(request, errors)
        if not records:
            return OffsetsDeleted(ErrorCode.NONE, errors)
        self._append(records, OffsetDeleteContext(self.reply_to, errors))
        return DEFERRED

    def _offset_tombstones(self, request: OffsetDelete, errors: tuple[ErrorCode, ...]) -> tuple[Record, ...]:
        """For partitions with an offset; while appends are in flight, which may contain offsets, for all of them."""
        may_have_offset = self._in_flight.appends_done < self._in_flight.appends_sent
        return tuple(
            OffsetRecord(self.group_id, topic, partition, None)
            for (topic, partitions), error in zip(request.topics, errors, strict=True)
            if error is ErrorCode.NONE
            for partition in partitions
            if may_have_offset or self.data.has(topic, partition)
        )

    def delete(self, request: DeleteGroup) -> object:
        error = self.group.handle(request, None, self._effects)
        return self._begin_deletion(request) if error is NO_ERROR else error

    def describe_events(self, _request: DescribeEvents) -> DescribedEvents:
        return DescribedEvents(ErrorCode.NONE, self._effects.kept_events)

    def shut_down(self, _message: Shutdown) -> None:
        """NOT_COORDINATOR makes clients look up the coordinator again, and find it after the restart."""
        self._close(ErrorCode.NOT_COORDINATOR, Reason.SERVER_STOPS)

    def unload(self, _message: Unload) -> None:
        """Stop at once. The writer replies to requests whose records are in flight."""
        self._close(ErrorCode.NOT_COORDINATOR, Reason.PARTITION_LOST)
        self._in_flight.fail_pending(ErrorCode.NOT_COORDINATOR)
        self._stop()

    # From the timer and the writer -----------------------------------------------------------------------------------

    def handle_expired(self, message: Expired) -> None:
        for name in message.names:
            if name != IDLE:
                self.group.expired(name, self._effects)
        self._apply_effects()
        if IDLE in message.names:
            self._handle_idle_deadline()

    def handle_written(self, message: Written) -> None:
        in_flight, context, error = self._in_flight, message.context, message.outcome.error
        in_flight.appends_done += 1
        if error is NO_ERROR:
            for record in message.records:
                self.data.replay(record)
            self._effects.counters.commits += type(context) is CommitContext
        if isinstance(context, CommitContext):
            context.answer(error, message.outcome.durability)
        elif isinstance(context, OffsetDeleteContext):
            context.answer(error)
        elif isinstance(context, DeleteContext):
            self._handle_tombstones_written(context, error)
        else:
            self._handle_group_record_written(context, APPEND_ERRORS.get(error, error))
        if in_flight.fetches or in_flight.deletion is not None:
            self._resume_in_flight()
        if self._idle.due_ms is None and in_flight.is_idle and self.group.may_be_passivated:
            self._apply_effects()

    def _handle_group_record_written(self, context: Any, error: ErrorCode) -> None:
        effects, value = self._effects, self.data.value
        if isinstance(context, ReplyContext):
            context.answer(error)
        if self._in_flight.appends_done <= self._in_flight.stale_appends:
            self._reload()  # sent by an earlier instance: ``data`` contains it now
        elif error is not ErrorCode.NONE and isinstance(context, NewGroupContext):
            self._reload(error)
        elif error is not ErrorCode.NONE:
            log.warning("a record of group %r could not be written: %s", self.group_id, error.name)
            self.group.append_failed(context, error, effects)
        elif value is not None:
            self.group.appended(value, context, effects)
        self._apply_effects()

    # Effects ---------------------------------------------------------------------------------------------------------

    def _reply(self) -> ReplyTo:
        assert self.reply_to is not None, "requests that may be parked have a reply_to"
        return self.reply_to

    def _apply_effects(self) -> None:
        effects = self._effects
        if effects.events:
            effects.report_events()
        if effects.records:
            self._append(effects.records, effects.context)
            effects.records, effects.context = (), None
        self._schedule_idle_deadline()
        if effects.alarms:
            self._schedule_alarms()
        if effects.answers:
            answers, effects.answers = effects.answers, []
            for reply, value in answers:
                deliver_reply(reply, value)
        self._report_state()

    def _schedule_alarms(self) -> None:
        alarms, self._effects.alarms = self._effects.alarms, {}
        timer, owner = self._environment.timer, self._actor_ref
        for name, due_ms in alarms.items():
            timer.tell(Cancel(owner, name) if due_ms is None else Schedule(owner, name, due_ms))

    def _append(self, records: tuple[Record, ...], context: Any) -> None:
        self._environment.writer.tell(Append(self._actor_ref, Entry(self.partition, records), context))
        self._in_flight.appends_sent += 1  # after tell: if it raises, no outcome will follow

    def _report_state(self) -> None:
        """Tell the coordinator each change, so that it can list groups without asking them."""
        group, listed = self.group, self._listed
        if listed is not None and listed[1:3] == (group.state_name, group.protocol_type or ""):
            return
        self._listed = GroupChanged(self.group_id, group.state_name, group.protocol_type or "", group.type)
        self._environment.coordinator.tell(self._listed)

    def _reply_to_fetches(self) -> None:
        in_flight = self._in_flight
        ready = [fetch for fetch in in_flight.fetches if fetch.required_appends <= in_flight.appends_done]
        in_flight.fetches = [fetch for fetch in in_flight.fetches if fetch.required_appends > in_flight.appends_done]
        for fetch in ready:
            deliver_reply(fetch.reply, self.data.fetch(fetch.request))

    # Deletion --------------------------------------------------------------------------------------------------------

    def _append_tombstones_when_idle(self, deletion: Deletion) -> None:
        """Append the next tombstones when all earlier appends, such as commits, are done."""
        if deletion.is_sent or not self._in_flight.is_all_appended:
            return
        batch = self._next_batch(deletion)
        context = DeleteContext(deletion.reply, batch.ends_group, batch.is_last, len(batch.records))
        if batch.records:
            self._append(batch.records, context)
            deletion.is_sent = True
        else:  # appends that were in flight have renewed the last expired offsets
            self._handle_tombstones_written(context, ErrorCode.NONE)

    def _next_batch(self, deletion: Deletion) -> TombstoneBatch:
        expired = self._find_expired() if isinstance(deletion.cause, ExpireOffsets) else None
        return deletion.next_batch(self.group_id, self.data, expired)

    def _handle_tombstones_written(self, context: DeleteContext, error: ErrorCode) -> None:
        deletion, coordinator = self._in_flight.deletion, self._environment.coordinator
        assert deletion is not None
        if deletion.continue_after(context, error):  # no commit in between: it could be for a new group or topic
            self._append_tombstones_when_idle(deletion)
            return
        if error is ErrorCode.NONE and isinstance(deletion.cause, ExpireOffsets) and context.record_count:
            counters, offsets = self._environment.counters, context.record_count - context.ends_group
            counters.expired = counters.expired.with_batch(
                offsets, is_last=context.is_last, ends_group=context.ends_group
            )
        if error is ErrorCode.NONE and not context.is_last:
            self._actor_ref.post(ExpireOffsets(), context.reply)
        else:
            deletion.answer(error)
        if error is not ErrorCode.NONE or not context.ends_group:
            self._in_flight.deletion = None
            requeue_first(self.actor_inbox, deletion.waiting)
            return
        deletion.is_done = True
        coordinator.tell(GroupDeleted(self.group_id))
        for request, reply in deletion.waiting:
            coordinator.post(request, reply)
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.DELETED)  # last: the group is deleted even if it raises

    def _begin_deletion(self, cause: DeleteGroup | ExpireOffsets | DeleteTopicOffsets) -> object:
        self._in_flight.deletion = Deletion(self._reply(), cause)
        self._append_tombstones_when_idle(self._in_flight.deletion)
        return DEFERRED

    def _wait_for_deletion(self, deletion: Deletion, request: GroupRequest | DeleteTopicOffsets) -> object:
        """Handle the request after the deletion, usually by a new group."""
        if deletion.is_done:
            self._environment.coordinator.post(request, self._reply())
        else:
            deletion.waiting.append((request, self._reply()))
        return DEFERRED

    def expire_offsets(self, message: ExpireOffsets) -> object:
        """Usually nothing has expired. Otherwise other requests wait, as while a group is deleted."""
        if self._in_flight.deletion is not None or not self._find_expired().records:
            return None
        return self._begin_deletion(message)

    def delete_topic_offsets(self, message: DeleteTopicOffsets) -> object:
        """Delete the offsets of deleted topics, including those of appends in flight."""
        if self._in_flight.deletion is not None:
            return self._wait_for_deletion(self._in_flight.deletion, message)
        if self._in_flight.is_all_appended and not self.data.topic_tombstones(self.group_id, message.topics):
            return None
        return self._begin_deletion(message)

    def _find_expired(self) -> TombstoneBatch:
        retention_ms = self._environment.settings.offsets_retention_minutes * MINUTE_MS
        return find_expired(self.group, self.data, self._environment.clock.wall_ms(), retention_ms)

    # Passivation and restart -----------------------------------------------------------------------------------------

    def _may_be_passivated(self) -> bool:
        return self.group.may_be_passivated and self._in_flight.is_idle and not self.data.pending

    def _schedule_idle_deadline(self) -> None:
        if self._idle.due_ms is None and self._may_be_passivated():
            self._appends_before_idle = self._in_flight.appends_sent
            self._idle.set(self._environment.clock.monotonic_ms() + IDLE_MS, self._effects)

    def _handle_idle_deadline(self) -> None:
        """Passivate the group if it had no members and no appends. Fetches do not count: they activate it again."""
        is_due = self._idle.handle_alarm(self._environment.clock.monotonic_ms(), self._effects)
        if is_due and self._may_be_passivated() and self._appends_before_idle == self._in_flight.appends_sent:
            self.passivate()
        else:
            self._apply_effects()

    def save_state(self, error: Exception | None) -> GroupSnapshot:
        if error is not None:
            self._reply_to_all(error)
        self._effects.forget_events()
        return GroupSnapshot(self.group_id, self.data, self._in_flight, error)

    def restore_state(self, snapshot: GroupSnapshot) -> None:
        self._in_flight = snapshot.in_flight
        self._in_flight.stale_appends = snapshot.in_flight.appends_sent

    def _reply_to_all(self, bug: Exception) -> None:
        """Replies that were not sent yet become the bug; parked requests get COORDINATOR_NOT_AVAILABLE. Each only once.

        The sender of the current message has got its reply already, but may also be among them.
        """
        done: set[int] = {id(self.reply_to)}
        effects, self._effects = self._effects, Effects(self._environment.counters, self._effects.history)
        self._effects.events = effects.events
        for answer in effects.answers:
            if id(answer.reply) not in done:
                done.add(id(answer.reply))
                deliver_error(answer.reply, bug)
        self._idle.cancel(self._effects)
        try:
            self.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.RESTARTED, self._effects)
        except Exception:
            log.exception("group %r could not reply to all parked requests", self.group_id)
        self._effects.answers = [answer for answer in self._effects.answers if id(answer.reply) not in done]
        self._abort_deletion(done)
        self._apply_effects()

    def _abort_deletion(self, done: set[int]) -> None:
        """Abort a deletion that no append in flight would complete, and handle the requests that wait for it.

        ``done``: ids of the ``ReplyTo`` objects that have got their reply.
        """
        deletion = self._in_flight.deletion
        if deletion is None or deletion.is_done or not self._in_flight.is_all_appended:
            return
        self._in_flight.deletion = None
        if id(deletion.reply) not in done:
            deletion.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        requeue_first(self.actor_inbox, [waiting for waiting in deletion.waiting if id(waiting[1]) not in done])

    def _close(self, error: ErrorCode, reason: Reason) -> None:
        """Reply to all parked requests with ``error``."""
        self._idle.cancel(self._effects)
        self.group.close(error, reason, self._effects)
        self._apply_effects()

    def _reload(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Restart from the durable state."""
        self._close(error, Reason.RESTARTED)
        self._in_flight.stale_appends = self._in_flight.appends_sent
        self.group = self._make_group()
        self.on_start()
