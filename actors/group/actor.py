"""GroupActor: the shell round one group. Its mailbox serialises everything about it, so nothing here needs a lock.

A turn: ask the pure part to decide, then carry out what it asks for: records to the writer, alarms to the timer,
answers to whoever waits. What records say takes effect when they are durable, through the ``replay`` that loads them.
"""

from __future__ import annotations

import logging
from typing import Any

from ..base import DEFERRED, Actor, Overflow, Supervision
from ..engine_ports import ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    Append,
    Committed,
    DeleteGroup,
    Described,
    DescribeGroup,
    ExpireOffsets,
    Fetched,
    ForgetTopics,
    GroupChanged,
    GroupGone,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    Shutdown,
    SyncGroup,
    TxnOffsetCommit,
    Written,
)
from ..ports import Entry
from ..records import GroupRecord, MarkerRecord, OffsetRecord, Record
from ..timer.messages import Cancel, Expired, Schedule
from .classic import ClassicGroup
from .effects import Deadline, Effects
from .environment import GroupEnvironment
from .expiry import MINUTE_MS, OldOffsets, expired
from .failed_group import FailedGroup
from .in_flight import (
    APPEND_ERRORS,
    CommitContext,
    DeleteContext,
    Deletion,
    Kept,
    LeaveContext,
    NewGroup,
    OffsetDeleteContext,
    Underway,
    WaitingFetch,
    deliver,
    fail,
)
from .offsets import GroupData, commit_records, txn_commit_records
from .states import Action, Request, State
from .subscription import CONSUMER

log = logging.getLogger("callboard.actors")

IDLE = ("idle",)
"""The name of the deadline after which a group without members leaves memory."""

IDLE_MS = 60_000
"""A group that is used more often than this is not worth the packing. (It sleeps after one to two times as long.)"""


