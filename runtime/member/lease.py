"""How long a member may work without an answer from its coordinator. All times are in seconds of one clock.

The coordinator reassigns a member's shards if it receives no heartbeat for the session timeout, or if the member does
not rejoin within the rebalance timeout. It counts from when it handled a request, which is after the member sent it.
The lease counts from when the request was *sent*, so it always ends first. The margin is the time for stopping work.
Clocks need not agree; they must only run at the same rate. So the member's clock must not stand still while its
machine is suspended (``boottime_s``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NEVER = float("-inf")

SILENT_SESSION_PART = 0.4
"""Without an answer for this part of the session the server may be frozen. By default two heartbeats are then due."""


class LeaseTimeouts(NamedTuple):
    """The timeouts that a member has sent to the coordinator, and its own margin and interval, in seconds."""

    session_s: float
    rebalance_s: float
    margin_s: float
    interval_s: float  # between heartbeats


class Lease:
    """When one member loses its shards.

    ``renewed_s``: the send time of the last request whose answer shows that the session was renewed. ``stable_s``: the
    same for an answer that shows that no rebalance was in progress. ``now_s``: the clock; may be read in any thread.
    """

    __slots__ = ("now_s", "renewed_s", "stable_s", "timeouts")

    def __init__(self, timeouts: LeaseTimeouts, now_s: Callable[[], float]) -> None:
        self.timeouts = timeouts
        self.now_s = now_s
        self.renewed_s = self.stable_s = NEVER

    def record_renewal(self, sent_s: float) -> None:
        """An answer renewed the session, and a rebalance is in progress."""
        self.renewed_s = max(self.renewed_s, sent_s)

    def record_rebalance(self, sent_s: float) -> None:
        """JoinGroup or SyncGroup was answered. This does not renew the session.

        The coordinator renews it only if it held the request back. As in Kafka, it does not if it answers at once
        because nothing has changed. The answer does not tell these cases apart.
        """
        self.stable_s = max(self.stable_s, sent_s)

    def record_stable(self, sent_s: float) -> None:
        """An answer renewed the session, and no rebalance is in progress."""
        self.renewed_s = max(self.renewed_s, sent_s)
        self.stable_s = max(self.stable_s, sent_s)

    def deadline_s(self) -> float:
        """When the member loses its shards, unless a heartbeat is answered before."""
        return self.end_s() - self.timeouts.margin_s

    def end_s(self) -> float:
        """The coordinator reassigns the shards no earlier than this."""
        timeouts = self.timeouts
        return min(self.renewed_s + timeouts.session_s, self.stable_s + timeouts.rebalance_s)

    def revoke_deadline_s(self) -> float:
        """When work on revoked shards must end, so that this member rejoins before other members lose their shards.

        Their ``stable_s`` may be one heartbeat interval older, and so their deadline earlier. If the rebalance timeout
        is too short for that, half of it is allowed.
        """
        timeouts = self.timeouts
        ahead_s = 2 * timeouts.margin_s + timeouts.interval_s
        return self.stable_s + max(timeouts.rebalance_s - ahead_s, (timeouts.rebalance_s - timeouts.margin_s) / 2)

    def is_coordinator_silent(self) -> bool:
        """Whether no heartbeat was answered for so long that another connection should be tried."""
        return self.now_s() >= self.renewed_s + SILENT_SESSION_PART * self.timeouts.session_s

    def is_session_over(self) -> bool:
        """Whether the lease ended because no heartbeat was answered, not because a rebalance takes long."""
        return self.now_s() >= self.renewed_s + self.timeouts.session_s - self.timeouts.margin_s

    def is_over(self) -> bool:
        """Whether the deadline has been reached."""
        now_s = self.now_s()  # before the deadline, which an answer may move: see Membership._extend_lease
        return now_s >= self.deadline_s()

    def left_s(self) -> float:
        """The time until the deadline, 0 after it."""
        now_s = self.now_s()
        return max(self.deadline_s() - now_s, 0.0)

    def revoke_left_s(self) -> float:
        """The time until the deadline of work on revoked shards, 0 after it."""
        return max(self.revoke_deadline_s() - self.now_s(), 0.0)
