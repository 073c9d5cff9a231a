"""ConsumerGroup: one group of the consumer protocol (KIP-848), pure: a ``Group`` for its actor.

The rules decide on ``soft``, the state with the entry in flight; ``DecisionQueue`` lets nothing else be decided
meanwhile. ``durable`` is what the records in the log amount to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..engine_ports import NOT_HANDLED, ReplyTo
from ..error_reply import error_reply
from ..errors import NO_ERROR, CoordinatorError, ErrorCode
from ..group.classic import ClassicGroup
from ..group.classic_kind import ClassicKind
from ..group.deadlines import Deadlines, cancel_in_steps
from ..group.decisions import Decided, DecisionQueue, DecisionsContext
from ..group.effects import Deadline, Effects
from ..group.environment import GroupEnvironment
from ..group.events import DEAD_NAME, Cause, GroupEvent, Kind, Reason
from ..group.kind import OffsetExpiry
from ..group.rebalance_notes import Assigned
from ..group.requests import refuse
from ..group.reset_messages import OffsetsReset, ResetOffsets
from ..group.resets import guard_end_ms, made, offset_records
from ..group.subscription import CONSUMER_PROTOCOL_TYPE
from ..memory import MEMBER_BYTES
from ..messages import (
    DeleteGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Synced,
    SyncGroup,
    TxnOffsetCommit,
)
from ..recorder.now import Waiting
from ..records import GroupType, Record
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from . import classic_members
from .conversion import downgrade_records
from .decision_environment import GroupDecisions
from .decision_size import decision_size
from .describe import describe
from .heartbeat import handle_heartbeat
from .leaving import leave_group
from .messages import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
    RegexesResolved,
)
from .notes import before, event_at, events_of, identify
from .offsets import check_commit, check_fetch, check_txn_commit
from .plan import Downgrade, Plan
from .records import CONSUMER, ConsumerRecord
from .refusals import note_refusal
from .regexes import apply_result, only_describable
from .removal import member_expired, rebalance_expired, remove_members
from .requests import describe_absent, refused
from .state import GroupPhase, GroupState
from .subscriptions import subscribed_topics
from .target import preferred_assignor
from .timers import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    REBALANCE,
    SESSION,
    DeadlinePassed,
    MemberTimers,
    RebalanceExpired,
)
from .unchanged import unchanged_reply
from .waiting import waiting

HAS_TARGET = frozenset({GroupPhase.RECONCILING, GroupPhase.STABLE})

PARTITION_BYTES = 200
"""A partition that a member has, in both states, with its target."""


class Successor(NamedTuple):
    """The classic group that a group becomes, when its records are durable."""

    group: ClassicGroup
    needs_rebalance: bool


class ConsumerGroup:
    """A group of the consumer protocol. Methods fill the ``effects`` that they get; none of them waits."""

    type: GroupType = CONSUMER

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.soft = GroupState(group_id)
        self.durable: GroupState | None = None
        self.queue = DecisionQueue(self._decide, lambda message: decision_size(self.soft, message))
        self.decisions = GroupDecisions(group_id, environment)
        self.timers = MemberTimers(environment.clock)
        self.is_closed = False
        self.successor: Successor | None = None
        self._environment = environment
        self._events: list[GroupEvent] = []  # of the entry in flight

    @property
    def state_name(self) -> str:
        if self.is_closed:
            return DEAD_NAME
        return (GroupPhase.EMPTY if self.durable is None else self.durable.phase).value

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def content_bytes(self) -> int:
        state = self.soft
        return len(state.members) * MEMBER_BYTES + state.text_bytes + len(state.owners) * PARTITION_BYTES

    @property
    def is_empty(self) -> bool:
        return not (self.soft.members or self.is_closed) and self.queue.is_idle

    @property
    def may_be_passivated(self) -> bool:
        return self.is_empty

    # Requests --------------------------------------------------------------------------------------------------------

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        handler = (CLOSED if self.is_closed else OPEN).get(type(request))
        return refuse(request) if handler is None else handler(self, request, reply, effects)

    def answer_at_once(self, request: Any, effects: Effects) -> Any:
        """Only heartbeats of the consumer protocol that change nothing. Those of the classic protocol are decisions."""
        if type(request) is not ConsumerHeartbeat or self.is_closed or not self.queue.is_idle:
            return NOT_HANDLED
        reply = unchanged_reply(self.soft, request, self.decisions)
        if reply is None:
            return NOT_HANDLED
        self.timers.set_session(request.member_id, self.decisions.settings.session_timeout_ms, effects)
        return reply

    def submit(self, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        return self.queue.submit(request, reply, effects)

    # Decisions -------------------------------------------------------------------------------------------------------

    def _decide(self, message: Any, effects: Effects) -> Steps[Decided]:
        plan = Plan()
        try:
            value = yield from DECISIONS[type(message)](self, message, plan)
        except CoordinatorError as error:
            note_refusal(message, error.code, self._environment.clock.monotonic_ms(), effects)
            return Decided(REFUSALS[type(message)](error))
        yield
        yield from self._apply(message, plan)
        records: Sequence[Record] = (*plan.records, *plan.offsets) if plan.offsets else plan.records
        if plan.downgrade is not None:
            records = (*records, *(yield from _prepare_downgrade(self, plan.downgrade)))
        if plan.regexes_to_resolve:
            describable = message.describable if isinstance(message, ConsumerHeartbeat) else None
            effects.background.append(self.decisions.resolution(plan.regexes_to_resolve, describable))
        yield from self.timers.apply(plan, self.decisions.settings.session_timeout_ms, effects)
        ends_group = plan.downgrade is not None or (bool(records) and not self.soft.members)
        return Decided(value, records, ends_group)

    def _apply(self, message: Any, plan: Plan) -> Steps[None]:
        if not plan.records and plan.downgrade is None:
            yield from plan.apply_to(self.soft)
            return
        earlier = yield from before(self.soft, plan)
        yield from plan.apply_to(self.soft)
        for events in pieces(events_of(message, earlier, self.soft, self._environment.clock)):
            if plan.downgrade is None:
                self._events += events
            else:  # the states that follow are those of the classic group
                self._events += (event for event in events if event.kind is not Kind.STATE_CHANGED)
            yield

    # Changes of the protocol -----------------------------------------------------------------------------------------

    def adopt(self, records: Sequence[ConsumerRecord]) -> Steps[None]:
        """Begin as what a classic group becomes. The records are not durable yet."""
        return self.soft.replay_all(records)

    def hand_over(self, effects: Effects) -> None:
        """The records of the successor are durable. It handles the requests that wait."""
        events, self._events = self._events, []
        _report(self, events, effects)
        effects.requeued += self.queue.take_requests()

    # Records ---------------------------------------------------------------------------------------------------------

    def load(self, value: GroupState, effects: Effects) -> None:
        """Restore the group. The sessions of its members start again, and the time to give back partitions."""
        self.durable, self.soft = value, value.copy()
        if value.members:
            effects.notes.append(Assigned("", targets=value.targets.copy(), is_loaded=True))
        effects.run(self._load_members(value, effects), len(value.members))

    def _load_members(self, value: GroupState, effects: Effects) -> Steps[None]:
        clock = self._environment.clock
        for members in pieces(value.members.values()):
            for member in members:
                cause = Cause(Reason.LOADED, identify(member))
                effects.events.append(event_at(clock, value, Kind.MEMBER_ADDED, cause, value.phase.value))
            yield
        yield from self.restore_timers(effects)

    def restore_timers(self, effects: Effects) -> Steps[None]:
        return self.timers.restore(self.soft, self.decisions.settings.session_timeout_ms, effects)

    def creation_record(self, _request: Any) -> None:
        """Joining writes records."""

    def appended(self, value: GroupState, _context: Any, effects: Effects) -> None:
        self.durable = value
        events, self._events = self._events, []
        _report(self, events, effects)
        if not self.soft.members:  # a JoinGroup that waits makes it a classic group
            effects.requeued += self.queue.take_requests()
        self.queue.appended(effects)

    def append_failed(self, context: DecisionsContext, error: ErrorCode, effects: Effects) -> None:
        """The state is again what it was before the entry. Removals by a deadline are tried again soon."""
        self.soft = GroupState(self.group_id) if self.durable is None else self.durable.copy()
        self.successor = None
        self._events = []
        effects.run(_go_back(self, context, effects), max(len(self.soft.members), len(self.timers.sessions)))
        self.queue.append_failed(error, effects)

    # Time, offsets ---------------------------------------------------------------------------------------------------

    def expired(self, name: Any, effects: Effects) -> None:
        """Handle the alarm of a deadline. Raises UnknownDeadline."""
        DEADLINES.fire(self, name, self._environment.clock.monotonic_ms(), effects)

    def subscribed_topics(self) -> Steps[Container[str]]:
        return subscribed_topics(self.soft.subscriptions, self.soft.regexes)

    def offset_expiry(self) -> Steps[OffsetExpiry]:
        """Offsets of topics that no member subscribes to, in every state."""
        return OffsetExpiry(-1, (yield from self.subscribed_topics()))

    def waiting(self) -> Waiting:
        return waiting(self.durable or self.soft, self.timers)

    def votes(self) -> Steps[None]:
        """The server assigns."""
        yield

    # The end ---------------------------------------------------------------------------------------------------------

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        """Reply to all requests that wait with ``error``, and enter Dead."""
        deadlines = tuple(self.timers.all())
        self.queue.refuse_all(error, effects)
        effects.run(cancel_in_steps(deadlines, effects), len(deadlines))
        self.is_closed = True
        effects.events.append(
            event_at(self._environment.clock, self.soft, Kind.STATE_CHANGED, Cause(reason), DEAD_NAME)
        )


def _prepare_downgrade(group: ConsumerGroup, downgrade: Downgrade) -> Steps[tuple[Record, ...]]:
    successor = ClassicKind().new_group(group.group_id, group._environment)
    records = yield from downgrade_records(group.soft, downgrade, successor, group.decisions.topics)
    group.successor = Successor(successor, downgrade.needs_rebalance)
    return records


def _report(group: ConsumerGroup, events: list[GroupEvent], effects: Effects) -> None:
    effects.events += events
    if events and events[-1].state in HAS_TARGET:
        assignor = preferred_assignor(group.soft.members, len(group.decisions.assignors))
        name = assignor or next(iter(group.decisions.assignors))
        effects.notes.append(Assigned(name, targets=group.soft.targets.copy()))
    effects.counters.expired_sessions += sum(
        event.kind is Kind.MEMBER_REMOVED and event.reason is Reason.SESSION_EXPIRED for event in events
    )


def _go_back(group: ConsumerGroup, failed: DecisionsContext, effects: Effects) -> Steps[None]:
    yield from group.restore_timers(effects)
    for cause, _ in failed.decisions:
        group.timers.retry(cause.message, effects)


# Requests ------------------------------------------------------------------------------------------------------------


def _describe(group: ConsumerGroup, request: DescribeConsumerGroup, _reply: ReplyTo | None, _effects: Effects) -> Any:
    """The description, or the work that makes it."""
    state = group.durable
    if state is None:
        return describe_absent(request)
    steps = describe(state, tuple(group.decisions.assignors))
    return steps if len(state.members) > SHORT_WORK_ITEMS else run_steps(steps)


def _commit(group: ConsumerGroup, request: OffsetCommit, _reply: ReplyTo | None, _effects: Effects) -> ErrorCode:
    if _is_being_emptied(group, request):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return check_commit(group.soft, request, group.decisions.topics, group.decisions.metadata_max)


def _txn_commit(group: ConsumerGroup, request: TxnOffsetCommit, _reply: ReplyTo | None, _effects: Effects) -> ErrorCode:
    if _is_being_emptied(group, request):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return check_txn_commit(group.soft, request, group.decisions.topics, group.decisions.metadata_max)


def _is_being_emptied(group: ConsumerGroup, request: OffsetCommit | TxnOffsetCommit) -> bool:
    """Whether it has no generation, and the removal of the last members is in flight: maybe by a reset of offsets."""
    durable = group.durable
    return request.generation_id < 0 and not group.soft.members and durable is not None and bool(durable.members)


def _fetch(group: ConsumerGroup, request: OffsetFetch, _reply: ReplyTo | None, _effects: Effects) -> ErrorCode:
    return check_fetch(group.durable or GroupState(group.group_id), request)


def _delete(group: ConsumerGroup, _request: DeleteGroup, _reply: ReplyTo | None, _effects: Effects) -> ErrorCode:
    """Not while a decision is on its way: it may fail, or a member may join."""
    return NO_ERROR if group.is_empty else ErrorCode.NON_EMPTY_GROUP


def _always(error: ErrorCode) -> Handler:
    return lambda _group, _request, _reply, _effects: error


def _refuse(_group: object, request: Any, _reply: ReplyTo | None, _effects: Effects) -> Any:
    return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


Handler = Callable[[ConsumerGroup, Any, ReplyTo | None, Effects], Any]

OPEN: Mapping[type, Handler] = {
    ConsumerHeartbeat: ConsumerGroup.submit,
    JoinGroup: ConsumerGroup.submit,
    SyncGroup: ConsumerGroup.submit,
    Heartbeat: ConsumerGroup.submit,
    LeaveGroup: ConsumerGroup.submit,
    ResetOffsets: ConsumerGroup.submit,
    RegexesResolved: ConsumerGroup.submit,
    DescribeConsumerGroup: _describe,
    OffsetCommit: _commit,
    TxnOffsetCommit: _txn_commit,
    OffsetFetch: _fetch,
    OffsetDelete: _always(NO_ERROR),
    DeleteGroup: _delete,
}
"""Requests of groups of this kind. They are the same in all states that are on the wire: the rules see no states."""


CLOSED: Mapping[type, Handler] = {
    ConsumerHeartbeat: _refuse,
    JoinGroup: _refuse,
    SyncGroup: _refuse,
    Heartbeat: _refuse,
    LeaveGroup: _refuse,
    ResetOffsets: _refuse,
    RegexesResolved: _always(NO_ERROR),
    DescribeConsumerGroup: _refuse,
    OffsetCommit: _always(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    TxnOffsetCommit: _always(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    OffsetFetch: _always(NO_ERROR),  # a closed group still has its offsets
    OffsetDelete: _always(ErrorCode.GROUP_ID_NOT_FOUND),
    DeleteGroup: _always(ErrorCode.GROUP_ID_NOT_FOUND),
}
"""The same of a group that is Dead."""

# Decisions -----------------------------------------------------------------------------------------------------------


def _decide_heartbeat(group: ConsumerGroup, request: ConsumerHeartbeat, plan: Plan) -> Steps[ConsumerHeartbeatReply]:
    is_new = request.member_epoch == JOIN_EPOCH and _is_new(group.soft, request.member_id, request.instance_id)
    if is_new and group.decisions.refuses_new_members():
        return ConsumerHeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, limit="memory_limit_bytes")
    return (yield from handle_heartbeat(group.soft, request, group.decisions, plan))


def _is_new(state: GroupState, member_id: str, instance_id: str | None) -> bool:
    """Whether the group would have one more member. A static member that restarts takes the place of the old one."""
    return member_id not in state.members and instance_id not in state.static_members


def _decide_join(group: ConsumerGroup, request: JoinGroup, plan: Plan) -> Steps[Joined]:
    is_new = _is_new(group.soft, request.member_id, request.group_instance_id)
    if is_new and group.decisions.refuses_new_members():
        return Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, limit="memory_limit_bytes")
    return (yield from classic_members.join(group.soft, request, group.decisions, plan))


def _decide_sync(group: ConsumerGroup, request: SyncGroup, plan: Plan) -> Steps[Synced]:
    yield
    return classic_members.sync(group.soft, request, group.decisions, plan)


def _decide_classic_heartbeat(group: ConsumerGroup, request: Heartbeat, plan: Plan) -> Steps[ErrorCode]:
    yield
    return classic_members.beat(group.soft, request, group.decisions, plan)


def _decide_leave(group: ConsumerGroup, request: LeaveGroup, plan: Plan) -> Steps[Left]:
    return leave_group(group.soft, request, group.decisions, plan)


def _decide_reset(group: ConsumerGroup, request: ResetOffsets, plan: Plan) -> Steps[OffsetsReset]:
    settings, now_ms = group._environment.settings, group._environment.clock.wall_ms()
    removed, session_timeout_ms = tuple(group.soft.members), 0
    for members in pieces(group.soft.members.values()):
        own = (member.about.classic.session_timeout_ms for member in members if member.about.classic)
        session_timeout_ms = max(session_timeout_ms, group.decisions.settings.session_timeout_ms, *own)
        yield
    yield from remove_members(group.soft, removed, group.decisions, plan)
    guarded_until_ms = guard_end_ms(request, now_ms, session_timeout_ms, settings)
    plan.offsets = yield from offset_records(request, guarded_until_ms if guarded_until_ms >= 0 else now_ms)
    return made(request, removed, guarded_until_ms)


def _decide_deadline(group: ConsumerGroup, passed: DeadlinePassed, plan: Plan) -> Steps[None]:
    """A request that has waited with it may have moved the deadline."""
    if group.timers.has_passed(passed):
        yield from member_expired(group.soft, passed.member_id, group.decisions, plan)


def _decide_rebalance(group: ConsumerGroup, expired: RebalanceExpired, plan: Plan) -> Steps[None]:
    return rebalance_expired(group.soft, expired.member_id, expired.member_epoch, group.decisions, plan)


def _decide_regexes(group: ConsumerGroup, result: RegexesResolved, plan: Plan) -> Steps[None]:
    group.decisions.is_resolving = False
    resolved = yield from only_describable(result)
    yield from apply_result(group.soft, resolved, group.decisions, plan)


DECISIONS: Mapping[type, Callable[[ConsumerGroup, Any, Plan], Steps[Any]]] = {
    ConsumerHeartbeat: _decide_heartbeat,
    JoinGroup: _decide_join,
    SyncGroup: _decide_sync,
    Heartbeat: _decide_classic_heartbeat,
    LeaveGroup: _decide_leave,
    ResetOffsets: _decide_reset,
    DeadlinePassed: _decide_deadline,
    RebalanceExpired: _decide_rebalance,
    RegexesResolved: _decide_regexes,
}
"""What decides about requests and about deadlines that have passed. Each returns the reply."""

REFUSALS: Mapping[type, Callable[[CoordinatorError], Any]] = {
    ConsumerHeartbeat: refused,
    JoinGroup: lambda error: Joined(error.code, limit=error.limit),
    SyncGroup: lambda error: Synced(error.code),
    Heartbeat: lambda error: error.code,
}
"""The replies to requests whose decision raises CoordinatorError."""


def _submit_passed(kind: str, group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    group.queue.submit(DeadlinePassed(kind, member_id), None, effects)


def _submit_rebalance(group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    member_epoch = group.timers.rebalances[member_id].member_epoch
    group.queue.submit(RebalanceExpired(member_id, member_epoch), None, effects)


def _find(kind: str, group: ConsumerGroup, member_id: str) -> Deadline | None:
    return group.timers.by_kind[kind].get(member_id)


def _each(kind: str, group: ConsumerGroup) -> Iterable[Deadline]:
    return group.timers.by_kind[kind].values()


DEADLINES: Deadlines[ConsumerGroup] = Deadlines()
for _kind in (SESSION, CLASSIC_JOIN, CLASSIC_SYNC):
    DEADLINES.add_per_member(_kind, partial(_find, _kind), partial(_each, _kind), partial(_submit_passed, _kind))
DEADLINES.add_per_member(
    REBALANCE,
    lambda group, member_id: group.timers.rebalance(member_id),
    lambda group: [timer.deadline for timer in group.timers.rebalances.values()],
    _submit_rebalance,
)
