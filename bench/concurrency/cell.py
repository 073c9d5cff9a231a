"""Cell: the complete state of one group, without locks or mailboxes. It is the same for every engine.

It drives ``ClassicGroup`` and ``GroupData`` as ``GroupActor`` does: decide, pass records to the writer and alarms to
the timer, reply; records are applied when they are written. The engine must ensure that only one thread at a time runs
a turn; a cell counts violations.

Records and alarms are passed on during the turn, because their order matters. Replies are returned, so that an engine
with locks can release its lock before it sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from callboard.actors.engine_ports import Clock, ReplyTo
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.effects import Effects
from callboard.actors.group.offsets import GroupData, commit_records
from callboard.actors.messages import (
    Committed,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from callboard.actors.ports import Random
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, Record

Request = Heartbeat | OffsetCommit | JoinGroup | SyncGroup | LeaveGroup | OffsetFetch
Answers = Sequence[tuple[ReplyTo, Any]]
Alarms = dict[Hashable, int | None]


class Settings(NamedTuple):
    """``ClassicGroupSettings`` of the laboratory: Kafka's defaults, without an initial rebalance delay."""

    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 1
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_max_pending_members: int = 50_000
    memory_limit_bytes: int = 2**63 - 1
    group_generation_from_clock: bool = False
    offset_metadata_max_bytes: int = 4096
    offsets_topic_num_partitions: int = 50
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000


SETTINGS = Settings()


class Append(NamedTuple):
    """Records for the writer, returned to the cell when they are written."""

    cell: Cell
    records: tuple[Record, ...]
    context: Any


class WriterPort(Protocol):
    """The writer as a cell sees it. Called during a turn, on any of the engine's threads."""

    def append(self, append: Append, /) -> None: ...


class TimerPort(Protocol):
    """The timer as a cell sees it. Called during a turn, on any of the engine's threads."""

    def schedule(self, cell: Cell, alarms: Alarms) -> None: ...


class CellEnvironment(NamedTuple):
    """The services that every cell uses."""

    clock: Clock
    random: Random
    writer: WriterPort
    timer: TimerPort


class CommitContext(NamedTuple):
    """A commit that is being written."""

    reply_to: ReplyTo
    errors: tuple[ErrorCode, ...]


class Bug(NamedTuple):
    """The reply to a request that raised an exception; always an error."""

    text: str


class Cell:
    """One group. ``handle``, ``written`` and ``expired`` are turns; each returns the replies to send.

    It counts for the oracle: requests handled (not atomically, so that concurrent turns lose one), offset records
    applied, and turns that overlapped with another.
    """

    __slots__ = (
        "_inside",
        "applied",
        "bugs",
        "data",
        "effects",
        "environment",
        "group",
        "group_id",
        "handled",
        "overlaps",
    )

    def __init__(self, group_id: str, environment: CellEnvironment) -> None:
        self.group_id = group_id
        self.environment = environment
        self.group = ClassicGroup(group_id, SETTINGS, environment.clock, environment.random)
        self.data = GroupData()
        self.effects = Effects()
        self.handled = 0
        self.applied = 0
        self.overlaps = 0
        self.bugs: tuple[str, ...] = ()
        self._inside = False

    def load(self, value: GroupValue) -> None:
        """Load the group with these members and this generation, as from a log."""
        self.data.replay(GroupRecord(self.group_id, value))
        self.group.load(value, self.effects)
        self._apply_effects()

    # Turns -----------------------------------------------------------------------------------------------------------

    def handle(self, request: Request, reply_to: ReplyTo) -> Answers:
        """Handle a request. Its reply is returned by this turn or by a later one."""
        handled = self.handled
        answers = self._turn(_DECISIONS[type(request)], request, reply_to)
        self.handled = handled + 1
        return answers

    def written(self, append: Append) -> Answers:
        """Apply records that are durable."""
        return self._turn(Cell._apply, append, None)

    def expired(self, names: Sequence[Hashable]) -> Answers:
        """Handle expired timers."""
        return self._turn(Cell._on_expired, names, None)

    def _turn(self, decide: Callable[[Cell, Any, Any], Answers], message: Any, reply_to: ReplyTo | None) -> Answers:
        if self._inside:
            self.overlaps += 1
        self._inside = True
        try:
            return decide(self, message, reply_to)
        except Exception as error:
            bug = f"{type(message).__name__} ended in {type(error).__name__}: {error}"
            self.bugs = (*self.bugs, bug)
            return () if reply_to is None else ((reply_to, Bug(bug)),)
        finally:
            self._inside = False

    # Decisions -------------------------------------------------------------------------------------------------------

    def _heartbeat(self, request: Heartbeat, reply_to: ReplyTo) -> Answers:
        answer = self.group.handle(request, None, self.effects)
        if self.effects.alarms:
            self._apply_effects()
        return ((reply_to, answer),)

    def _join_or_sync(self, request: JoinGroup | SyncGroup, reply_to: ReplyTo) -> Answers:
        self.group.handle(request, reply_to, self.effects)
        return self._apply_effects()

    def _leave(self, request: LeaveGroup, reply_to: ReplyTo) -> Answers:
        response = self.group.handle(request, None, self.effects)
        return (*self._apply_effects(), (reply_to, response))

    def _fetch(self, request: OffsetFetch, reply_to: ReplyTo) -> Answers:
        return ((reply_to, self.data.offsets.fetch(request)),)

    def _commit(self, request: OffsetCommit, reply_to: ReplyTo) -> Answers:
        error = self.group.handle(request, None, self.effects)
        if self.effects.alarms:
            self._apply_effects()
        if error is not ErrorCode.NONE:
            return ((reply_to, Committed((error,) * len(request.commits))),)
        environment = self.environment
        errors, records = commit_records(request, environment.clock.wall_ms(), SETTINGS.offset_metadata_max_bytes)
        environment.writer.append(Append(self, records, CommitContext(reply_to, errors)))
        return ()

    def _apply(self, append: Append, _reply_to: None) -> Answers:
        for record in append.records:
            self.data.replay(record)
            self.applied += type(record) is OffsetRecord
        context = append.context
        if isinstance(context, CommitContext):
            return ((context.reply_to, Committed(context.errors)),)
        assert self.data.value is not None, "a group's own record was applied just now"
        self.group.appended(self.data.value, context, self.effects)
        return self._apply_effects()

    def _on_expired(self, names: Sequence[tuple[str, ...]], _reply_to: None) -> Answers:
        for name in names:
            self.group.expired(name, self.effects)
        return self._apply_effects()

    def _apply_effects(self) -> Answers:
        effects = self.effects
        if effects.work:  # of a large group; the actor does it in steps
            effects.finish_work()
        effects.events.clear()
        if effects.records:
            self.environment.writer.append(Append(self, effects.records, effects.context))
            effects.records, effects.context = (), None
        if effects.alarms:
            alarms, effects.alarms = effects.alarms, {}
            self.environment.timer.schedule(self, alarms)
        if not effects.answers:
            return ()
        answers, effects.answers = effects.answers, []
        return answers


_DECISIONS: dict[type, Callable[[Cell, Any, Any], Answers]] = {
    Heartbeat: Cell._heartbeat,
    OffsetCommit: Cell._commit,
    JoinGroup: Cell._join_or_sync,
    SyncGroup: Cell._join_or_sync,
    LeaveGroup: Cell._leave,
    OffsetFetch: Cell._fetch,
}


def deliver(answers: Answers) -> None:
    """Send replies."""
    for reply_to, answer in answers:
        reply_to.set(answer)
