"""``SessionChecker``: sessions end neither too early nor too late.

Not before the timeout has passed since the last request that has renewed the session, and not while a request of the
member waits that arrived before. But soon afterwards: requests that the group refuses do not renew a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....actors.consumer_group.messages import JOIN_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from ....actors.errors import ErrorCode
from ....actors.group.events import GroupEvent, Kind, Reason
from ....actors.messages import Committed, Heartbeat, Joined, JoinGroup, OffsetCommit, Synced, SyncGroup
from .history import Exchange, Listener

MemberName = tuple[str, str]
"""Group id and member id."""

ROUNDING_S = 0.001  # the coordinator's clock has milliseconds
LATE_S = 2.0  # within this time after its end a session has been noticed

RENEWING = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""Answers to a heartbeat that has renewed the session."""

NOT_RENEWING = frozenset(
    {
        *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION),
        *(ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.STALE_MEMBER_EPOCH),
    }
)
"""Answers to requests that the group refuses because of their sender."""


class SessionChecker(Listener):
    """Knows for each member a time before which its session cannot end, and one after which it must have ended.

    A request that waits is in a socket's buffer, or in the mailbox of an actor. ``read_since_s``: since when the
    coordinator reads its sockets; infinity while it does not. Sessions do not end before that.

    ``consumer_timeout_ms``: the session timeout of a group of the consumer protocol, which the coordinator decides;
    None while it is down. Commits renew no sessions there, also not those of members of the classic protocol.
    """

    def __init__(
        self,
        fail: Callable[[str], None],
        now_s: Callable[[], float],
        read_since_s: Callable[[], float],
        consumer_timeout_ms: Callable[[str], int | None] = lambda group_id: None,
    ) -> None:
        self._fail = fail
        self._consumer_timeout_ms = consumer_timeout_ms
        self._now_s = now_s
        self._read_since_s = read_since_s
        self._waiting: dict[Exchange, float] = {}  # requests without an answer, and when they reached the socket
        self._unread: set[Exchange] = set()  # those that may still renew a session from before
        self._consumers: set[MemberName] = set()
        self._consumer_groups: set[str] = set()  # groups that have had members of the consumer protocol
        self._timeout_s: dict[MemberName, float] = {}
        self._renewed_s: dict[MemberName, float] = {}  # not later than the coordinator has renewed the session
        self._touched_s: dict[MemberName, float] = {}  # members of groups; not earlier than that

    def coordinator_starts(self) -> None:
        self._unread.clear()
        self._consumers.clear()
        self._waiting.clear()
        for table in (self._timeout_s, self._renewed_s, self._touched_s):
            table.clear()

    # Requests --------------------------------------------------------------------------------------------------------

    def reached(self, exchange: Exchange) -> None:
        self._waiting[exchange] = self._now_s()
        self._unread.add(exchange)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if not isinstance(message, Heartbeat | ConsumerHeartbeat):
            self._unread.discard(exchange)
        if isinstance(message, ConsumerHeartbeat):
            self._consumers.add(_sender(message))
            self._consumer_groups.add(message.group_id)
        if isinstance(message, JoinGroup):
            self._timeout_s.pop((message.group_id, message.member_id), None)  # it may change

    def answered(self, exchange: Exchange) -> None:
        self._waiting.pop(exchange, None)
        self._unread.discard(exchange)
        message, answer = exchange.message, exchange.answer
        match message:
            case JoinGroup() if isinstance(answer, Joined) and answer.error is ErrorCode.NONE:
                self._timeout_s[message.group_id, answer.member_id] = message.session_timeout_ms / 1000
                self._touch((message.group_id, answer.member_id))
            case SyncGroup() if isinstance(answer, Synced):
                self._handled(exchange, answer.error, renews=False)
            case Heartbeat():
                self._handled(exchange, answer, renews=answer in RENEWING)
            case ConsumerHeartbeat():
                self._beat(exchange, message, answer)
            case OffsetCommit() if (
                message.group_id not in self._consumer_groups
                and message.member_id
                and isinstance(answer, Committed)
                and answer.errors
            ):
                self._handled(exchange, answer.errors[0], renews=ErrorCode.NONE in answer.errors)

    def _beat(self, exchange: Exchange, message: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> None:
        timeout_ms = self._consumer_timeout_ms(message.group_id)
        if not reply.error and timeout_ms is not None and message.member_epoch >= JOIN_EPOCH:
            self._timeout_s[_sender(message)] = timeout_ms / 1000
        self._handled(exchange, reply.error, renews=not reply.error and message.member_epoch >= JOIN_EPOCH)

    def _handled(self, exchange: Exchange, error: ErrorCode, *, renews: bool) -> None:
        """``renews``: whether it has certainly renewed the session."""
        name = _sender(exchange.message)
        if renews and exchange.arrived_s is not None:
            self._renewed_s[name] = max(exchange.arrived_s, self._renewed_s.get(name, exchange.arrived_s))
        if error not in NOT_RENEWING:
            self._touch(name)

    def _touch(self, name: MemberName) -> None:
        if name in self._touched_s:
            self._touched_s[name] = self._now_s()

    # Events of groups ------------------------------------------------------------------------------------------------

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        name = group_id, event.member_id
        if event.kind is Kind.MEMBER_ADDED:
            self._member_added(name, event)
        elif event.kind is Kind.MEMBER_REMOVED:
            if event.reason is Reason.SESSION_EXPIRED:
                self._check_end(name)
            self._touched_s.pop(name, None)
        else:
            self._state_changed(group_id, event)

    def _member_added(self, name: MemberName, event: GroupEvent) -> None:
        """The session of a consumer began earlier: when its heartbeat was decided, before it was stored."""
        self._touched_s[name] = self._now_s()
        self._renewed_s.pop(name, None)
        if name not in self._consumers or event.reason is Reason.LOADED:
            self._renewed_s[name] = self._now_s()

    def _state_changed(self, group_id: str, event: GroupEvent) -> None:
        """The begin of a generation renews all sessions. Other changes renew some of them."""
        for name in [name for name in self._touched_s if name[0] == group_id]:
            if event.state == "Dead":
                del self._touched_s[name]
                continue
            self._touched_s[name] = self._now_s()
            if event.state == "CompletingRebalance":
                self._renewed_s[name] = self._now_s()

    # Checks ----------------------------------------------------------------------------------------------------------

    def _check_end(self, name: MemberName) -> None:
        if name not in self._timeout_s or name not in self._renewed_s:
            return
        ends_s = self._renewed_s[name] + self._timeout_s[name]
        early_s = ends_s - self._now_s()
        if early_s > ROUNDING_S:
            self._fail(f"the session of {name[1]} has ended {early_s:.3f} s before its time")
        for exchange in self._unread:
            if exchange.is_lost and name in self._consumers:
                continue  # on a channel that broke it may wait behind an OffsetFetch
            reached_s = self._waiting[exchange]
            if _sender(exchange.message) == name and reached_s < ends_s:
                self._fail(
                    f"the session of {name[1]} has ended, but {exchange} was there {ends_s - reached_s:.3f} s"
                    " before its time and has not been handled"
                )

    def check_overdue(self) -> None:
        """Fail for each member that should have been removed. Call it while the coordinator serves."""
        now_s, waiting = self._now_s(), {_sender(exchange.message) for exchange in self._waiting}
        for name, touched_s in self._touched_s.items():
            timeout_s = self._timeout_s.get(name)
            if timeout_s is None or name in waiting or name[0] in self._consumer_groups:
                continue  # a member with a request that waits is alive; there a removal must be stored first
            late_s = now_s - max(touched_s + timeout_s, self._read_since_s())
            if late_s > LATE_S:
                self._fail(f"the session of {name[1]} in {name[0]!r} should have ended {late_s:.1f} s ago")


def _sender(message: Any) -> MemberName:
    return getattr(message, "group_id", ""), getattr(message, "member_id", "")
