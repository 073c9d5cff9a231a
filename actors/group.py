"""GroupActor: the shell round one group. Its mailbox serialises everything about it, so nothing here needs a lock.

A turn: ask the pure part to decide, then carry out what it asks for: records to the writer, alarms to the timer,
answers to whoever waits. What records say takes effect when they are durable, through the ``replay`` that loads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from .base import DEFERRED, Actor, ActorRef
from .classic import ClassicGroup
from .effects import Effects
from .errors import ErrorCode
from .messages import (
    Append,
    Cancel,
    Committed,
    DeleteGroup,
    Described,
    DescribeGroup,
    Expired,
    Fetched,
    GroupChanged,
    GroupGone,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetFetch,
    Schedule,
    Shutdown,
    SyncGroup,
    Written,
)
from .offsets import GroupData, Offsets, commit_records
from .ports import Clock, Entry, GroupSettings, Random, ReplyTo
from .records import Record
from .states import Action, Request, State

log = logging.getLogger("callboard.actors")

APPEND_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What clients hear of a failed append (Kafka's mapping): something that makes them look for the coordinator again."""


class Surroundings(NamedTuple):
    """What every group has around it."""

    settings: GroupSettings
    clock: Clock
    random: Random
    coordinator: ActorRef
    timer: ActorRef
    writer: ActorRef


class CommitContext(NamedTuple):
    """A commit on its way to the log."""

    reply: ReplyTo | None
    errors: tuple[ErrorCode, ...]


class DeleteContext(NamedTuple):
    """A deletion on its way to the log."""

    reply: ReplyTo


class Deletion:
    """A group that is about to be deleted: requests that would fill it again wait for the end of it."""

    def __init__(self, reply: ReplyTo) -> None:
        self.reply = reply
        self.is_sent = False
        self.is_done = False
        self.waiting: list[tuple[GroupRequest, ReplyTo]] = []


class WaitingFetch(NamedTuple):
    """A fetch that must see all commits that came before it (``require_stable``, KIP-447)."""

    request: OffsetFetch
    reply: ReplyTo | None
    after: int  # how many appends must be done


