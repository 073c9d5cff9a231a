"""``SessionChecker``: no session ends while a request of its member waits that arrived before its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.group.events import GroupEvent, Kind, Reason
from ....actors.messages import Heartbeat, Joined, JoinGroup, Synced, SyncGroup
from .history import Exchange, Listener

MemberName = tuple[str, str]
"""Group id and member id."""


class SessionChecker(Listener):
    """Knows for each member a time before which its session cannot end: its last accepted request, plus the timeout.

    A request that waits is in a socket's buffer, or, if it is a heartbeat, in the mailbox of an actor.
    """

    def __init__(self, fail: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._fail = fail
        self._now_s = now_s
        self._waiting: dict[Exchange, float] = {}  # and when they reached the coordinator's socket
        self._timeout_s: dict[MemberName, float] = {}
        self._renewed_s: dict[MemberName, float] = {}

    def coordinator_starts(self) -> None:
        self._waiting.clear()
        self._timeout_s.clear()
        self._renewed_s.clear()

    def reached(self, exchange: Exchange) -> None:
        self._waiting[exchange] = self._now_s()

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if not isinstance(message, Heartbeat):
            self._waiting.pop(exchange, None)
        if isinstance(message, JoinGroup):
            self._timeout_s.pop((message.group_id, message.member_id), None)  # it may change

    def answered(self, exchange: Exchange) -> None:
        self._waiting.pop(exchange, None)
        message, answer = exchange.message, exchange.answer
        match message:
            case JoinGroup() if isinstance(answer, Joined) and answer.error is ErrorCode.NONE:
                name = message.group_id, answer.member_id
                self._timeout_s[name] = message.session_timeout_ms / 1000
                self._renewed_s[name] = self._now_s()
            case SyncGroup() if isinstance(answer, Synced) and answer.error is ErrorCode.NONE:
                self._renew(exchange)
            case Heartbeat() if answer is ErrorCode.NONE:
                self._renew(exchange)

    def _renew(self, exchange: Exchange) -> None:
        message, arrived_s = exchange.message, exchange.arrived_s
        if arrived_s is not None:
            name = message.group_id, message.member_id
            self._renewed_s[name] = max(arrived_s, self._renewed_s.get(name, arrived_s))

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        name = group_id, event.member_id
        if event.kind is not Kind.MEMBER_REMOVED or event.reason is not Reason.SESSION_EXPIRED:
            return
        if name not in self._timeout_s or name not in self._renewed_s:
            return
        ends_s = self._renewed_s[name] + self._timeout_s[name]
        for exchange, reached_s in self._waiting.items():
            if _sender(exchange.message) == name and reached_s < ends_s:
                self._fail(
                    f"the session of {event.member_id} has ended, but {exchange} was there {ends_s - reached_s:.3f} s"
                    " before its time and has not been handled"
                )


def _sender(message: Any) -> MemberName:
    return getattr(message, "group_id", ""), getattr(message, "member_id", "")
