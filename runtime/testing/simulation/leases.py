"""``LeaseChecker``: the lease of a member ends before its session can end at the coordinator.

The coordinator counts a session from when it handles a heartbeat, which is before it answers. So at no time a member
may have a lease that ends later than the answer of its last accepted heartbeat allows, and no session ends while the
lease holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....actors.consumer_group.messages import ConsumerHeartbeat
from ....actors.group.events import GroupEvent, Kind, Reason
from ....actors.messages import Heartbeat
from ...member.lease import LeaseTimeouts
from ...member.member import Member
from .history import Exchange, Listener
from .loop import Process
from .sessions import RENEWING, ROUNDING_S


class WatchedMember(NamedTuple):
    """A member of ``callboard.member``, and its process; None: it was made outside of one."""

    member: Member
    process: Process | None
    timeouts: LeaseTimeouts


class LeaseChecker(Listener):
    """``fail`` is called with a text for each violation."""

    def __init__(self, fail: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._fail = fail
        self._now_s = now_s
        self._watched: list[WatchedMember] = []
        self._renewed_s: dict[tuple[Process, str], float] = {}  # by process and group: the last accepted heartbeat

    def watch(self, member: Member, process: Process | None, timeouts: LeaseTimeouts) -> None:
        self._watched.append(WatchedMember(member, process, timeouts))

    def answered(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        if (isinstance(message, Heartbeat) and exchange.answer in RENEWING) or (
            isinstance(message, ConsumerHeartbeat) and not exchange.answer.error
        ):
            self._renewed_s[exchange.process, message.group_id] = self._now_s()

    def sent(self, exchange: Exchange) -> None:
        """The member has taken note of all answers that it has received before."""
        for watched in self._watched:
            if watched.process is exchange.process:
                self._check_length(watched)

    def _check_length(self, watched: WatchedMember) -> None:
        member, process, timeouts = watched
        left_s = member.lease_left_s()
        renewed_s = None if process is None else self._renewed_s.get((process, member.group_id))
        if not left_s or renewed_s is None:
            return
        session_left_s = renewed_s + timeouts.session_s - self._now_s()
        if left_s + timeouts.margin_s > session_left_s + ROUNDING_S:
            self._fail(
                f"the lease of {member.member_id} lasts for {left_s:.3f} s and a margin of {timeouts.margin_s:g} s, "
                f"but its session may end in {session_left_s:.3f} s"
            )

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        if event.kind is not Kind.MEMBER_REMOVED or event.reason is not Reason.SESSION_EXPIRED:
            return
        for member, process, _ in self._watched:
            is_alive = process is None or not process.is_dead
            if is_alive and (member.group_id, member.member_id) == (group_id, event.member_id):
                left_s = member.lease_left_s()
                if left_s > ROUNDING_S:
                    self._fail(f"the session of {event.member_id} has ended, but its lease lasts for {left_s:.3f} s")
