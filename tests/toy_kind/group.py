"""The soft state of a queue, driven by its own state table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from callboard.actors.base import DEFERRED
from callboard.actors.engine_ports import ReplyTo
from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.group.contexts import ReplyContext
from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.group.environment import GroupEnvironment
from callboard.actors.group.events import Reason
from callboard.actors.group.kind import OffsetExpiry
from callboard.actors.group.requests import refuse
from callboard.actors.messages import DeleteGroup, OffsetCommit, OffsetDelete, OffsetFetch, TxnOffsetCommit
from callboard.actors.records import GroupType

from .records import QUEUE, EpochRecord, EpochValue, MemberRecord, QueueMember
from .requests import DescribeQueue, JoinQueue, LeaveQueue, QueueDescribed, QueueHeartbeat, QueueJoined
from .value import QueueValue


class State(StrEnum):
    EMPTY = "Empty"
    ACTIVE = "Active"
    DEAD = "Dead"


Cell = ErrorCode | str
"""An error code, or the name of the method that handles the request."""

OWN = frozenset({JoinQueue, QueueHeartbeat, LeaveQueue, DescribeQueue})

TABLE: Mapping[State, Mapping[type, Cell]] = {
    State.EMPTY: {
        JoinQueue: "_join",
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
        JoinQueue: "_join",
        QueueHeartbeat: "_heartbeat",
        LeaveQueue: "_leave",
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
        self._next_epoch = 0
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
        return self.state is State.EMPTY

    @property
    def may_be_passivated(self) -> bool:
        return self.is_empty

    def load(self, value: QueueValue, effects: Effects) -> None:
        self._next_epoch = value.epoch
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

    def _join(self, request: JoinQueue, reply: ReplyTo, effects: Effects) -> object:
        counts = ((topic, self._environment.topics.partition_count(topic)) for topic in request.topics)
        partitions = tuple((topic, count) for topic, count in counts if count is not None)
        member = QueueMember(request.session_timeout_ms, request.topics)
        self._write(MemberRecord(self.group_id, request.member_id, member), effects)
        joined = QueueJoined(ErrorCode.NONE, self._next_epoch, partitions)
        effects.context = ReplyContext(reply, joined, partial(error_reply, request))
        return DEFERRED

    def _heartbeat(self, request: QueueHeartbeat, _reply: ReplyTo | None, effects: Effects) -> ErrorCode:
        if request.member_id not in self._sessions:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._renew(request.member_id, effects)
        return ErrorCode.NONE if request.epoch == self._value.epoch else ErrorCode.REBALANCE_IN_PROGRESS

    def _leave(self, request: LeaveQueue, reply: ReplyTo, effects: Effects) -> object:
        if request.member_id not in self._sessions:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._write(MemberRecord(self.group_id, request.member_id, None), effects)
        effects.context = ReplyContext(reply, ErrorCode.NONE, partial(error_reply, request))
        return DEFERRED

    def _write(self, record: MemberRecord, effects: Effects) -> None:
        self._next_epoch += 1
        effects.append_record(EpochRecord(self.group_id, EpochValue(self._next_epoch)))
        effects.append_record(record)

    def _describe(self, _request: DescribeQueue, _reply: ReplyTo | None, _effects: Effects) -> QueueDescribed:
        return QueueDescribed(ErrorCode.NONE, self.state.value, self._value.epoch, tuple(self._value.members))

    def creation_record(self, request: object) -> None:
        """Joining writes records."""

    def appended(self, value: QueueValue, _context: object, effects: Effects) -> None:
        self._apply(value, effects)

    def append_failed(self, context: object, error: ErrorCode, effects: Effects) -> None:
        """The members are unchanged; epochs may have gaps."""

    # Deadlines, offsets and the end ----------------------------------------------------------------------------------

    def expired(self, name: Any, effects: Effects) -> None:
        deadline = self._sessions.get(name[1])
        if deadline is not None and deadline.handle_alarm(self._environment.clock.monotonic_ms(), effects):
            effects.counters.expired_sessions += 1
            self._write(MemberRecord(self.group_id, name[1], None), effects)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self._value.members.values())

    def offset_expiry(self) -> OffsetExpiry:
        topics = (topic for member in self._value.members.values() for topic in member.topics)
        return OffsetExpiry(-1, frozenset(topics))

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        for deadline in self._sessions.values():
            deadline.cancel(effects)
        self._sessions.clear()
        self.state = State.DEAD
