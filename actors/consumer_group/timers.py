"""The deadlines of the members of one group: their sessions, and until when they have to give back partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..engine_ports import Clock
from ..group.effects import Deadline, Effects
from .plan import Plan
from .records import MemberState
from .state import GroupState, Member

SESSION = "session"
REBALANCE = "rebalance"
CLASSIC_JOIN = "classic join"
CLASSIC_SYNC = "classic sync"

RETRY_MS = 500
"""When a removal is tried again that could not be stored (Kafka's ``scheduleConsumerGroup...`` with a retry)."""


class SessionExpired(NamedTuple):
    """The session of a member has ended, unless it was renewed meanwhile."""

    member_id: str


class RebalanceExpired(NamedTuple):
    """A member has not given back partitions in time, if it is still in this epoch."""

    member_id: str
    member_epoch: int


class JoinExpired(NamedTuple):
    """A member of the classic protocol has not sent JoinGroup in time, unless it did meanwhile."""

    member_id: str


class SyncExpired(NamedTuple):
    """The same for SyncGroup."""

    member_id: str


class RebalanceTimer(NamedTuple):
    """``member_epoch``: the epoch in which the member has to give back partitions."""

    deadline: Deadline
    member_epoch: int


class MemberTimers:
    """The deadlines, by member id. Their names are pairs such as ("session", member id).

    ``joins``, ``syncs``: of members of the classic protocol that have to send JoinGroup or SyncGroup.
    """

    __slots__ = ("_clock", "joins", "rebalances", "sessions", "syncs")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sessions: dict[str, Deadline] = {}
        self.rebalances: dict[str, RebalanceTimer] = {}
        self.joins: dict[str, Deadline] = {}
        self.syncs: dict[str, Deadline] = {}

    def apply(self, plan: Plan, session_timeout_ms: int, effects: Effects) -> None:
        """Do what a decision wants."""
        for member_id in plan.removed:
            self.remove(member_id, effects)
        for member_id, own_timeout_ms in plan.sessions.items():
            self.set_session(member_id, session_timeout_ms if own_timeout_ms is None else own_timeout_ms, effects)
        for member_id, wanted in plan.deadlines.items():
            if wanted is None:
                self._cancel_rebalance(member_id, effects)
            else:
                self.set_rebalance(member_id, wanted.timeout_ms, wanted.member_epoch, effects)
        for member_id, in_ms in plan.joins.items():
            if in_ms is None or member_id not in self.joins:
                self._set(self.joins, CLASSIC_JOIN, member_id, in_ms, effects)
        for member_id, in_ms in plan.syncs.items():
            self._set(self.syncs, CLASSIC_SYNC, member_id, in_ms, effects)

    def _set(
        self, deadlines: dict[str, Deadline], kind: str, member_id: str, in_ms: int | None, effects: Effects
    ) -> None:
        """Set or, with None, cancel a deadline."""
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
        for deadlines in (self.sessions, self.joins, self.syncs):
            _cancel(deadlines, member_id, effects)
        self._cancel_rebalance(member_id, effects)

    def _cancel_rebalance(self, member_id: str, effects: Effects) -> None:
        timer = self.rebalances.pop(member_id, None)
        if timer is not None:
            timer.deadline.cancel(effects)

    def restore(self, state: GroupState, session_timeout_ms: int, effects: Effects) -> None:
        """Set the deadlines that the members of a loaded group need, or of one whose last decisions are void.

        Others stay. One that has passed waits for its decision.
        """
        for member_id in self.sessions.keys() - state.members.keys():
            self.remove(member_id, effects)
        for member_id, member in state.members.items():
            if member_id not in self.sessions:
                classic = member.about.classic
                self.set_session(member_id, classic.session_timeout_ms if classic else session_timeout_ms, effects)
            self._restore_rebalance(member, effects)

    def _restore_rebalance(self, member: Member, effects: Effects) -> None:
        current, timer = member.current, self.rebalances.get(member.member_id)
        if current.state is not MemberState.UNREVOKED_PARTITIONS or member.about.classic is not None:
            self._cancel_rebalance(member.member_id, effects)
        elif timer is None or timer.member_epoch != current.member_epoch:
            self.set_rebalance(member.member_id, member.about.rebalance_timeout_ms, current.member_epoch, effects)

    def retry(self, message: object, effects: Effects) -> None:
        """A decision could not be stored. If it was about a deadline, that comes again soon."""
        if isinstance(message, SessionExpired) and message.member_id in self.sessions:
            self.sessions[message.member_id].set(self._clock.monotonic_ms() + RETRY_MS, effects)
        elif isinstance(message, RebalanceExpired) and message.member_id in self.rebalances:
            self.set_rebalance(message.member_id, RETRY_MS, message.member_epoch, effects)
        elif isinstance(message, JoinExpired) and message.member_id in self.joins:
            self._set(self.joins, CLASSIC_JOIN, message.member_id, RETRY_MS, effects)
        elif isinstance(message, SyncExpired) and message.member_id in self.syncs:
            self._set(self.syncs, CLASSIC_SYNC, message.member_id, RETRY_MS, effects)

    def rebalance(self, member_id: str) -> Deadline | None:
        timer = self.rebalances.get(member_id)
        return None if timer is None else timer.deadline

    def all(self) -> Iterable[Deadline]:
        rebalances = (timer.deadline for timer in self.rebalances.values())
        return (*self.sessions.values(), *rebalances, *self.joins.values(), *self.syncs.values())


def _cancel(deadlines: dict[str, Deadline], member_id: str, effects: Effects) -> None:
    deadline = deadlines.pop(member_id, None)
    if deadline is not None:
        deadline.cancel(effects)
