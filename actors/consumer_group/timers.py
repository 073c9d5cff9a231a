"""The deadlines of the members of one group: their sessions, and until when they have to give back partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..engine_ports import Clock
from ..group.effects import Deadline, Effects
from ..steps import Steps, pieces
from .plan import Plan
from .records import MemberState
from .state import GroupState, Member

SESSION = "session"
REBALANCE = "rebalance"
CLASSIC_JOIN = "classic join"
CLASSIC_SYNC = "classic sync"

RETRY_MS = 500
"""When a removal is tried again that could not be stored (Kafka's ``scheduleConsumerGroup...`` with a retry)."""


class DeadlinePassed(NamedTuple):
    """A member has not sent a heartbeat, JoinGroup or SyncGroup in time, unless it did meanwhile.

    ``kind``: SESSION, CLASSIC_JOIN or CLASSIC_SYNC.
    """

    kind: str
    member_id: str


class RebalanceExpired(NamedTuple):
    """A member has not given back partitions in time, if it is still in this epoch."""

    member_id: str
    member_epoch: int


class RebalanceTimer(NamedTuple):
    """``member_epoch``: the epoch in which the member has to give back partitions."""

    deadline: Deadline
    member_epoch: int


class MemberTimers:
    """The deadlines. Their names are pairs such as ("session", member id).

    ``by_kind``: those for requests, by kind and member id. Members of the classic protocol may have to send JoinGroup
    or SyncGroup; all have ``sessions``. ``rebalances``: for giving back partitions, by member id.
    """

    __slots__ = ("_clock", "by_kind", "rebalances", "sessions")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_kind: dict[str, dict[str, Deadline]] = {SESSION: {}, CLASSIC_JOIN: {}, CLASSIC_SYNC: {}}
        self.sessions = self.by_kind[SESSION]
        self.rebalances: dict[str, RebalanceTimer] = {}

    def apply(self, plan: Plan, session_timeout_ms: int, effects: Effects) -> Steps[None]:
        """Do what a decision wants."""
        for piece in pieces(plan.removed):
            for member_id in piece:
                self.remove(member_id, effects)
            yield
        for member_id, own_timeout_ms in plan.sessions.items():
            self.set_session(member_id, session_timeout_ms if own_timeout_ms is None else own_timeout_ms, effects)
        for member_id, wanted in plan.deadlines.items():
            if wanted is None:
                self._cancel_rebalance(member_id, effects)
            else:
                self.set_rebalance(member_id, wanted.timeout_ms, wanted.member_epoch, effects)
        for member_id, in_ms in plan.joins.items():
            if in_ms is None or member_id not in self.by_kind[CLASSIC_JOIN]:
                self._set(CLASSIC_JOIN, member_id, in_ms, effects)
        for member_id, in_ms in plan.syncs.items():
            self._set(CLASSIC_SYNC, member_id, in_ms, effects)

    def _set(self, kind: str, member_id: str, in_ms: int | None, effects: Effects) -> None:
        """Set or, with None, cancel a deadline."""
        deadlines = self.by_kind[kind]
        if in_ms is None:
            _cancel(deadlines, member_id, effects)
            return
        deadline = deadlines.get(member_id)
        if deadline is None:
            deadline = deadlines[member_id] = Deadline((kind, member_id))
        deadline.set(self._clock.monotonic_ms() + in_ms, effects)

    def set_session(self, member_id: str, in_ms: int, effects: Effects) -> None:
        """A session does not end earlier than it would without this heartbeat.

        The session timeout may have been lowered, and the member may never get the answer.
        """
        session, due_ms = self.sessions.get(member_id), self._clock.monotonic_ms() + in_ms
        if session is None:
            session = self.sessions[member_id] = Deadline((SESSION, member_id))
        elif session.due_ms is not None and session.due_ms > due_ms:
            return
        session.set(due_ms, effects)

    def set_rebalance(self, member_id: str, in_ms: int, member_epoch: int, effects: Effects) -> None:
        timer = self.rebalances.get(member_id)
        deadline = Deadline((REBALANCE, member_id)) if timer is None else timer.deadline
        self.rebalances[member_id] = RebalanceTimer(deadline, member_epoch)
        deadline.set(self._clock.monotonic_ms() + in_ms, effects)

    def remove(self, member_id: str, effects: Effects) -> None:
        for deadlines in self.by_kind.values():
            _cancel(deadlines, member_id, effects)
        self._cancel_rebalance(member_id, effects)

    def _cancel_rebalance(self, member_id: str, effects: Effects) -> None:
        timer = self.rebalances.pop(member_id, None)
        if timer is not None:
            timer.deadline.cancel(effects)

    def restore(self, state: GroupState, session_timeout_ms: int, effects: Effects) -> Steps[None]:
        """Set the deadlines that the members of a loaded group need, or of one whose last decisions are void.

        Others stay. One that has passed waits for its decision.
        """
        for member_ids in pieces(self.sessions.keys() - state.members.keys()):
            for member_id in member_ids:
                self.remove(member_id, effects)
            yield
        for members in pieces(state.members.values()):
            for member in members:
                self._restore_session(member, session_timeout_ms, effects)
                self._restore_rebalance(member, effects)
            yield

    def _restore_session(self, member: Member, session_timeout_ms: int, effects: Effects) -> None:
        if member.member_id not in self.sessions:
            classic = member.about.classic
            in_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
            self.set_session(member.member_id, in_ms, effects)

    def _restore_rebalance(self, member: Member, effects: Effects) -> None:
        current, timer = member.current, self.rebalances.get(member.member_id)
        if current.state is not MemberState.UNREVOKED_PARTITIONS or member.about.classic is not None:
            self._cancel_rebalance(member.member_id, effects)
        elif timer is None or timer.member_epoch != current.member_epoch:
            self.set_rebalance(member.member_id, member.about.rebalance_timeout_ms, current.member_epoch, effects)

    def retry(self, message: object, effects: Effects) -> None:
        """A decision could not be stored. If it was about a deadline, that comes again soon."""
        if isinstance(message, DeadlinePassed) and message.member_id in self.by_kind[message.kind]:
            self._set(message.kind, message.member_id, RETRY_MS, effects)
        elif isinstance(message, RebalanceExpired) and message.member_id in self.rebalances:
            self.set_rebalance(message.member_id, RETRY_MS, message.member_epoch, effects)

    def rebalance(self, member_id: str) -> Deadline | None:
        timer = self.rebalances.get(member_id)
        return None if timer is None else timer.deadline

    def has_passed(self, passed: DeadlinePassed) -> bool:
        """Whether the member has done nothing since."""
        deadline = self.by_kind[passed.kind].get(passed.member_id)
        return deadline is not None and deadline.due_ms is None

    def all(self) -> Iterable[Deadline]:
        rebalances = (timer.deadline for timer in self.rebalances.values())
        return (*(deadline for kind in self.by_kind.values() for deadline in kind.values()), *rebalances)


def _cancel(deadlines: dict[str, Deadline], member_id: str, effects: Effects) -> None:
    deadline = deadlines.pop(member_id, None)
    if deadline is not None:
        deadline.cancel(effects)
