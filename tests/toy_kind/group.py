"""The soft state of a queue, driven by its own state table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from callboard.actors.engine_ports import NOT_HANDLED, ReplyTo
from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.group.decisions import Decided, DecisionQueue
from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.group.environment import GroupEnvironment
from callboard.actors.group.events import Reason
from callboard.actors.group.kind import OffsetExpiry
from callboard.actors.group.requests import refuse
from callboard.actors.messages import DeleteGroup, OffsetCommit, OffsetDelete, OffsetFetch, TxnOffsetCommit
from callboard.actors.recorder.now import Waiting
from callboard.actors.records import GroupType, Record
from callboard.actors.steps import Steps

from .records import QUEUE, EpochRecord, EpochValue, MemberRecord, QueueMember
from .requests import DescribeQueue, JoinQueue, LeaveQueue, QueueDescribed, QueueHeartbeat, QueueJoined
from .value import QueueValue, replayed


class State(StrEnum):
    EMPTY = "Empty"
    ACTIVE = "Active"
    DEAD = "Dead"


Cell = ErrorCode | str
"""An error code, or the name of the method that handles the request."""

OWN = frozenset({JoinQueue, QueueHeartbeat, LeaveQueue, DescribeQueue})

TABLE: Mapping[State, Mapping[type, Cell]] = {
    State.EMPTY: {
        JoinQueue: "_submit",
        QueueHeartbeat: ErrorCode.UNKNOWN_MEMBER_ID,
        LeaveQueue: ErrorCode.UNKNOWN_MEMBER_ID,
        DescribeQueue: "_describe",
        OffsetCommit: ErrorCode.NONE,
        TxnOffsetCommit: ErrorCode.NONE,
        OffsetFetch: ErrorCode.NONE,
        OffsetDelete: ErrorCode.NONE,
        DeleteGroup: ErrorCode.NONE,
    },
    State.ACTIVE: {
        JoinQueue: "_submit",
        QueueHeartbeat: "_heartbeat",
        LeaveQueue: "_submit",
        DescribeQueue: "_describe",
        OffsetCommit: ErrorCode.NONE,
        TxnOffsetCommit: ErrorCode.NONE,
        OffsetFetch: ErrorCode.NONE,
        OffsetDelete: ErrorCode.NONE,
        DeleteGroup: ErrorCode.NON_EMPTY_GROUP,
    },
    State.DEAD: dict.fromkeys(
        (*OWN, OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroup),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
}


class QueueGroup:
    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self._environment = environment
        self._value = QueueValue()
        self._soft = QueueValue()  # with the entry in flight
        self._queue = DecisionQueue(self._decide)
        self._sessions: dict[str, Deadline] = {}

    @property
    def type(self) -> GroupType:
        return QUEUE

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return "queue"

    @property
    def content_bytes(self) -> int:
        return 1000 * len(self._sessions)

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY and self._queue.is_idle

    @property
    def may_be_passivated(self) -> bool:
        return self.is_empty

    def load(self, value: QueueValue, effects: Effects) -> None:
        self._soft = value
        self._apply(value, effects)

    def _apply(self, value: QueueValue, effects: Effects) -> None:
        """The durable members have sessions, and only they."""
        self._value = value
        self.state = State.ACTIVE if value.members else State.EMPTY
        for member_id in set(self._sessions) - set(value.members):
            self._sessions.pop(member_id).cancel(effects)
        for member_id in value.members:
            if member_id not in self._sessions:
                self._sessions[member_id] = Deadline(("session", member_id))
                self._renew(member_id, effects)

    def waiting(self) -> Waiting:
        return Waiting(0, member_count=len(self._value.members))

    def votes(self) -> Steps[None]:
        yield

    def _renew(self, member_id: str, effects: Effects) -> None:
        timeout_ms = self._value.members[member_id].session_timeout_ms
        self._sessions[member_id].set(self._environment.clock.monotonic_ms() + timeout_ms, effects)

    # Requests --------------------------------------------------------------------------------------------------------

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        cell = TABLE[self.state].get(type(request))
        if cell is None:
            return refuse(request)
        if isinstance(cell, ErrorCode):
            return error_reply(request, cell) if type(request) in OWN else cell
        return getattr(self, cell)(request, reply, effects)

    def answer_at_once(self, _request: Any, _effects: Effects) -> Any:
        """Neither of the two heartbeats is for a queue."""
        return NOT_HANDLED

    def _submit(self, request: Any, reply: ReplyTo, effects: Effects) -> object:
        return self._queue.submit(request, reply, effects)

    def _heartbeat(self, request: QueueHeartbeat, _reply: ReplyTo | None, effects: Effects) -> ErrorCode:
        if request.member_id not in self._sessions:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._renew(request.member_id, effects)
        return ErrorCode.NONE if request.epoch == self._value.epoch else ErrorCode.REBALANCE_IN_PROGRESS

    def _decide(self, message: Any, _effects: Effects) -> Steps[Decided]:
        yield
        if isinstance(message, JoinQueue):
            return self._decide_join(message)
        is_request = isinstance(message, LeaveQueue)
        member_id = message.member_id if is_request else message[1]
        if member_id not in self._soft.members:
            return Decided(ErrorCode.UNKNOWN_MEMBER_ID)
        return Decided(ErrorCode.NONE, self._records(member_id, None))

    def _decide_join(self, request: JoinQueue) -> Decided:
        counts = ((topic, self._environment.topics.partition_count(topic)) for topic in request.topics)
        partitions = tuple((topic, count) for topic, count in counts if count is not None)
        records = self._records(request.member_id, QueueMember(request.session_timeout_ms, request.topics))
        return Decided(QueueJoined(ErrorCode.NONE, self._soft.epoch, partitions), records)

    def _records(self, member_id: str, member: QueueMember | None) -> Sequence[Record]:
        epoch = EpochRecord(self.group_id, EpochValue(max(self._soft.epoch, 0) + 1))
        records: list[EpochRecord | MemberRecord] = [epoch, MemberRecord(self.group_id, member_id, member)]
        for record in records:
            self._soft = replayed(self._soft, record)
        return records

    def _describe(self, _request: DescribeQueue, _reply: ReplyTo | None, _effects: Effects) -> QueueDescribed:
        return QueueDescribed(ErrorCode.NONE, self.state.value, self._value.epoch, tuple(self._value.members))

    def creation_record(self, request: object) -> None:
        """Joining writes records."""

    def appended(self, value: QueueValue, _context: object, effects: Effects) -> None:
        self._apply(value, effects)
        self._queue.appended(effects)

    def append_failed(self, _context: object, error: ErrorCode, effects: Effects) -> None:
        self._soft = self._value
        self._queue.append_failed(error, effects)

    # Deadlines, offsets and the end ----------------------------------------------------------------------------------

    def expired(self, name: Any, effects: Effects) -> None:
        deadline = self._sessions.get(name[1])
        if deadline is not None and deadline.handle_alarm(self._environment.clock.monotonic_ms(), effects):
            effects.counters.expired_sessions += 1
            self._queue.submit(name, None, effects)

    def subscribed_topics(self) -> Steps[frozenset[str]]:
        yield
        return frozenset(topic for member in self._value.members.values() for topic in member.topics)

    def offset_expiry(self) -> Steps[OffsetExpiry]:
        return OffsetExpiry(-1, (yield from self.subscribed_topics()))

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        for deadline in self._sessions.values():
            deadline.cancel(effects)
        self._sessions.clear()
        self._queue.refuse_all(error, effects)
        self.state = State.DEAD