class GroupActor(Actor):
    """One group: members, generation, offsets.

    A bug makes it begin anew from what is durable; after too many a ``FailedGroup`` stands in for a while. Without
    members and without requests it leaves memory; the coordinator keeps its data, packed.
    """

    supervision = Supervision(restarts=3, within_ms=10_000)
    stand_in = FailedGroup
    may_sleep = True
    high_water = 10_000
    overflow = Overflow.PAUSE
    handlers = {
        Heartbeat: "heartbeat",
        OffsetCommit: "commit",
        Written: "written",
        JoinGroup: "join",
        SyncGroup: "sync",
        LeaveGroup: "leave",
        OffsetFetch: "fetch",
        TxnOffsetCommit: "commit_in_transaction",
        MarkerRecord: "transaction_ended",
        OffsetDelete: "delete_offsets",
        Expired: "expired",
        DescribeGroup: "describe",
        DeleteGroup: "delete",
        ExpireOffsets: "expire_offsets",
        ForgetTopics: "forget_topics",
        Shutdown: "shutdown",
    }

    def __init__(self, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment) -> None:
        super().__init__()
        self.group_id = group_id
        self.partition = partition
        self.data = data
        self._environment = environment
        self._effects = Effects(environment.counts)
        self._underway = Underway()
        self._listed: GroupChanged | None = None
        self._idle = Deadline(IDLE)
        self._appends_before_idle = 0
        self._group = self._make_group()

    def __str__(self) -> str:
        return f"group {self.group_id!r}"

    def _make_group(self) -> ClassicGroup:
        environment = self._environment
        return ClassicGroup(self.group_id, environment.settings, environment.clock, environment.random)

    def on_start(self) -> None:
        if self.data.value is not None:
            self._group.load(self.data.value, self._effects)
        self._carry_out()
        self._go_on_with_underway()

    def _go_on_with_underway(self) -> None:
        """A bug may have come between an append that was done and those who waited for it."""
        if self._underway.fetches:
            self._answer_fetches()
        if self._underway.deletion is not None:
            self._delete_if_all_is_written(self._underway.deletion)

    # Requests --------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        effects = self._effects
        answer = self._group.heartbeat(request, effects)
        if effects.alarms:
            self._carry_out()
        return answer

    def join(self, request: JoinGroup) -> object:
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, request)
        self._group.join(request, self._reply(), self._effects)
        if not request.member_id and self.data.is_gone() and self._underway.is_written and not self._effects.records:
            self._effects.keep(self._group.first_record(), NewGroup())
        self._carry_out()
        return DEFERRED

    def sync(self, request: SyncGroup) -> object:
        self._group.sync(request, self._reply(), self._effects)
        self._carry_out()
        return DEFERRED

    def leave(self, request: LeaveGroup) -> object:
        """Answered when it is durable that nobody is left; at once if somebody is."""
        effects = self._effects
        answer: object = (left := self._group.leave(request, effects))
        if effects.records:
            answer, effects.context = DEFERRED, LeaveContext(self._reply(), left)
        self._carry_out()
        return answer

    def commit(self, request: OffsetCommit) -> object:
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, request)
        error = self._group.commit_error(request, self._effects)
        if self._effects.alarms:
            self._carry_out()
        if error is not NO_ERROR:
            return Committed((error,) * len(request.commits))
        environment = self._environment
        errors, records = commit_records(
            request, environment.clock.wall_ms(), environment.settings.offset_metadata_max_bytes
        )
        if not records:
            return Committed(errors)
        self._append(records, CommitContext(self.reply_to, errors))
        return DEFERRED

    def commit_in_transaction(self, request: TxnOffsetCommit) -> object:
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, request)
        error = self._group.txn_commit_error(request)
        if error is not ErrorCode.NONE:
            return Committed((error,) * len(request.commits))
        environment = self._environment
        errors, records = txn_commit_records(
            request, environment.clock.wall_ms(), environment.settings.offset_metadata_max_bytes
        )
        if not records:
            return Committed(errors)
        self._append(records, CommitContext(self.reply_to, errors))
        return DEFERRED

    def transaction_ended(self, marker: MarkerRecord) -> None:
        """Its marker is durable, and so is all that it has committed here."""
        self.data.replay(marker)
        self._carry_out()

    def fetch(self, request: OffsetFetch) -> Fetched | object:
        if request.require_stable and self._underway.appends_done < self._underway.appends_sent:
            self._underway.fetches.append(WaitingFetch(request, self.reply_to, self._underway.appends_sent))
            return DEFERRED
        return self.data.fetch(request)

    def delete_offsets(self, request: OffsetDelete) -> object:
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, request)
        group, answer = self._group, self._group.answers[Request.DELETE_OFFSETS]
        if answer is Action.DELETE_OFFSETS_OF_CONSUMERS and group.protocol_type != CONSUMER:
            answer = ErrorCode.NON_EMPTY_GROUP
        if isinstance(answer, ErrorCode):
            return OffsetsDeleted(answer)
        subscribed, none = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
        errors = tuple(subscribed if group.is_subscribed_to(topic) else none for topic, _ in request.topics)
        records = self._offset_tombstones(request, errors)
        if not records:
            return OffsetsDeleted(ErrorCode.NONE, errors)
        self._append(records, OffsetDeleteContext(self.reply_to, errors))
        return DEFERRED

    def _offset_tombstones(self, request: OffsetDelete, errors: tuple[ErrorCode, ...]) -> tuple[Record, ...]:
        """For what has an offset; for all that is asked while commits are on their way, since they may be of these."""
        may_have = self._underway.appends_done < self._underway.appends_sent
        return tuple(
            OffsetRecord(self.group_id, topic, partition, None)
            for (topic, partitions), error in zip(request.topics, errors, strict=True)
            if error is ErrorCode.NONE
            for partition in partitions
            if may_have or self.data.has(topic, partition)
        )

    def describe(self, _request: DescribeGroup) -> Described:
        return self._group.describe()

    def delete(self, request: DeleteGroup) -> object:
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, request)
        answer = self._group.answers[Request.DELETE]
        if answer is not Action.DELETE:
            return answer
        return self._begin_deletion(request)

    def shutdown(self, _message: Shutdown) -> None:
        """The coordinator stops: whoever waits looks for it again, and finds it when it is back."""
        self._close(ErrorCode.NOT_COORDINATOR)

    # From the timer and the writer -----------------------------------------------------------------------------------

    def expired(self, message: Expired) -> None:
        for name in message.names:
            if name != IDLE:
                self._group.expired(name, self._effects)  # type: ignore[arg-type]
        self._carry_out()
        if IDLE in message.names:
            self._idle_for_a_while()

    def written(self, message: Written) -> None:
        underway, context, error = self._underway, message.context, message.outcome.error
        underway.appends_done += 1
        if error is NO_ERROR:
            for record in message.records:
                self.data.replay(record)
            self._effects.counts.commits += type(context) is CommitContext
        if isinstance(context, CommitContext):
            context.answer(error, message.outcome.durability)
        elif isinstance(context, OffsetDeleteContext):
            context.answer(error)
        elif isinstance(context, DeleteContext):
            self._delete_written(context, error)
        else:
            self._group_record_written(context, APPEND_ERRORS.get(error, error))
        if underway.fetches or underway.deletion is not None:
            self._go_on_with_underway()
        if self._idle.due_ms is None and self._group.is_quiet and underway.is_quiet:
            self._carry_out()

    def _group_record_written(self, context: Any, error: ErrorCode) -> None:
        effects, value = self._effects, self.data.value
        if isinstance(context, LeaveContext):
            context.answer(error)
        if self._underway.appends_done <= self._underway.stale_appends:
            self._reload()  # it was sent before a restart: what it says is in ``data`` now
        elif error is not ErrorCode.NONE and isinstance(context, NewGroup):
            self._reload(error)
        elif error is not ErrorCode.NONE:
            log.warning("group %r could not keep its generation: %s", self.group_id, error.name)
            self._group.append_failed(context, error, effects)
        elif value is not None:
            self._group.appended(value, context, effects)
        self._carry_out()

    # Carrying out ----------------------------------------------------------------------------------------------------

    def _reply(self) -> ReplyTo:
        assert self.reply_to is not None, "requests that park are asked, not told"
        return self.reply_to

    def _carry_out(self) -> None:
        effects = self._effects
        if effects.records:
            self._append(effects.records, effects.context)
            effects.records, effects.context = (), None
        self._watch_idleness()
        if effects.alarms:
            self._file_alarms()
        if effects.answers:
            answers, effects.answers = effects.answers, []
            for reply, value in answers:
                deliver(reply, value)
        self._tell_state()

    def _file_alarms(self) -> None:
        alarms, self._effects.alarms = self._effects.alarms, {}
        timer, me = self._environment.timer, self._actor_ref
        for name, due_ms in alarms.items():
            timer.tell(Cancel(me, name) if due_ms is None else Schedule(me, name, due_ms))

    def _append(self, records: tuple[Record, ...], context: Any) -> None:
        self._environment.writer.tell(Append(self._actor_ref, Entry(self.partition, records), context))
        self._underway.appends_sent += 1  # not before: what the writer refused will never be done

    def _tell_state(self) -> None:
        """The coordinator lists groups without asking them; it hears of every change."""
        group = self._group
        listed = self._listed
        if listed is not None and listed[1:] == (group.state.value, group.protocol_type or ""):
            return
        self._listed = GroupChanged(self.group_id, group.state.value, group.protocol_type or "")
        self._environment.coordinator.tell(self._listed)

    def _answer_fetches(self) -> None:
        underway = self._underway
        ready = [fetch for fetch in underway.fetches if fetch.after <= underway.appends_done]
        underway.fetches = [fetch for fetch in underway.fetches if fetch.after > underway.appends_done]
        for fetch in ready:
            deliver(fetch.reply, self.data.fetch(fetch.request))

    # Deletion --------------------------------------------------------------------------------------------------------

    def _delete_if_all_is_written(self, deletion: Deletion) -> None:
        """Tombstones are for what is durable: commits that are on their way come first."""
        if deletion.is_sent or not self._underway.is_written:
            return
        found = self._doomed(deletion)
        ends_group = bool(found.records) and isinstance(found.records[-1], GroupRecord)
        context = DeleteContext(deletion.reply, ends_group, found.is_all, len(found.records))
        if found.records:
            self._append(found.records, context)
            deletion.is_sent = True
        else:  # what was on its way has saved the last of them
            self._delete_written(context, ErrorCode.NONE)

    def _doomed(self, deletion: Deletion) -> OldOffsets:
        old = self._expired() if isinstance(deletion.cause, ExpireOffsets) else None
        return deletion.next_records(self.group_id, self.data, old)

    def _delete_written(self, context: DeleteContext, error: ErrorCode) -> None:
        deletion, coordinator = self._underway.deletion, self._environment.coordinator
        assert deletion is not None
        if deletion.goes_on(context, error):  # nobody may commit in between: it could be to a new group, or topic
            self._delete_if_all_is_written(deletion)
            return
        if error is ErrorCode.NONE and isinstance(deletion.cause, ExpireOffsets) and context.record_count:
            counts, offsets = self._environment.counts, context.record_count - context.ends_group
            counts.expired = counts.expired.with_batch(offsets, is_last=context.is_all, ends_group=context.ends_group)
        if error is ErrorCode.NONE and not context.is_all:
            self._actor_ref.post(ExpireOffsets(), context.reply)
        else:
            deletion.answer(error)
        if error is not ErrorCode.NONE or not context.ends_group:
            self._underway.deletion = None
            self.take_next(deletion.waiting)
            return
        deletion.is_done = True
        coordinator.tell(GroupGone(self.group_id))
        for request, reply in deletion.waiting:
            coordinator.post(request, reply)
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # last: the group is gone even if this should fail

    def _begin_deletion(self, cause: DeleteGroup | ExpireOffsets | ForgetTopics) -> object:
        self._underway.deletion = Deletion(self._reply(), cause)
        self._delete_if_all_is_written(self._underway.deletion)
        return DEFERRED

    def _wait_for_deletion(self, deletion: Deletion, request: GroupRequest | ForgetTopics) -> object:
        """The request meets the group as it is afterwards: usually a new one."""
        if deletion.is_done:
            self._environment.coordinator.post(request, self._reply())
        else:
            deletion.waiting.append((request, self._reply()))
        return DEFERRED

    def expire_offsets(self, message: ExpireOffsets) -> object:
        """Most often nothing is old. If something is, it is deleted as a whole group is: nobody commits meanwhile."""
        if self._underway.deletion is not None or not self._expired().records:
            return None
        return self._begin_deletion(message)

    def forget_topics(self, message: ForgetTopics) -> object:
        """The same for topics that are gone, and for what is on its way to the log of them."""
        if self._underway.deletion is not None:
            return self._wait_for_deletion(self._underway.deletion, message)
        if self._underway.is_written and not self.data.topic_tombstones(self.group_id, message.topics):
            return None
        return self._begin_deletion(message)

    def _expired(self) -> OldOffsets:
        retention_ms = self._environment.settings.offsets_retention_minutes * MINUTE_MS
        return expired(self._group, self.data, self._environment.clock.wall_ms(), retention_ms)

    # Leaving memory, and coming back ---------------------------------------------------------------------------------

    def _may_sleep_soon(self) -> bool:
        is_quiet = self._group.is_quiet and self._underway.is_quiet and not self.data.pending
        return self._group.state is State.EMPTY and is_quiet

    def _watch_idleness(self) -> None:
        if self._idle.due_ms is None and self._may_sleep_soon():
            self._appends_before_idle = self._underway.appends_sent
            self._idle.set(self._environment.clock.monotonic_ms() + IDLE_MS, self._effects)

    def _idle_for_a_while(self) -> None:
        """Nobody has joined, and if nothing was committed either it was idle. (Whoever only reads will wake it.)"""
        is_due = self._idle.rang(self._environment.clock.monotonic_ms(), self._effects)
        if is_due and self._may_sleep_soon() and self._appends_before_idle == self._underway.appends_sent:
            self.sleep()
        else:
            self._carry_out()

    def on_leave(self, error: Exception | None) -> Kept:
        if error is not None:
            self._answer_all(error)
        return Kept(self.group_id, self.data, self._underway, error)

    def on_return(self, kept: Kept) -> None:
        self._underway = kept.underway
        self._underway.stale_appends = kept.underway.appends_sent

    def _answer_all(self, bug: Exception) -> None:
        """Whoever was about to be answered hears of the bug, whoever waits is told to come again; each once.

        The sender of the message that failed has been answered, though it may be among them.
        """
        told: set[int] = {id(self.reply_to)}
        effects, self._effects = self._effects, Effects(self._environment.counts)
        for answer in effects.answers:
            if id(answer.reply) not in told:
                told.add(id(answer.reply))
                fail(answer.reply, bug)
        self._idle.cancel(self._effects)
        try:
            self._group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._effects)
        except Exception:
            log.exception("group %r could not answer all who wait", self.group_id)
        self._effects.answers = [answer for answer in self._effects.answers if id(answer.reply) not in told]
        self._give_up_deletion(told)
        self._carry_out()

    def _give_up_deletion(self, told: set[int]) -> None:
        """If it was the deletion that failed, nothing that is on its way would end it; who waits for it goes on."""
        deletion = self._underway.deletion
        if deletion is None or deletion.is_done or not self._underway.is_written:
            return
        self._underway.deletion = None
        if id(deletion.reply) not in told:
            deletion.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.take_next([waiting for waiting in deletion.waiting if id(waiting[1]) not in told])

    def _close(self, error: ErrorCode) -> None:
        """Everybody who waits is answered."""
        self._idle.cancel(self._effects)
        self._group.close(error, self._effects)
        self._carry_out()

    def _reload(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Begin anew from what is durable."""
        self._close(error)
        self._underway.stale_appends = self._underway.appends_sent
        self._group = self._make_group()
        self.on_start()