class GroupActor(Actor):
    """One group: members, generation, offsets."""

    handlers = {
        Heartbeat: "heartbeat",
        OffsetCommit: "commit",
        Written: "written",
        JoinGroup: "join",
        SyncGroup: "sync",
        LeaveGroup: "leave",
        OffsetFetch: "fetch",
        Expired: "expired",
        DescribeGroup: "describe",
        DeleteGroup: "delete",
        Shutdown: "shutdown",
    }

    def __init__(self, group_id: str, partition: int, data: GroupData, surroundings: Surroundings) -> None:
        super().__init__()
        self.group_id = group_id
        self.partition = partition
        self.data = data
        self._around = surroundings
        self._effects = Effects()
        self._appends_sent = 0
        self._appends_done = 0
        self._fetches: list[WaitingFetch] = []
        self._listed: GroupChanged | None = None
        self._deletion: Deletion | None = None
        self._stale_appends = 0  # those sent before a restart
        self._group = self._make_group()

    def _make_group(self) -> ClassicGroup:
        around = self._around
        return ClassicGroup(self.group_id, around.settings, around.clock, around.random)

    def on_start(self) -> None:
        if self.data.value is not None:
            self._group.load(self.data.value, self._effects)
        self._carry_out()

    # Requests --------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        effects = self._effects
        answer = self._group.heartbeat(request, effects)
        if effects.alarms:
            self._carry_out()
        return answer

    def join(self, request: JoinGroup) -> object:
        if self._deletion is not None:
            return self._wait_for_deletion(self._deletion, request)
        self._group.join(request, self._reply(), self._effects)
        self._carry_out()
        return DEFERRED

    def sync(self, request: SyncGroup) -> object:
        self._group.sync(request, self._reply(), self._effects)
        self._carry_out()
        return DEFERRED

    def leave(self, request: LeaveGroup) -> Left:
        answer = self._group.leave(request, self._effects)
        self._carry_out()
        return answer

    def commit(self, request: OffsetCommit) -> object:
        if self._deletion is not None:
            return self._wait_for_deletion(self._deletion, request)
        error = self._group.commit_error(request, self._effects)
        if self._effects.alarms:
            self._carry_out()
        if error is not ErrorCode.NONE:
            return Committed((error,) * len(request.commits))
        around = self._around
        errors, records = commit_records(request, around.clock.wall_ms(), around.settings.offset_metadata_max_bytes)
        if not records:
            return Committed(errors)
        self._append(records, CommitContext(self.reply_to, errors))
        return DEFERRED

    def fetch(self, request: OffsetFetch) -> Fetched | object:
        if request.require_stable and self._appends_done < self._appends_sent:
            self._fetches.append(WaitingFetch(request, self.reply_to, self._appends_sent))
            return DEFERRED
        return self._fetched(request)

    def describe(self, _request: DescribeGroup) -> Described:
        return self._group.describe()

    def delete(self, request: DeleteGroup) -> object:
        if self._deletion is not None:
            return self._wait_for_deletion(self._deletion, request)
        answer = self._group.answers[Request.DELETE]
        if answer is not Action.DELETE:
            return answer
        self._deletion = Deletion(self._reply())
        self._delete_if_all_is_written(self._deletion)
        return DEFERRED

    def shutdown(self, _message: Shutdown) -> None:
        """The coordinator stops: whoever waits looks for it again, and finds it when it is back."""
        self._close(ErrorCode.NOT_COORDINATOR)

    # From the timer and the writer -----------------------------------------------------------------------------------

    def expired(self, message: Expired) -> None:
        for name in message.names:
            self._group.expired(name, self._effects)  # type: ignore[arg-type]
        self._carry_out()

    def written(self, message: Written) -> None:
        self._appends_done += 1
        error = APPEND_ERRORS.get(message.outcome.error, message.outcome.error)
        if error is ErrorCode.NONE:
            for record in message.records:
                self.data.replay(record)
        context = message.context
        if isinstance(context, CommitContext):
            self._commit_written(context, error)
        elif isinstance(context, DeleteContext):
            self._delete_written(context, error)
        else:
            self._group_record_written(context, error)
        if self._fetches:
            self._answer_fetches()
        if self._deletion is not None:
            self._delete_if_all_is_written(self._deletion)

    def _commit_written(self, context: CommitContext, error: ErrorCode) -> None:
        if context.reply is None:
            return
        errors = context.errors
        if error is not ErrorCode.NONE:
            errors = tuple(error if own is ErrorCode.NONE else own for own in errors)
        self._deliver(context.reply.set, Committed(errors))

    def _group_record_written(self, context: Any, error: ErrorCode) -> None:
        effects, value = self._effects, self.data.value
        if self._appends_done <= self._stale_appends:
            self._restart()  # it was sent before a restart: what it says is in ``data`` now
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
        if effects.alarms:
            self._file_alarms()
        if effects.answers:
            answers, effects.answers = effects.answers, []
            for reply, value in answers:
                self._deliver(reply.set, value)
        self._tell_state()

    def _deliver(self, settle: Callable[[Any], None], answer: Any) -> None:
        """A place that cannot take its answer must not cost the others theirs."""
        try:
            settle(answer)
        except Exception:
            log.exception("group %r could not deliver an answer", self.group_id)

    def _file_alarms(self) -> None:
        alarms, self._effects.alarms = self._effects.alarms, {}
        timer, me = self._around.timer, self._actor_ref
        for name, due_ms in alarms.items():
            timer.tell(Cancel(me, name) if due_ms is None else Schedule(me, name, due_ms))

    def _append(self, records: tuple[Record, ...], context: Any) -> None:
        self._around.writer.tell(Append(self._actor_ref, Entry(self.partition, records), context))
        self._appends_sent += 1  # not before: what the writer refused will never be done

    def _tell_state(self) -> None:
        """The coordinator lists groups without asking them; it hears of every change."""
        group = self._group
        listed = self._listed
        if listed is not None and listed[1:] == (group.state.value, group.protocol_type or ""):
            return
        self._listed = GroupChanged(self.group_id, group.state.value, group.protocol_type or "")
        self._around.coordinator.tell(self._listed)

    def _fetched(self, request: OffsetFetch) -> Fetched:
        offsets = Offsets() if self._group.state is State.DEAD else self.data.offsets
        return offsets.fetch(request)

    def _answer_fetches(self) -> None:
        ready = [fetch for fetch in self._fetches if fetch.after <= self._appends_done]
        self._fetches = [fetch for fetch in self._fetches if fetch.after > self._appends_done]
        for fetch in ready:
            if fetch.reply is not None:
                self._deliver(fetch.reply.set, self._fetched(fetch.request))

    # Deletion --------------------------------------------------------------------------------------------------------

    def _delete_if_all_is_written(self, deletion: Deletion) -> None:
        """Tombstones are for what is durable: commits that are on their way come first."""
        if deletion.is_sent or self._appends_done < self._appends_sent:
            return
        self._append(self.data.tombstones(self.group_id), DeleteContext(deletion.reply))
        deletion.is_sent = True

    def _delete_written(self, context: DeleteContext, error: ErrorCode) -> None:
        deletion, coordinator = self._deletion, self._around.coordinator
        assert deletion is not None
        self._deliver(context.reply.set, error)
        if error is ErrorCode.NONE:
            deletion.is_done = True
            self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            coordinator.tell(GroupGone(self.group_id))
        else:
            self._deletion = None
        for request, reply in deletion.waiting:
            coordinator.post(request, reply)

    def _wait_for_deletion(self, deletion: Deletion, request: GroupRequest) -> object:
        """The request meets the group as it is afterwards: usually a new one."""
        if deletion.is_done:
            self._around.coordinator.post(request, self._reply())
        else:
            deletion.waiting.append((request, self._reply()))
        return DEFERRED

    # The end, and bugs -----------------------------------------------------------------------------------------------

    def _close(self, error: ErrorCode, answered: ReplyTo | None = None) -> None:
        """Everybody who waits is answered, but for the one who has been."""
        self._group.close(error, self._effects)
        self._effects.answers = [answer for answer in self._effects.answers if answer.reply is not answered]
        self._carry_out()

    def _restart(self, answered: ReplyTo | None = None) -> None:
        """Begin anew from what is durable."""
        self._close(ErrorCode.COORDINATOR_NOT_AVAILABLE, answered)
        self._stale_appends = self._appends_sent
        self._group = self._make_group()
        self.on_start()

    def _handle_error(self, error: Exception, reply_to: ReplyTo | None) -> None:
        """A bug must not take the group away: its sender hears of it, the group begins anew from what is durable."""
        log.error("group %r begins anew after a bug", self.group_id, exc_info=error)
        # Who was about to be answered is parked no more: without this nobody would answer them.
        unanswered = dict.fromkeys([reply_to, *(answer.reply for answer in self._effects.answers)])
        self._effects = Effects()
        for reply in unanswered:
            if reply is not None:
                self._deliver(reply.set_exception, (type(error), error, error.__traceback__))
        self._restart(answered=reply_to)
